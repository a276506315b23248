//! Room `storage`, WAL: what callers see of the log at once, and what waits to be written. Pure state under one
//! lock; no disk, no tasks.
//!
//! Callers change the *visible* log (`begin`, `last`, `tail`) when they ask; the writer changes the *written*
//! one (`map`, `written_end`) when it is durable. Between the two the map may hold entries that were truncated
//! meanwhile. They are never read, because:
//!
//! - The tail holds every entry that is not durable yet, without a gap up to `last`.
//! - Entries leave the tail only from its front and only when durable as they are.
//! - The map is asked only for indexes before the tail, or up to `last` when the tail is empty.

use super::frame::{self, State};
use super::map::{LogMap, Region, Run};
use super::{Done, WalEntry, WalError};
use std::collections::VecDeque;
use tenon_env::sync::watch;
use tenon_proto::ids::LogIndex;
use tenon_proto::log::{LogId, Vote};

/// Bookkeeping charged per entry of the tail beside its payload.
const ENTRY_COST: usize = 64;

/// One thing to write, in order.
pub(super) enum Op {
    Entry(WalEntry),
    Vote(Vote),
    Committed(LogId),
    Truncate(Option<LogId>),
    Reset(LogId),
    /// Segments up to `floor` count as removed, and with them the log up to `id`.
    Purge {
        floor: u64,
        id: Option<LogId>,
    },
    /// Writes nothing; called once all before it is durable.
    Done(Done),
}

impl Op {
    /// Bytes the frame takes on disk.
    pub(super) fn frame_len(&self) -> usize {
        match self {
            Op::Entry(entry) => frame::frame_len(entry.payload.len()),
            Op::Purge { .. } => frame::frame_len(8),
            Op::Done(_) => 0,
            _ => frame::frame_len(0),
        }
    }

    /// Whether this waits for a sync: all but the committed position.
    pub(super) fn wants_sync(&self) -> bool {
        !matches!(self, Op::Committed(_))
    }
}

/// Operations on their way to disk. The first `settled` are as durable as they want to be.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) ops: Vec<Op>,
    /// Offset of each encoded operation's frame in its segment.
    pub(super) offsets: Vec<u32>,
    pub(super) rolls: VecDeque<Roll>,
    pub(super) settled: usize,
    /// Offset reached in the segment in use.
    pub(super) end: u64,
    /// Whether the segment in use is full enough for the next to be prepared.
    pub(super) nearly_full: bool,
}

/// A segment begun.
pub(super) struct Roll {
    /// The operation that is the first in it.
    pub(super) first: usize,
    pub(super) run: Run,
    /// Offset at which the frames of the one before end.
    pub(super) previous_end: u64,
}

/// What [`Core::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Work,
    /// Nothing is queued now.
    Nothing,
    /// Nothing is queued and nothing will be.
    End,
}

/// Whether the log takes more.
enum Stage {
    Open,
    Closing,
    Failed(WalError),
}

/// What [`Core::look`] found.
pub(super) enum Found {
    /// The log ends before the index.
    End,
    /// The log begins after the index.
    Purged,
    Memory(Vec<(LogId, bytes::Bytes)>),
    Disk(Region),
}

pub(super) struct Core {
    stage: Stage,
    ops: Vec<Op>,
    tail: VecDeque<WalEntry>,
    tail_bytes: usize,
    tail_bytes_max: usize,
    map: LogMap,
    /// First index that can be read.
    begin: u64,
    last: Option<LogId>,
    /// Physical purge: what a restart would report.
    purged: Option<LogId>,
    /// The durable log ends before this index, as far as the writer has come.
    written_end: u64,
    /// For each truncation or reset still queued: the durable log that stays begins nowhere behind this index.
    caps: VecDeque<u64>,
    flushed: watch::Sender<LogIndex>,
    /// One more than the last index that is durable as it is now.
    flushed_end: u64,
    intent: Option<LogId>,
    engine_durable: Option<LogIndex>,
    /// Last segment that counts, or is queued to count, as removed.
    floor: u64,
}

fn end_of(id: Option<LogId>) -> u64 {
    id.map_or(0, |id| id.index + 1)
}

