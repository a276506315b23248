//! Room `raft`: snapshots on their way out. A view is read piece by piece on a lane and streamed; when the
//! stream breaks, another goes on with the same view where the receiver stopped. One piece is in memory.

use super::greeting::NoStream;
use super::link::Link;
use super::wire;
use crate::types::{Vote, from_vote, to_vote};
use bytes::Bytes;
use prost::Message;
use std::ops::ControlFlow;
use std::time::Duration;
use tenon_env::{Lane, NetStream, StreamKind};
use tenon_proto::peer::{
    SnapshotBegin, SnapshotContent, SnapshotEnd, SnapshotFrom, SnapshotPart, SnapshotRecord,
    SnapshotReply, SnapshotRow, snapshot_reply,
};
use tenon_storage::engine::{EngineError, Table};
use tenon_storage::state::SnapshotView;

/// Bytes of rows or records in one piece.
const PIECE_BYTES: usize = 1 << 20;
/// What a row costs beside its key and value.
const ROW_COST: usize = 16;
/// Streams that may break without progress before the transfer is given up.
const BREAKS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// How long the receiver may take for its last answer: it rebuilds its index then.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);

/// How one stream ended.
enum Ended {
    /// The receiver's vote.
    Done(Vote),
    Broken(String),
}

/// A snapshot and how to send it.
pub(super) struct Sending {
    pub(super) link: Link,
    pub(super) vote: Vote,
    pub(super) view: SnapshotView,
    /// Bytes per second; 0 = as fast as it goes.
    pub(super) rate: u64,
}

impl Sending {
    /// Streams the snapshot until the receiver has installed it; the receiver's vote.
    pub(super) async fn run(self) -> Result<Vote, String> {
        let transfer = self.link.env().rng.next_u64();
        let mut furthest = 0;
        let mut breaks = 0;
        loop {
            let mut sent = 0;
            match self.stream(transfer, &mut sent).await {
                Ok(Ended::Done(vote)) => return Ok(vote),
                Ok(Ended::Broken(why)) | Err(why) => {
                    tracing::info!("a snapshot to member {:x} broke: {why}", self.link.target());
                    if sent > furthest {
                        furthest = sent;
                        breaks = 0;
                    }
                    breaks += 1;
                    if breaks >= BREAKS_MAX {
                        return Err(why);
                    }
                }
            }
            self.link.env().sleep(PAUSE).await;
        }
    }

    async fn stream(&self, transfer: u64, sent: &mut u64) -> Result<Ended, String> {
        let broken = |error: std::io::Error| error.to_string();
        let dialled = self.link.dial(StreamKind::Bulk).await;
        let mut stream = dialled.map_err(|e: NoStream| e.to_string())?;
        let begin = SnapshotBegin {
            vote: Some(from_vote(&self.vote)),
            last: Some(self.view.log_id()),
            transfer,
        };
        stream
            .send(begin.encode_to_vec().into())
            .await
            .map_err(broken)?;
        let from = match reply(&mut *stream).await?.outcome {
            Some(snapshot_reply::Outcome::From(from)) => from,
            Some(snapshot_reply::Outcome::Done(vote)) => return Ok(Ended::Done(to_vote(&vote))),
            Some(snapshot_reply::Outcome::Failed(why)) => return Ok(Ended::Broken(why)),
            None => return Ok(Ended::Broken("an empty reply".to_owned())),
        };
        *sent = from.records;
        let end = self.parts(&mut *stream, from, sent).await?;
        self.send(
            &mut *stream,
            SnapshotContent {
                end: Some(end),
                ..Default::default()
            },
        )
        .await?;
        let last = self
            .link
            .env()
            .timeout(INSTALL_WITHIN, reply(&mut *stream))
            .await;
        Ok(
            match last.ok_or("no answer to a snapshot's end")??.outcome {
                Some(snapshot_reply::Outcome::Done(vote)) => Ended::Done(to_vote(&vote)),
                Some(snapshot_reply::Outcome::Failed(why)) => Ended::Broken(why),
                Some(snapshot_reply::Outcome::From(_)) | None => {
                    Ended::Broken("an answer out of turn".to_owned())
                }
            },
        )
    }

    /// Sends what is missing; what was sent in all.
    async fn parts(
        &self,
        stream: &mut dyn NetStream,
        from: SnapshotFrom,
        sent: &mut u64,
    ) -> Result<SnapshotEnd, String> {
        let mut end = SnapshotEnd {
            rows: from.rows,
            records: from.records,
        };
        if !from.rows_done {
            let place = (from.rows > 0).then_some((from.table, from.key));
            end.rows += self.send_rows(stream, place).await?;
        }
        let mut next = (from.main, from.sub);
        loop {
            let view = self.view.clone();
            let read = move || view.records(next, PIECE_BYTES);
            let piece = self.link.env().blocking(Lane::Snapshot, read).await;
            let piece = piece
                .map_err(|e| e.to_string())?
                .map_err(|e| e.to_string())?;
            let Some((last, _)) = piece.last() else {
                return Ok(end);
            };
            next = (last.main, last.sub + 1);
            end.records += piece.len() as u64;
            let records = piece.into_iter().map(|(key, value)| SnapshotRecord {
                main: key.main,
                sub: key.sub,
                tombstone: key.tombstone,
                value,
            });
            let content = SnapshotContent {
                records: records.collect(),
                ..Default::default()
            };
            self.send(stream, content).await?;
            *sent = end.records;
        }
    }

