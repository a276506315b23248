//! Room `storage`, WAL: the bytes of segment headers and frames, and nothing else: no files, no order.
//! `docs/format.md` gives every byte; a change here is a new [`VERSION`].

use tenon_proto::log::{LogId, Vote};

/// First bytes of every segment.
const MAGIC: [u8; 8] = *b"TENONWAL";
/// Format version written and read.
pub(super) const VERSION: u32 = 1;
/// Length of a segment header; the first frame begins here.
pub(super) const HEADER_LEN: usize = 64;
/// Length of a frame's head; the payload follows it.
pub(super) const HEAD_LEN: usize = 40;
/// Frames begin at multiples of this; the gap is zeros and covered by the checksum.
pub(super) const ALIGN: usize = 8;
/// Longest payload of one frame: offsets in a segment are 32 bits.
pub(super) const PAYLOAD_MAX: usize = 1 << 30;
/// Length of the payload of [`Kind::Start`].
const START_LEN: usize = 112;
/// Length on disk of the frame every segment begins with.
pub(super) const START_FRAME_LEN: usize = frame_len(START_LEN);

/// Length on disk of a frame with `payload` bytes.
pub(super) const fn frame_len(payload: usize) -> usize {
    (HEAD_LEN + payload + ALIGN - 1) & !(ALIGN - 1)
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// First frame of a segment: the state of the log where it begins ([`Start`]).
    Start = 1,
    /// An entry of the log.
    Entry = 2,
    /// The member's vote: term and node of the id; index 1 when it is committed.
    Vote = 3,
    /// The last log id known to be committed.
    Committed = 4,
    /// Entries after the id are gone.
    Truncate = 5,
    /// All entries are gone; none was ever purged.
    TruncateAll = 6,
    /// All entries are gone, and the log counts as purged up to the id. Earlier segments count as removed.
    Reset = 7,
    /// The log is purged up to the id; the payload is the last segment (u64) that counts as removed.
    Purge = 8,
    /// The payload is the last segment (u64) that counts as removed; it held no entries.
    Drop = 9,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Start,
            2 => Kind::Entry,
            3 => Kind::Vote,
            4 => Kind::Committed,
            5 => Kind::Truncate,
            6 => Kind::TruncateAll,
            7 => Kind::Reset,
            8 => Kind::Purge,
            9 => Kind::Drop,
            _ => return None,
        })
    }
}

/// What ties frames to one life of one segment, so that bytes of an earlier life never count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// The low 24 bits of the segment's number.
    tag: u32,
    /// Checksum state after the segment's number and salt.
    seed: u32,
}

/// Head of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Number of the segment; one more than its predecessor's.
    pub(super) seq: u64,
    /// Random, new for every life of a file.
    pub(super) salt: u64,
}

/// Why a segment header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// The file does not begin with the magic or its checksum does not fit.
    NotASegment,
    /// A format version this program does not know.
    Version(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&MAGIC);
        put_u32(&mut out, 8, VERSION);
        put_u64(&mut out, 16, self.seq);
        put_u64(&mut out, 24, self.salt);
        let crc = crc32c::crc32c(&out[..HEADER_LEN - 4]);
        put_u32(&mut out, HEADER_LEN - 4, crc);
        out
    }

    pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<SegmentHeader, HeaderFault> {
        let crc = crc32c::crc32c(&bytes[..HEADER_LEN - 4]);
        if bytes[..8] != MAGIC || get_u32(bytes, HEADER_LEN - 4) != crc {
            return Err(HeaderFault::NotASegment);
        }
        match get_u32(bytes, 8) {
            VERSION => Ok(SegmentHeader {
                seq: get_u64(bytes, 16),
                salt: get_u64(bytes, 24),
            }),
            other => Err(HeaderFault::Version(other)),
        }
    }

    pub(super) fn binding(&self) -> Binding {
        let seed = crc32c::crc32c(&self.seq.to_le_bytes());
        Binding {
            tag: (self.seq & 0xff_ffff) as u32,
            seed: crc32c::crc32c_append(seed, &self.salt.to_le_bytes()),
        }
    }
}

/// A frame's head, read but not yet checked against its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Bytes of payload.
    pub(super) len: usize,
    /// Everything in the segment before this offset was durable when the frame was written.
    pub(super) durable: u32,
    pub(super) id: LogId,
}

impl Head {
    /// The head at the beginning of `bytes` (at least [`HEAD_LEN`] long), or `None` when it cannot be one of
    /// this segment.
    pub(super) fn parse(bytes: &[u8], binding: Binding) -> Option<Head> {
        let kind = Kind::from_byte(bytes[8])?;
        let len = get_u32(bytes, 4) as usize;
        if get_u32(bytes, 8) >> 8 != binding.tag || len > PAYLOAD_MAX {
            return None;
        }
        Some(Head {
            kind,
            len,
            durable: get_u32(bytes, 12),
            id: LogId {
                term: get_u64(bytes, 16),
                node_id: get_u64(bytes, 24),
                index: get_u64(bytes, 32),
            },
        })
    }

    /// Length on disk of the whole frame.
    pub(super) fn frame_len(&self) -> usize {
        frame_len(self.len)
    }
}

/// Whether `bytes` could begin a frame at all: a quick first look.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    Kind::from_byte(bytes[8]).is_some()
}

