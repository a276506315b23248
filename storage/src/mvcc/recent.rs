//! Room storage, MVCC: the newest records, in memory. First home of every record, and for a while
//! after the engine has it, its cache.

use crate::engine::RecordKey;
use bytes::Bytes;
use std::collections::VecDeque;

/// Memory beside the bytes of one record: its place in the queue.
const RECORD_OVERHEAD: usize = size_of::<(RecordKey, Bytes)>();

/// A queue of records in ascending order.
///
/// ```text
///   front                drained                back
///   | in the engine, cached | not yet in the engine |
/// ```
///
/// - The undrained part is never let go.
/// - The drained part is let go from the front when all of it exceeds the bound.
#[derive(Debug)]
pub struct Recent {
    records: VecDeque<(RecordKey, Bytes)>,
    /// How many from the front are in the engine.
    drained: usize,
    bytes: usize,
    undrained_bytes: usize,
    bytes_max: usize,
}

impl Recent {
    /// An empty queue that caches up to `bytes_max` of drained records.
    pub fn new(bytes_max: usize) -> Recent {
        let records = VecDeque::new();
        Recent {
            records,
            drained: 0,
            bytes: 0,
            undrained_bytes: 0,
            bytes_max,
        }
    }

    /// Adds the newest record.
    pub fn push(&mut self, key: RecordKey, value: Bytes) {
        if let Some((last, _)) = self.records.back() {
            assert!(last.position() < key.position(), "records ascend");
        }
        let size = value.len() + RECORD_OVERHEAD;
        self.bytes += size;
        self.undrained_bytes += size;
        self.records.push_back((key, value));
    }

    /// The record at that position, when it is still here.
    pub fn get(&self, key: RecordKey) -> Option<&Bytes> {
        let first = self.records.front()?;
        if key.position() < first.0.position() {
            return None;
        }
        let at = self
            .records
            .binary_search_by(|(k, _)| k.position().cmp(&key.position()))
            .ok()?;
        Some(&self.records[at].1)
    }

    /// Bytes the engine does not have yet.
    pub fn undrained_bytes(&self) -> usize {
        self.undrained_bytes
    }

    /// All bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Undrained records below `end` (main and sub), ascending.
    pub fn undrained(&self, end: (i64, u32)) -> impl Iterator<Item = &(RecordKey, Bytes)> {
        self.records
            .range(self.drained..)
            .take_while(move |(key, _)| key.position() < end)
    }

    /// Records from `from` on that are here, ascending.
    pub fn from(&self, from: (i64, u32)) -> impl Iterator<Item = &(RecordKey, Bytes)> {
        let start = self
            .records
            .partition_point(|(key, _)| key.position() < from);
        self.records.range(start..)
    }

    /// Position of the oldest record here.
    pub fn first(&self) -> Option<(i64, u32)> {
        self.records.front().map(|(key, _)| key.position())
    }

    /// Tells that the engine has every record below `end`; answers what leaves the memory, for the
    /// caller to free outside of its lock.
    #[must_use]
    pub fn drain(&mut self, end: (i64, u32)) -> Vec<(RecordKey, Bytes)> {
        while let Some((key, value)) = self.records.get(self.drained)
            && key.position() < end
        {
            self.undrained_bytes -= value.len() + RECORD_OVERHEAD;
            self.drained += 1;
        }
        let mut gone = 0;
        let mut bytes = self.bytes;
        for (_, value) in self.records.range(..self.drained) {
            if bytes <= self.bytes_max {
                break;
            }
            bytes -= value.len() + RECORD_OVERHEAD;
            gone += 1;
        }
        self.bytes = bytes;
        self.drained -= gone;
        self.records.drain(..gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(main: i64) -> RecordKey {
        RecordKey {
            main,
            sub: 0,
            tombstone: false,
        }
    }

    #[test]
    fn undrained_records_stay_and_drained_ones_leave_beyond_the_bound() {
        let size = 100 + RECORD_OVERHEAD;
        let mut recent = Recent::new(3 * size);
        for main in 2..12 {
            recent.push(key(main), vec![main as u8; 100].into());
        }
        assert_eq!(recent.undrained_bytes(), 10 * size);
        assert!(recent.drain((2, 0)).is_empty());
        let gone = recent.drain((8, 0));
        // Ten were held, four are undrained and must stay although the bound is three.
        assert_eq!(
            gone.iter().map(|(k, _)| k.main).collect::<Vec<_>>(),
            [2, 3, 4, 5, 6, 7]
        );
        assert_eq!(
            (recent.bytes(), recent.undrained_bytes()),
            (4 * size, 4 * size)
        );
        assert_eq!(recent.get(key(7)), None);
        assert_eq!(recent.get(key(8)).map(|v| v[0]), Some(8));
        assert_eq!(recent.undrained((10, 0)).count(), 2);
        assert_eq!(recent.drain((100, 0)).len(), 1);
        assert_eq!(
            recent.from((0, 0)).map(|(k, _)| k.main).collect::<Vec<_>>(),
            [9, 10, 11]
        );
        assert_eq!(
            (recent.first(), recent.undrained_bytes()),
            (Some((9, 0)), 0)
        );
    }

    #[test]
    #[should_panic(expected = "records ascend")]
    fn order_is_asserted() {
        let mut recent = Recent::new(0);
        recent.push(key(5), Bytes::new());
        recent.push(key(5), Bytes::new());
    }
}
