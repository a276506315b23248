//! Room storage, MVCC: records read back from the engine, a small bounded cache. Records never change,
//! so nothing here is ever wrong, only unneeded.

use crate::engine::RecordKey;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Memory beside the bytes of one record: its places in map and queue, and its allocation.
const RECORD_OVERHEAD: usize = 160;

#[derive(Debug, Default)]
struct Held {
    records: BTreeMap<(i64, u32), Entry>,
    order: VecDeque<(i64, u32)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    value: Bytes,
    /// Read since it came or came round: it gets one more round.
    used: bool,
}

/// A cache that lets go in order of arrival, giving what was read meanwhile a second round.
#[derive(Debug)]
pub struct ReadCache {
    held: Mutex<Held>,
    bytes_max: usize,
}

impl ReadCache {
    /// A cache of up to `bytes_max`; 0 keeps nothing.
    pub fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            held: Mutex::default(),
            bytes_max,
        }
    }

    /// The record, when it is here.
    pub fn get(&self, key: RecordKey) -> Option<Bytes> {
        let mut held = self.held.lock();
        let entry = held.records.get_mut(&key.position())?;
        entry.used = true;
        Some(entry.value.clone())
    }

    /// Keeps a record read from the engine. Values above a sixteenth of the bound are not kept.
    pub fn put(&self, key: RecordKey, value: &Bytes) {
        let size = value.len() + RECORD_OVERHEAD;
        if size > self.bytes_max / 16 {
            return;
        }
        let mut held = self.held.lock();
        let entry = Entry {
            value: value.clone(),
            used: false,
        };
        if held.records.insert(key.position(), entry).is_some() {
            return;
        }
        held.order.push_back(key.position());
        held.bytes += size;
        while held.bytes > self.bytes_max {
            held.let_one_go();
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.held.lock().bytes
    }
}

impl Held {
    fn let_one_go(&mut self) {
        let Some(position) = self.order.pop_front() else {
            return;
        };
        let entry = self
            .records
            .get_mut(&position)
            .expect("queue and map hold the same");
        if entry.used {
            entry.used = false;
            self.order.push_back(position);
            return;
        }
        self.bytes -= entry.value.len() + RECORD_OVERHEAD;
        self.records.remove(&position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_read() {
        let cache = ReadCache::new(100 * (40 + RECORD_OVERHEAD));
        let key = |main| RecordKey {
            main,
            sub: 0,
            tombstone: false,
        };
        for main in 0..1000 {
            cache.put(key(main), &vec![main as u8; 40].into());
            assert!(cache.get(key(0)).is_some(), "read every time: stays");
            assert!(cache.bytes() <= 100 * (40 + RECORD_OVERHEAD));
        }
        assert!(cache.get(key(999)).is_some());
        assert_eq!(cache.get(key(500)), None);
        cache.put(key(5000), &vec![0; 4000].into());
        assert_eq!(cache.get(key(5000)), None, "too large to keep");
    }
}
