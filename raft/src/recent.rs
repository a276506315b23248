//! Room `raft`: the newest log entries, decoded, so that apply and replication do not read and decode again
//! what was just appended. A window over the end of the log, bounded in bytes; memory only.
//!
//! - The entries are consecutive.
//! - An entry that is missing here is read from the WAL; nothing relies on its being here.

use crate::types::Entry;
use std::collections::VecDeque;

/// Counted per entry on top of its bytes.
const ENTRY_OVERHEAD: usize = 128;

/// The window.
pub(crate) struct Recent {
    first: u64,
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl Recent {
    pub(crate) fn new(bytes_max: usize) -> Recent {
        Recent {
            first: 0,
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Adds the log's new last entry.
    pub(crate) fn push(&mut self, entry: Entry, encoded_len: usize) {
        let index = entry.id().index;
        if index != self.next() {
            self.clear();
            self.first = index;
        }
        // Decoded commands share most of their bytes with the request they came in, not with the
        // encoding: count both.
        let cost = 2 * encoded_len + ENTRY_OVERHEAD;
        self.bytes += cost;
        self.entries.push_back((entry, cost));
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) {
        if let Some((_, cost)) = self.entries.pop_front() {
            self.bytes -= cost;
            self.first += 1;
        }
    }

    /// Forgets entries up to `index`.
    pub(crate) fn drop_through(&mut self, index: u64) {
        while !self.entries.is_empty() && self.first <= index {
            self.pop_front();
        }
    }

    /// Forgets entries from `index` on.
    pub(crate) fn drop_from(&mut self, index: u64) {
        while self.next() > index {
            match self.entries.pop_back() {
                Some((_, cost)) => self.bytes -= cost,
                None => break,
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Entries of `start..end` from `start` on, at least one, as far as they are here and take no more than
    /// `bytes_max` in this window's counting; `None` when `start` is not here.
    pub(crate) fn range(&self, start: u64, end: u64, bytes_max: usize) -> Option<Vec<Entry>> {
        if start < self.first || start >= self.next() {
            return None;
        }
        let skip = usize::try_from(start - self.first).ok()?;
        let count = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut found = Vec::with_capacity(count.min(self.entries.len() - skip));
        let mut bytes = 0;
        for (entry, cost) in self.entries.iter().skip(skip).take(count) {
            if bytes + cost > bytes_max && !found.is_empty() {
                break;
            }
            bytes += cost;
            found.push(entry.clone());
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LogId, Payload};
    use openraft::entry::{RaftEntry, RaftPayload};

    fn entry(index: u64) -> Entry {
        Entry::new(LogId::new_term_index(1, index), Payload::blank())
    }

    fn window(bytes_max: usize, indexes: impl IntoIterator<Item = u64>) -> Recent {
        let mut recent = Recent::new(bytes_max);
        indexes.into_iter().for_each(|i| recent.push(entry(i), 36));
        recent
    }

    fn found(recent: &Recent, start: u64, end: u64, bytes_max: usize) -> Option<Vec<u64>> {
        let entries = recent.range(start, end, bytes_max)?;
        Some(entries.iter().map(|e| e.id().index).collect())
    }

    #[test]
    fn the_window_slides_by_bytes_and_answers_only_what_it_holds() {
        // Each entry counts 200.
        let recent = window(1000, 0..20);
        assert_eq!(found(&recent, 14, 20, usize::MAX), None);
        assert_eq!(found(&recent, 15, 99, usize::MAX), Some((15..20).collect()));
        assert_eq!(found(&recent, 16, 18, usize::MAX), Some(vec![16, 17]));
        assert_eq!(found(&recent, 16, 20, 400), Some(vec![16, 17]));
        assert_eq!(found(&recent, 16, 20, 1), Some(vec![16]));
        assert_eq!(found(&recent, 20, 21, usize::MAX), None);
    }

    #[test]
    fn cuts_at_both_ends_and_a_gap_begin_anew() {
        let mut recent = window(100_000, 5..15);
        recent.drop_through(6);
        recent.drop_from(12);
        assert_eq!(found(&recent, 6, 20, usize::MAX), None);
        assert_eq!(found(&recent, 7, 20, usize::MAX), Some((7..12).collect()));
        recent.push(entry(30), 36);
        assert_eq!(found(&recent, 7, 20, usize::MAX), None);
        assert_eq!(found(&recent, 30, 31, usize::MAX), Some(vec![30]));
        recent.drop_through(100);
        recent.push(entry(101), 36);
        assert_eq!(found(&recent, 101, 102, usize::MAX), Some(vec![101]));
        assert_eq!(recent.bytes, 200);
    }
}
