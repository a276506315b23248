//! Room `storage`, WAL: where each entry stands on disk: four bytes per entry and one [`Run`] per segment.
//! Pure bookkeeping over written entries; entries still queued are the tail's.
//!
//! - Within a run the entries have consecutive indexes and ascending offsets.
//! - The runs, empty ones aside, follow one another without a gap.
//! - The last run belongs to the segment being written, once there is one.

use super::frame::Binding;
use std::collections::VecDeque;
use std::sync::Arc;
use tenon_env::File;
use tenon_proto::log::LogId;

/// The live entries of one segment.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) seq: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) binding: Binding,
    /// Bytes of the segment in use: header and frames.
    pub(super) bytes: u64,
    /// Index of the first live entry; meaningless while there is none.
    first: u64,
    offsets: Vec<u32>,
    /// Id of the last live entry.
    last: Option<LogId>,
}

impl Run {
    pub(super) fn new(seq: u64, file: Arc<dyn File>, binding: Binding) -> Run {
        Run {
            seq,
            file,
            binding,
            bytes: 0,
            first: 0,
            offsets: Vec::new(),
            last: None,
        }
    }

    /// Index of the first live entry.
    pub(super) fn first(&self) -> Option<u64> {
        self.last.map(|_| self.first)
    }

    pub(super) fn push(&mut self, id: LogId, offset: u32) {
        match self.last {
            None => self.first = id.index,
            Some(last) => assert_eq!(id.index, last.index + 1, "a gap in the written log"),
        }
        self.offsets.push(offset);
        self.last = Some(id);
    }

    /// Forgets the entries after `id`.
    pub(super) fn cut_after(&mut self, id: LogId) {
        match self.last {
            Some(last) if last.index > id.index && id.index >= self.first => {
                self.offsets.truncate((id.index + 1 - self.first) as usize);
                self.last = Some(id);
            }
            Some(last) if last.index > id.index => self.clear(),
            _ => {}
        }
    }

    /// Forgets all entries.
    pub(super) fn clear(&mut self) {
        self.offsets.clear();
        self.last = None;
    }
}

/// A stretch of one segment to read entries from.
pub(super) struct Region {
    pub(super) seq: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) binding: Binding,
    /// Index of the entry at the first offset.
    pub(super) first: u64,
    /// Offsets of consecutive entries, ascending, never empty.
    pub(super) offsets: Vec<u32>,
}

/// Where every written, live entry stands.
#[derive(Debug, Default)]
pub(super) struct LogMap {
    runs: VecDeque<Run>,
}

impl LogMap {
    /// Index of the first entry, or `None` when there is none.
    pub(super) fn first(&self) -> Option<u64> {
        self.runs.iter().find_map(Run::first)
    }

    /// Begins the run of the next segment.
    pub(super) fn push_run(&mut self, run: Run) {
        if let Some(last) = self.runs.back() {
            assert_eq!(run.seq, last.seq + 1, "segments follow one another");
        }
        self.runs.push_back(run);
    }

    /// An entry was written at `offset` of the last segment.
    pub(super) fn push(&mut self, id: LogId, offset: u32) {
        let run = self
            .runs
            .back_mut()
            .expect("entries come after their segment");
        run.push(id, offset);
    }

    /// Forgets the entries after `id`.
    pub(super) fn cut_after(&mut self, id: LogId) {
        for run in self.runs.iter_mut().rev() {
            run.cut_after(id);
            if run.last.is_some() {
                break;
            }
        }
    }

    /// Forgets all entries.
    pub(super) fn clear(&mut self) {
        self.runs.iter_mut().for_each(Run::clear);
    }

    /// The last segment, and the id of the last entry, that may go when entries up to index `bound` may:
    /// never the last segment of all. The id is `None` when only segments without entries go.
    pub(super) fn removable(&self, bound: Option<u64>) -> Option<(u64, Option<LogId>)> {
        let sealed = self.runs.len().saturating_sub(1);
        let mut found = None;
        let mut id = None;
        for run in self.runs.iter().take(sealed) {
            match run.last {
                Some(last) if bound.is_none_or(|bound| last.index > bound) => break,
                Some(last) => id = Some(last),
                None => {}
            }
            found = Some((run.seq, id));
        }
        found
    }

    /// Takes out the runs up to segment `floor`.
    pub(super) fn remove_through(&mut self, floor: u64) -> Vec<Run> {
        let count = self.runs.iter().take_while(|run| run.seq <= floor).count();
        self.runs.drain(..count).collect()
    }

    /// The stretch that holds `first` and at most `entries - 1` after it in the same segment, all beginning
    /// within `bytes` of it. `None` when the entry is not here.
    pub(super) fn locate(&self, first: u64, entries: usize, bytes: usize) -> Option<Region> {
        let run = self.runs.iter().find(|run| {
            run.last
                .is_some_and(|last| run.first <= first && first <= last.index)
        })?;
        let from = &run.offsets[(first - run.first) as usize..];
        let from = &from[..from.len().min(entries.max(1))];
        let near = from.partition_point(|offset| ((offset - from[0]) as usize) < bytes.max(1));
        Some(Region {
            seq: run.seq,
            file: run.file.clone(),
            binding: run.binding,
            first,
            offsets: from[..near].to_vec(),
        })
    }

    /// The last segment reaches to offset `bytes` now.
    pub(super) fn set_end(&mut self, bytes: u64) {
        if let Some(run) = self.runs.back_mut() {
            run.bytes = bytes;
        }
    }

    /// Number of the last segment; 0 before the first.
    pub(super) fn last_seq(&self) -> u64 {
        self.runs.back().map_or(0, |run| run.seq)
    }

    /// Segments, the one being written included.
    pub(super) fn segments(&self) -> usize {
        self.runs.len()
    }

    /// Bytes in use in all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// Checks the rule that runs follow one another, from `start` (the index the log must begin at, when
    /// known) to `last`. Returns the index at which the chain breaks.
    pub(super) fn broken_at(&self, start: Option<u64>, last: Option<LogId>) -> Option<u64> {
        let mut next = start;
        for run in self.runs.iter().filter(|run| run.last.is_some()) {
            if next.is_some_and(|next| next != run.first) {
                return next;
            }
            next = run.last.map(|last| last.index + 1);
        }
        match (next, last) {
            (Some(next), Some(last)) if next != last.index + 1 => Some(next),
            (None, Some(last)) => Some(last.index),
            _ => None,
        }
    }
}