impl Core {
    pub(super) fn new(state: &State, map: LogMap, tail_bytes_max: usize) -> Core {
        let end = end_of(state.last);
        let begin = match state.purged {
            Some(id) => id.index + 1,
            None => map.first().unwrap_or(0),
        };
        Core {
            stage: Stage::Open,
            ops: Vec::new(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            tail_bytes_max,
            map,
            begin,
            last: state.last,
            purged: state.purged,
            written_end: end,
            caps: VecDeque::new(),
            flushed: watch::Sender::new(LogIndex(end.saturating_sub(1))),
            flushed_end: end,
            intent: None,
            engine_durable: None,
            floor: state.floor,
        }
    }

    // What callers ask for.

    /// Whether the log takes more.
    pub(super) fn admit(&self) -> Result<(), WalError> {
        match &self.stage {
            Stage::Open => Ok(()),
            Stage::Closing => Err(WalError::Closed),
            Stage::Failed(error) => Err(error.clone()),
        }
    }

    pub(super) fn append(&mut self, entries: Vec<WalEntry>, done: Done) {
        self.ops.reserve(entries.len() + 1);
        for entry in entries {
            let (id, len) = (entry.id, entry.payload.len());
            assert!(len <= frame::PAYLOAD_MAX, "a log entry of {len} bytes");
            match self.last {
                Some(last) => assert_eq!(id.index, last.index + 1, "the log takes no gaps"),
                None => self.begin = id.index,
            }
            self.last = Some(id);
            self.tail_bytes += len + ENTRY_COST;
            self.tail.push_back(entry.clone());
            self.ops.push(Op::Entry(entry));
        }
        self.ops.push(Op::Done(done));
    }

    pub(super) fn save_vote(&mut self, vote: Vote, done: Done) {
        self.ops.push(Op::Vote(vote));
        self.ops.push(Op::Done(done));
    }

    pub(super) fn save_committed(&mut self, id: LogId) {
        match self.ops.last_mut() {
            Some(Op::Committed(before)) => *before = id,
            _ => self.ops.push(Op::Committed(id)),
        }
    }

    pub(super) fn truncate_after(&mut self, keep: Option<LogId>, done: Done) {
        let end = end_of(keep);
        let behind_begin = match keep {
            Some(_) => end >= self.begin,
            None => self.purged.is_none(),
        };
        assert!(
            end <= end_of(self.last) && behind_begin,
            "truncate after {keep:?} in a log from {} to {:?}",
            self.begin,
            self.last
        );
        while self.tail.back().is_some_and(|entry| entry.id.index >= end) {
            let entry = self.tail.pop_back().expect("looked at just now");
            self.tail_bytes -= entry.payload.len() + ENTRY_COST;
        }
        self.last = keep;
        self.caps.push_back(end);
        self.publish_flushed();
        self.ops.push(Op::Truncate(keep));
        self.ops.push(Op::Done(done));
    }

    pub(super) fn reset(&mut self, to: LogId, done: Done) {
        self.tail.clear();
        self.tail_bytes = 0;
        self.last = Some(to);
        self.purged = Some(to);
        self.begin = to.index + 1;
        self.intent = Some(to);
        self.caps.push_back(to.index + 1);
        self.publish_flushed();
        self.ops.push(Op::Reset(to));
        self.ops.push(Op::Done(done));
    }

    pub(super) fn purge(&mut self, upto: LogId) {
        assert!(
            upto.index < end_of(self.last),
            "purge up to {upto:?} behind the end {:?}: that is a reset",
            self.last
        );
        if self.intent.is_none_or(|intent| intent.index < upto.index) {
            self.intent = Some(upto);
        }
        self.maybe_purge();
    }

    pub(super) fn set_engine_durable(&mut self, index: LogIndex) {
        self.engine_durable = self.engine_durable.max(Some(index));
        self.maybe_purge();
    }

    /// Queues the removal of what the intent and the engine allow. Not while a truncation is queued: a reset
    /// may be about to purge more.
    fn maybe_purge(&mut self) {
        if !self.caps.is_empty() {
            return;
        }
        let bound = match (self.intent, self.engine_durable) {
            (Some(intent), Some(durable)) => Some(intent.index.min(durable.0)),
            _ => None,
        };
        match self.map.removable(bound) {
            Some((floor, id)) if floor > self.floor => {
                self.floor = floor;
                self.ops.push(Op::Purge { floor, id });
            }
            _ => {}
        }
    }

    // What the writer does.

    /// Swaps everything queued into `ops`, which is empty.
    pub(super) fn take(&mut self, ops: &mut Vec<Op>) -> Taken {
        std::mem::swap(&mut self.ops, ops);
        match self.stage {
            _ if !ops.is_empty() => Taken::Work,
            Stage::Open => Taken::Nothing,
            _ => Taken::End,
        }
    }

    /// Takes in the settled part of `batch`. Returns the segments to remove.
    pub(super) fn settle(&mut self, batch: &mut Batch) -> Vec<Run> {
        let mut removed = Vec::new();
        for at in 0..batch.settled {
            while let Some(roll) = batch.rolls.pop_front_if(|roll| roll.first == at) {
                self.map.set_end(roll.previous_end);
                self.map.push_run(roll.run);
            }
            removed.append(&mut self.settle_op(&batch.ops[at], batch.offsets[at]));
        }
        for roll in &mut batch.rolls {
            roll.first -= batch.settled;
        }
        batch.offsets.drain(..batch.settled);
        if batch.rolls.is_empty() {
            self.map.set_end(batch.end);
        }
        self.publish_flushed();
        while self.tail_bytes > self.tail_bytes_max
            && self
                .tail
                .front()
                .is_some_and(|entry| entry.id.index < self.flushed_end)
        {
            let entry = self.tail.pop_front().expect("looked at just now");
            self.tail_bytes -= entry.payload.len() + ENTRY_COST;
        }
        self.maybe_purge();
        removed
    }

    fn settle_op(&mut self, op: &Op, offset: u32) -> Vec<Run> {
        match op {
            Op::Entry(entry) => {
                self.map.push(entry.id, offset);
                self.written_end = entry.id.index + 1;
            }
            Op::Truncate(keep) => {
                match keep {
                    Some(id) => self.map.cut_after(*id),
                    None => self.map.clear(),
                }
                self.written_end = end_of(*keep);
                self.caps.pop_front();
            }
            Op::Reset(to) => {
                self.map.clear();
                self.written_end = to.index + 1;
                self.caps.pop_front();
                self.floor = self.map.last_seq() - 1;
                return self.map.remove_through(self.floor);
            }
            Op::Purge { floor, id } => {
                // A reset asked for meanwhile has already moved the visible log further.
                if let Some(id) = id.filter(|id| id.index >= self.begin) {
                    self.purged = Some(id);
                    self.begin = id.index + 1;
                }
                return self.map.remove_through(*floor);
            }
            Op::Vote(_) | Op::Committed(_) | Op::Done(_) => {}
        }
        Vec::new()
    }

    fn publish_flushed(&mut self) {
        let cap = self.caps.iter().copied().min().unwrap_or(u64::MAX);
        // While a truncation is queued the durable end may fall but not rise.
        self.flushed_end = match self.caps.is_empty() {
            true => self.written_end,
            false => self.flushed_end.min(cap),
        };
        let flushed = LogIndex(self.flushed_end.saturating_sub(1));
        self.flushed.send_if_modified(|held| {
            let changed = *held != flushed;
            *held = flushed;
            changed
        });
    }

    /// Nothing more is taken; what is queued is still written.
    pub(super) fn close(&mut self) {
        if matches!(self.stage, Stage::Open) {
            self.stage = Stage::Closing;
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        !matches!(self.stage, Stage::Open)
    }

    /// Nothing more is taken and nothing more is written. Returns what was queued.
    pub(super) fn fail(&mut self, error: WalError) -> Vec<Op> {
        if !matches!(self.stage, Stage::Failed(_)) {
            self.stage = Stage::Failed(error);
        }
        std::mem::take(&mut self.ops)
    }

    // What readers ask for.

    /// Entries from `first` on: at most `entries`, and at most `bytes` of payload after the first.
    pub(super) fn look(&self, first: u64, entries: usize, bytes: usize) -> Found {
        if first >= end_of(self.last) {
            return Found::End;
        }
        if first < self.begin {
            return Found::Purged;
        }
        let tail_first = self.tail.front().map_or(end_of(self.last), |e| e.id.index);
        if first < tail_first {
            let before_tail = usize::try_from(tail_first - first).unwrap_or(usize::MAX);
            let region = self.map.locate(first, entries.min(before_tail), bytes);
            return Found::Disk(region.expect("an entry is in the tail or on disk"));
        }
        let mut found = Vec::new();
        let mut size = 0usize;
        for entry in self.tail.range((first - tail_first) as usize..) {
            size = size.saturating_add(entry.payload.len());
            if found.len() == entries || (size > bytes && !found.is_empty()) {
                break;
            }
            found.push((entry.id, entry.payload.clone()));
        }
        Found::Memory(found)
    }

    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(super) fn intent(&self) -> Option<LogId> {
        self.intent
    }

    pub(super) fn flushed(&self) -> &watch::Sender<LogIndex> {
        &self.flushed
    }

    pub(super) fn bytes(&self) -> u64 {
        self.map.bytes()
    }

    pub(super) fn segments(&self) -> usize {
        self.map.segments()
    }
}
