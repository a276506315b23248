//! Room `raft`: log entries. The bytes of a `tenon.log.Entry` are made once, by the proposer, with room in
//! front for the position that the leader assigns later; what a follower receives is kept as it came.

use super::{Config, LogId, Membership, from_log_id, from_membership, to_log_id, to_membership};
use bytes::{Buf, Bytes, BytesMut};
use openraft::entry::{RaftEntry, RaftPayload};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::fmt;
use std::sync::Arc;
use tenon_proto::command::{Command, CommandBatch};
use tenon_proto::log;

/// Bytes kept free in front of a batch: the entry's id (two varints of at most 10 bytes with their keys, in a
/// message) and the batch's key and length.
const ROOM: usize = 40;
/// Field number of `batch` in `tenon.log.Entry`.
const BATCH_FIELD: u32 = 3;
/// Field number of `commands` in `tenon.command.CommandBatch`.
const COMMANDS_FIELD: u32 = 1;

/// Encodes commands one by one into what becomes one entry.
pub(crate) struct Batching {
    commands: Vec<Command>,
    bytes: BytesMut,
}

impl Batching {
    pub(crate) fn new(commands_expected: usize) -> Batching {
        let mut bytes = BytesMut::with_capacity(ROOM + 512);
        bytes.resize(ROOM, 0);
        Batching {
            commands: Vec::with_capacity(commands_expected),
            bytes,
        }
    }

    /// Adds a command and encodes it.
    pub(crate) fn push(&mut self, command: Command) {
        encode_key(COMMANDS_FIELD, WireType::LengthDelimited, &mut self.bytes);
        command
            .encode_length_delimited(&mut self.bytes)
            .expect("BytesMut grows");
        self.commands.push(command);
    }

    /// Bytes the commands take.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len() - ROOM
    }

    pub(crate) fn finish(self) -> Proposal {
        Proposal {
            batch: Arc::new(CommandBatch {
                commands: self.commands,
            }),
            bytes: self.bytes,
        }
    }
}

/// Commands on their way into the log, encoded but not yet placed.
pub(crate) struct Proposal {
    batch: Arc<CommandBatch>,
    bytes: BytesMut,
}

impl Proposal {
    /// The commands, shared with the entry.
    pub(crate) fn batch(&self) -> &Arc<CommandBatch> {
        &self.batch
    }
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commands", self.batch.commands.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What an entry says.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Blank,
    Membership(Arc<Membership>),
    Batch(Arc<CommandBatch>),
}

#[derive(Clone)]
enum Wire {
    /// Nothing encoded yet.
    None,
    /// A batch with [`ROOM`] in front.
    Open(BytesMut),
    /// The whole entry.
    Sealed(Bytes),
}

/// What an entry says and its bytes, before or after it has a place.
#[derive(Clone)]
pub(crate) struct Payload {
    body: Body,
    wire: Wire,
}