    /// Sends all rows after `place`; how many.
    async fn send_rows(
        &self,
        stream: &mut dyn NetStream,
        mut place: Option<(u32, Bytes)>,
    ) -> Result<u64, String> {
        let mut sent = 0;
        loop {
            let rows = self.rows(place).await?;
            let Some(last) = rows.last() else {
                return Ok(sent);
            };
            place = Some((last.table, last.key.clone()));
            sent += rows.len() as u64;
            let content = SnapshotContent {
                rows,
                ..Default::default()
            };
            self.send(stream, content).await?;
        }
    }

    /// The next rows after `place`.
    async fn rows(&self, place: Option<(u32, Bytes)>) -> Result<Vec<SnapshotRow>, String> {
        let view = self.view.clone();
        let read = move || rows_after(&view, place, PIECE_BYTES);
        let rows = self.link.env().blocking(Lane::Snapshot, read).await;
        rows.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    async fn send(
        &self,
        stream: &mut dyn NetStream,
        content: SnapshotContent,
    ) -> Result<(), String> {
        let content = Bytes::from(content.encode_to_vec());
        let bytes = content.len() as u64;
        let part = SnapshotPart {
            crc32c: crc32c::crc32c(&content),
            content,
        };
        stream
            .send(part.encode_to_vec().into())
            .await
            .map_err(|e| e.to_string())?;
        if let Some(nanos) = (bytes * 1_000_000_000).checked_div(self.rate) {
            self.link.env().sleep(Duration::from_nanos(nanos)).await;
        }
        Ok(())
    }
}

/// The next rows after `place` (a table's number and a key), about `bytes_max` of them but at least one; none at the
/// end.
fn rows_after(
    view: &SnapshotView,
    place: Option<(u32, Bytes)>,
    bytes_max: usize,
) -> Result<Vec<SnapshotRow>, EngineError> {
    let (first, mut after) = place.map_or((0, None), |(table, key)| (table, Some(key)));
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for (table, name) in (0..).zip(Table::ALL) {
        if table < first || bytes >= bytes_max {
            continue;
        }
        view.scan_rows(name, after.take().as_deref(), &mut |key, value| {
            bytes += key.len() + value.len() + ROW_COST;
            rows.push(SnapshotRow {
                table,
                key: Bytes::copy_from_slice(key),
                value: Bytes::copy_from_slice(value),
            });
            match bytes < bytes_max {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
    }
    Ok(rows)
}

async fn reply(stream: &mut dyn NetStream) -> Result<SnapshotReply, String> {
    match stream.recv().await {
        Ok(Some(bytes)) => wire::decode(bytes),
        Ok(None) => Err("the stream ended".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_env::real;
    use tenon_proto::command::{Command, CommandBatch, command::Body};
    use tenon_proto::etcdserverpb::LeaseGrantRequest;
    use tenon_proto::ids::LogIndex;
    use tenon_proto::log::{LogId, Membership};
    use tenon_storage::{Store, StoreOptions};

    const LEASES: i64 = 500;

    /// A view with many leases.
    async fn view(dir: &std::path::Path) -> (Store, SnapshotView) {
        let env = real::env_without_peers();
        let store = Store::open(&env, dir, StoreOptions::default()).expect("a store");
        let id = |index| LogId {
            term: 1,
            node_id: 0,
            index,
        };
        store.apply_membership(id(0), &Membership::default());
        let grant = |id| Command {
            body: Some(Body::LeaseGrant(LeaseGrantRequest { id, ttl: 60 })),
            ..Command::default()
        };
        let batch = CommandBatch {
            commands: (1..=LEASES).map(grant).collect(),
        };
        store.apply(id(1), &batch).expect("applied");
        store.start(&env);
        store.set_wal_flushed(LogIndex(1));
        let mut durable = store.watch_engine_durable();
        let drained = durable.wait_for(|index| *index >= LogIndex(1)).await;
        drained.expect("the store lives");
        let view = store.snapshot().expect("something is drained");
        (store, view)
    }

    /// However many rows there are, a message holds so many bytes of them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_go_in_pieces_of_bounded_size() {
        let dir = tempfile::tempdir().expect("a folder");
        let (store, view) = view(dir.path()).await;
        let (mut all, mut place, mut pieces) = (Vec::new(), None, 0);
        loop {
            let piece = rows_after(&view, place.take(), 300).expect("read");
            let Some(last) = piece.last() else { break };
            place = Some((last.table, last.key.clone()));
            let cost = |row: &SnapshotRow| row.key.len() + row.value.len() + ROW_COST;
            let before: usize = piece[..piece.len() - 1].iter().map(cost).sum();
            assert!(
                before < 300,
                "the last row alone may pass the bound: {before}"
            );
            all.extend(piece);
            pieces += 1;
        }
        assert!(pieces > 20, "{pieces}");
        let whole = rows_after(&view, None, usize::MAX).expect("read");
        assert_eq!(all, whole);
        let leases = whole
            .iter()
            .filter(|row| Table::ALL[row.table as usize] == Table::Leases);
        assert_eq!(leases.count() as i64, LEASES);
        drop(view);
        store.shutdown().await;
    }
}
