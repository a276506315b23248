//! Room storage, MVCC: HashKV, the sum over the key space that two members can compare whatever stage
//! their removals are at. Pure; equal to etcd's for equal records.

use crate::engine::RecordKey;

/// Computes HashKV at one revision from all records in ascending order.
///
/// The sum is CRC-32C over `key`, then key and value bytes of every record with main at or below
/// the revision, except
/// - those at or below the compaction revision that are not in the keep set (the pairs live at the
///   hashed revision; when there is none, those live at the compaction), because their removal may
///   or may not have happened;
/// - a tombstone at exactly the compaction revision, which old versions removed.
#[derive(Debug)]
pub struct HashKv {
    revision: i64,
    compacted: i64,
    /// Ascending; only those at or below `compacted` matter.
    keep: Vec<RecordKey>,
    next: usize,
    sum: u32,
}

impl HashKv {
    /// Starts a sum at `revision` with the store compacted at `compacted` (-1 = never). `keep` holds
    /// the records of the keep set at or below `compacted`, in any order.
    pub fn new(revision: i64, compacted: i64, mut keep: Vec<RecordKey>) -> HashKv {
        keep.sort_unstable();
        let sum = crc32c::crc32c(b"key");
        HashKv {
            revision,
            compacted,
            keep,
            next: 0,
            sum,
        }
    }

    /// Adds the next record.
    pub fn record(&mut self, key: RecordKey, value: &[u8]) {
        if key.main > self.revision {
            return;
        }
        if key.main <= self.compacted && !self.is_kept(key) {
            return;
        }
        if key.main == self.compacted && key.tombstone {
            return;
        }
        self.sum = crc32c::crc32c_append(self.sum, &key.to_bytes());
        self.sum = crc32c::crc32c_append(self.sum, value);
    }

    fn is_kept(&mut self, key: RecordKey) -> bool {
        while self.keep.get(self.next).is_some_and(|kept| *kept < key) {
            self.next += 1;
        }
        self.keep.get(self.next) == Some(&key)
    }

    /// The sum.
    pub fn finish(self) -> u32 {
        self.sum
    }
}