impl Payload {
    fn plain(body: Body) -> Payload {
        Payload {
            body,
            wire: Wire::None,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Body::Blank => f.write_str("blank"),
            Body::Membership(m) => write!(f, "membership {m}"),
            Body::Batch(b) => write!(f, "{} commands", b.commands.len()),
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl RaftPayload for Payload {
    type D = Proposal;
    type NodeId = u64;
    type Node = super::Birth;

    fn blank() -> Payload {
        Payload::plain(Body::Blank)
    }

    fn with_normal(self, proposal: Proposal) -> Payload {
        let Proposal { batch, bytes } = proposal;
        Payload {
            body: Body::Batch(batch),
            wire: Wire::Open(bytes),
        }
    }

    fn with_membership(self, membership: Membership) -> Payload {
        Payload::plain(Body::Membership(Arc::new(membership)))
    }

    fn get_membership(&self) -> Option<Membership> {
        match &self.body {
            Body::Membership(m) => Some(Membership::clone(m)),
            Body::Blank | Body::Batch(_) => None,
        }
    }
}

/// One entry of the log. Clones share commands and bytes.
#[derive(Clone)]
pub(crate) struct Entry {
    id: LogId,
    payload: Payload,
}

impl Entry {
    pub(crate) fn id(&self) -> LogId {
        self.id
    }

    pub(crate) fn body(&self) -> &Body {
        &self.payload.body
    }

    /// Reads an entry as the WAL or a peer keeps it; the bytes are kept for passing on.
    pub(crate) fn decode(bytes: Bytes) -> Result<Entry, String> {
        let entry =
            log::Entry::decode(bytes.clone()).map_err(|e| format!("not a log entry: {e}"))?;
        let id = entry.id.ok_or("a log entry without a position")?;
        let body = match entry.payload {
            Some(log::entry::Payload::Blank(_)) => Body::Blank,
            Some(log::entry::Payload::Batch(batch)) => Body::Batch(Arc::new(batch)),
            Some(log::entry::Payload::Membership(m)) => Body::Membership(Arc::new(
                to_membership(&m).ok_or("an impossible membership")?,
            )),
            None => return Err("a log entry of a kind this version does not know".to_owned()),
        };
        let payload = Payload {
            body,
            wire: Wire::Sealed(bytes),
        };
        Ok(Entry {
            id: to_log_id(&id),
            payload,
        })
    }

    /// The entry's bytes, made final now that its place is.
    pub(crate) fn seal(&mut self) -> Bytes {
        let bytes = match std::mem::replace(&mut self.payload.wire, Wire::None) {
            Wire::Sealed(bytes) => bytes,
            Wire::Open(bytes) => close(self.id, bytes),
            Wire::None => {
                let payload = Some(match &self.payload.body {
                    Body::Blank => log::entry::Payload::Blank(log::Blank {}),
                    Body::Membership(m) => log::entry::Payload::Membership(from_membership(m)),
                    Body::Batch(b) => log::entry::Payload::Batch(CommandBatch::clone(b)),
                });
                log::Entry {
                    id: Some(from_log_id(self.id)),
                    payload,
                }
                .encode_to_vec()
                .into()
            }
        };
        self.payload.wire = Wire::Sealed(bytes.clone());
        bytes
    }
}

/// Writes the entry's head into the room in front of the batch.
fn close(id: LogId, mut bytes: BytesMut) -> Bytes {
    let mut head = Vec::with_capacity(ROOM);
    let unpayed = log::Entry {
        id: Some(from_log_id(id)),
        payload: None,
    };
    unpayed.encode(&mut head).expect("a Vec grows");
    encode_key(BATCH_FIELD, WireType::LengthDelimited, &mut head);
    encode_varint((bytes.len() - ROOM) as u64, &mut head);
    let start = ROOM
        .checked_sub(head.len())
        .expect("an entry's head fits its room");
    bytes[start..ROOM].copy_from_slice(&head);
    bytes.advance(start);
    bytes.freeze()
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.payload)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl RaftEntry for Entry {
    type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<Config>;
    type Payload = Payload;

    fn new(id: LogId, payload: Payload) -> Entry {
        Entry { id, payload }
    }

    fn log_id_parts(&self) -> (&Self::CommittedLeaderId, u64) {
        (&self.id.leader_id, self.id.index)
    }

    fn set_log_id(&mut self, id: LogId) {
        assert!(
            !matches!(self.payload.wire, Wire::Sealed(_)),
            "an entry moves only before its bytes are final"
        );
        self.id = id;
    }

    fn get_membership(&self) -> Option<Membership> {
        self.payload.get_membership()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::command::command::Body as CommandBody;
    use tenon_proto::etcdserverpb::PutRequest;

    fn put(key: &str) -> Command {
        let put = PutRequest {
            key: key.to_owned().into(),
            value: vec![7; 300].into(),
            ..Default::default()
        };
        Command {
            origin: u64::MAX,
            body: Some(CommandBody::Put(put)),
            ..Default::default()
        }
    }

    /// The bytes made with room in front are those that prost makes of the whole entry.
    #[test]
    fn a_sealed_batch_is_a_plain_encoding() {
        for (term, index, count) in [(0, 0, 0), (1, 1, 1), (u64::MAX, u64::MAX, 3), (300, 0, 40)] {
            let commands: Vec<Command> = (0..count).map(|n| put(&format!("key{n}"))).collect();
            let mut batching = Batching::new(count);
            commands.iter().for_each(|c| batching.push(c.clone()));
            let proposal = batching.finish();
            let id = LogId::new_term_index(term, index);
            let mut entry = Entry::new(LogId::new_term_index(0, 0), Payload::normal(proposal));
            entry.set_log_id(id);
            let plain = log::Entry {
                id: Some(from_log_id(id)),
                payload: Some(log::entry::Payload::Batch(CommandBatch { commands })),
            };
            let bytes = entry.seal();
            assert_eq!(bytes, plain.encode_to_vec(), "term {term} index {index}");
            let mut back = Entry::decode(bytes.clone()).expect("decodes");
            assert_eq!(back.id(), id);
            assert_eq!(back.seal(), bytes);
        }
    }

    #[test]
    fn membership_and_blank_survive_encoding() {
        let node = log::Node {
            peer_urls: vec!["http://a:1".to_owned()],
            birth: "tkn".to_owned(),
        };
        let nodes = [
            (1, super::super::Birth(node.clone())),
            (2, super::super::Birth(node)),
        ];
        let sets = vec![[1].into(), [1, 2].into()];
        let membership =
            Membership::new(sets, std::collections::BTreeMap::from(nodes)).expect("valid");
        for payload in [Payload::blank(), Payload::membership(membership)] {
            let mut entry = Entry::new(LogId::new_term_index(4, 9), payload);
            let mut back = Entry::decode(entry.seal()).expect("decodes");
            assert_eq!(back.id(), entry.id());
            assert_eq!(back.get_membership(), entry.get_membership());
            assert_eq!(back.seal(), entry.seal());
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert!(Entry::decode(Bytes::from_static(b"\xff\xff")).is_err());
        assert!(Entry::decode(Bytes::new()).is_err());
    }
}
