//! Room storage, state: what is applied and not yet in the engine, cut by log index. Pure data.

use crate::engine::{RecordKey, RowChange};
use std::collections::VecDeque;
use tenon_proto::log::LogId;

/// Memory a waiting row takes beside its bytes.
const ROW_OVERHEAD: usize = size_of::<RowChange>();

/// What an entry takes in the log beside its commands, about.
const ENTRY_OVERHEAD: usize = 96;

/// The state after one entry, as far as a drain must know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The entry.
    pub id: LogId,
    /// The store's revision after it: its records, and those before, have main at or below.
    pub revision: i64,
    /// The newest compaction after it.
    pub compacted: i64,
    /// Rows queued up to it, counted since the store was opened.
    rows_end: u64,
    /// Bytes queued up to it, likewise.
    bytes_end: u64,
}

impl Mark {
    /// The mark of what the engine held at open.
    pub(crate) fn durable(id: LogId, revision: i64, compacted: i64) -> Mark {
        Mark {
            id,
            revision,
            compacted,
            rows_end: 0,
            bytes_end: 0,
        }
    }
}

/// A record that compaction passed, to be removed from the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    /// The record.
    pub key: RecordKey,
    /// The entry of the compaction: only an engine that has it may lose the record.
    pub after: u64,
}

/// Queues in the order of the log.
///
/// - Marks ascend by index; a mark covers all records and rows queued before it and after the former.
/// - Records themselves wait in [`crate::mvcc::recent::Recent`].
#[derive(Debug, Default)]
pub(crate) struct Pending {
    marks: VecDeque<Mark>,
    rows: VecDeque<RowChange>,
    rows_base: u64,
    row_bytes: usize,
    bytes_total: u64,
    bytes_base: u64,
    removals: VecDeque<Removal>,
    /// A compaction whose every removal stands in the queue before this many.
    sweep_done: Option<(i64, usize)>,
}

/// A cut through the queues that one batch takes to the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The state the engine will be at.
    pub mark: Mark,
    marks: usize,
    /// Rows from the front.
    pub rows: usize,
    /// Removals from the front.
    pub removals: usize,
    /// A compaction that is completely removed with this batch.
    pub swept: Option<i64>,
    /// Bytes of its records, rows and entries, about.
    pub bytes: u64,
}

impl Pending {
    /// Queues a row.
    pub(crate) fn push_row(&mut self, row: RowChange) {
        let size = row.key.len() + row.value.as_ref().map_or(0, |v| v.len()) + ROW_OVERHEAD;
        self.row_bytes += size;
        self.bytes_total += size as u64;
        self.rows.push_back(row);
    }

    /// Counts a record queued beside.
    pub(crate) fn count_record(&mut self, bytes: usize) {
        self.bytes_total += bytes as u64;
    }

    /// Closes an entry.
    pub(crate) fn push_mark(&mut self, id: LogId, revision: i64, compacted: i64) {
        let rows_end = self.rows_base + self.rows.len() as u64;
        let bytes_end = self.bytes_total;
        self.marks.push_back(Mark {
            id,
            revision,
            compacted,
            rows_end,
            bytes_end,
        });
    }

    /// Queues removals of a compaction.
    pub(crate) fn push_removals(&mut self, removals: impl Iterator<Item = Removal>) {
        self.removals.extend(removals);
    }

    /// Tells that every removal of the compaction at `revision` has been queued.
    pub(crate) fn finish_sweep(&mut self, revision: i64) {
        self.sweep_done = Some((revision, self.removals.len()));
    }

    /// Removals that wait.
    pub(crate) fn removals(&self) -> usize {
        self.removals.len()
    }

    /// Whether a drain up to the flushed index `flushed` would do anything; `durable` is the engine's
    /// position.
    pub(crate) fn has_work(&self, flushed: u64, durable: u64) -> bool {
        let mark = self
            .marks
            .front()
            .is_some_and(|mark| mark.id.index <= flushed);
        let removal = self
            .removals
            .front()
            .is_some_and(|removal| removal.after <= durable);
        mark || removal || self.sweep_done.is_some_and(|(_, left)| left == 0)
    }

    /// The cut at the newest mark at or below `flushed`, but not more than about `bytes_max` and
    /// `removals_max`. `at` is the engine's own position, for a batch of removals alone.
    pub(crate) fn cut(
        &self,
        flushed: u64,
        at: Option<Mark>,
        bytes_max: u64,
        removals_max: usize,
    ) -> Option<Cut> {
        let within = |mark: &&Mark| {
            mark.id.index <= flushed && mark.bytes_end <= self.bytes_base + bytes_max
        };
        let mut marks = self.marks.iter().take_while(within).count();
        if marks == 0
            && self
                .marks
                .front()
                .is_some_and(|mark| mark.id.index <= flushed)
        {
            marks = 1;
        }
        let mark = if marks > 0 {
            self.marks[marks - 1]
        } else {
            at?
        };
        let rows = mark.rows_end.saturating_sub(self.rows_base) as usize;
        let ready = |removal: &&Removal| {
            removal.after <= mark.id.index && removal.key.main <= mark.revision
        };
        let removals = self
            .removals
            .iter()
            .take(removals_max)
            .take_while(ready)
            .count();
        let swept = self
            .sweep_done
            .filter(|(_, left)| *left <= removals)
            .map(|(at, _)| at);
        let idle = marks == 0 && removals == 0 && swept.is_none();
        (!idle).then_some(Cut {
            mark,
            marks,
            rows,
            removals,
            swept,
            bytes: mark.bytes_end.saturating_sub(self.bytes_base) + (marks * ENTRY_OVERHEAD) as u64,
        })
    }

    /// The rows of a cut, in order.
    pub(crate) fn rows_of(&self, cut: &Cut) -> impl Iterator<Item = &RowChange> {
        self.rows.range(..cut.rows)
    }

    /// The removals of a cut.
    pub(crate) fn removals_of(&self, cut: &Cut) -> impl Iterator<Item = RecordKey> {
        self.removals
            .range(..cut.removals)
            .map(|removal| removal.key)
    }

    /// Drops what a cut took to the engine.
    pub(crate) fn drop_cut(&mut self, cut: &Cut) {
        self.marks.drain(..cut.marks);
        if cut.marks > 0 {
            self.bytes_base = cut.mark.bytes_end;
        }
        for row in self.rows.drain(..cut.rows) {
            self.row_bytes -=
                row.key.len() + row.value.as_ref().map_or(0, |v| v.len()) + ROW_OVERHEAD;
        }
        self.rows_base += cut.rows as u64;
        self.removals.drain(..cut.removals);
        if let Some((at, left)) = self.sweep_done {
            self.sweep_done = match cut.swept {
                Some(swept) if swept == at => None,
                _ => Some((at, left - cut.removals)),
            };
        }
    }

    /// Bytes of rows that wait.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}