/// Whether `frame` (head, payload and gap) carries the checksum that belongs to it in this segment.
pub(super) fn verify(frame: &[u8], binding: Binding) -> bool {
    get_u32(frame, 0) == crc32c::crc32c_append(binding.seed, &frame[4..])
}

/// Appends one frame to `out`. `durable` as in [`Head::durable`].
pub(super) fn encode(
    out: &mut Vec<u8>,
    binding: Binding,
    kind: Kind,
    id: LogId,
    durable: u32,
    payload: &[u8],
) {
    assert!(
        payload.len() <= PAYLOAD_MAX,
        "a frame of {} bytes",
        payload.len()
    );
    let at = out.len();
    let mut head = [0; HEAD_LEN];
    put_u32(&mut head, 4, payload.len() as u32);
    put_u32(&mut head, 8, binding.tag << 8 | kind as u32);
    put_u32(&mut head, 12, durable);
    put_u64(&mut head, 16, id.term);
    put_u64(&mut head, 24, id.node_id);
    put_u64(&mut head, 32, id.index);
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    out.resize(at + frame_len(payload.len()), 0);
    let crc = crc32c::crc32c_append(binding.seed, &out[at + 4..]);
    put_u32(out, at, crc);
}

/// What the log amounts to at one point, entries apart. The first frame of every segment carries it, so that
/// earlier segments are needed for their entries only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    /// The log begins after this.
    pub(super) purged: Option<LogId>,
    /// Id of the last entry; `purged` when there is none.
    pub(super) last: Option<LogId>,
    /// Segments up to this number count as removed.
    pub(super) floor: u64,
}

impl State {
    /// Takes in a frame of segment `seq`. `false` when the frame cannot follow what came before.
    #[must_use]
    pub(super) fn on_frame(&mut self, kind: Kind, id: LogId, payload: &[u8], seq: u64) -> bool {
        match kind {
            Kind::Start => return false,
            Kind::Entry => {
                if self.last.is_some_and(|last| id.index != last.index + 1) {
                    return false;
                }
                self.last = Some(id);
            }
            Kind::Vote => self.vote = Some(vote_of(id)),
            Kind::Committed => self.committed = Some(id),
            Kind::Truncate => self.last = Some(id),
            Kind::TruncateAll => self.last = None,
            Kind::Reset => {
                self.last = Some(id);
                self.purged = Some(id);
                self.floor = seq - 1;
            }
            Kind::Purge | Kind::Drop => {
                if payload.len() != 8 || get_u64(payload, 0) >= seq {
                    return false;
                }
                self.floor = self.floor.max(get_u64(payload, 0));
                if kind == Kind::Purge {
                    self.purged = Some(id);
                }
            }
        }
        true
    }
}

/// The id that a vote's frame carries.
pub(super) fn vote_id(vote: &Vote) -> LogId {
    LogId {
        term: vote.term,
        node_id: vote.node_id,
        index: u64::from(vote.committed),
    }
}

fn vote_of(id: LogId) -> Vote {
    Vote {
        term: id.term,
        node_id: id.node_id,
        committed: id.index == 1,
    }
}

/// Payload of [`Kind::Start`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// Offset where the frames of the segment before end; 0 in the first segment.
    pub(super) previous_end: u64,
    pub(super) state: State,
}

impl Start {
    pub(super) fn encode(&self) -> [u8; START_LEN] {
        let s = &self.state;
        let mut out = [0; START_LEN];
        put_u64(&mut out, 0, self.previous_end);
        put_u64(&mut out, 8, s.floor);
        let vote_committed = s.vote.is_some_and(|v| v.committed);
        let flags = [
            s.vote.is_some(),
            vote_committed,
            s.committed.is_some(),
            s.purged.is_some(),
            s.last.is_some(),
        ];
        let flags = flags
            .iter()
            .enumerate()
            .map(|(bit, set)| u64::from(*set) << bit)
            .sum();
        put_u64(&mut out, 16, flags);
        let vote = s.vote.unwrap_or_default();
        put_u64(&mut out, 24, vote.term);
        put_u64(&mut out, 32, vote.node_id);
        for (at, id) in [(40, s.committed), (64, s.purged), (88, s.last)] {
            let id = id.unwrap_or_default();
            put_u64(&mut out, at, id.term);
            put_u64(&mut out, at + 8, id.node_id);
            put_u64(&mut out, at + 16, id.index);
        }
        out
    }

    /// `None` when the payload is not that of a start frame.
    pub(super) fn decode(bytes: &[u8]) -> Option<Start> {
        if bytes.len() != START_LEN {
            return None;
        }
        let flags = get_u64(bytes, 16);
        let set = |bit: u64| flags >> bit & 1 == 1;
        let id = |at: usize| LogId {
            term: get_u64(bytes, at),
            node_id: get_u64(bytes, at + 8),
            index: get_u64(bytes, at + 16),
        };
        let vote = Vote {
            term: get_u64(bytes, 24),
            node_id: get_u64(bytes, 32),
            committed: set(1),
        };
        Some(Start {
            previous_end: get_u64(bytes, 0),
            state: State {
                floor: get_u64(bytes, 8),
                vote: set(0).then_some(vote),
                committed: set(2).then(|| id(40)),
                purged: set(3).then(|| id(64)),
                last: set(4).then(|| id(88)),
            },
        })
    }
}

fn put_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The u64 (little-endian) at `at`.
pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
