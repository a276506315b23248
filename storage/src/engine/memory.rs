//! Room storage, engines: records in memory. With a checkpoint and the log it is as durable as the others
//! (`--storage-engine memory`); without a disk it serves tests.

use super::volatile::{RecordHome, VolatileEngine};
use super::{EngineError, RecordKey};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a record beside its value.
const RECORD_OVERHEAD: usize = 64;

/// An engine whose records stand in memory.
pub type MemoryEngine = VolatileEngine<MemoryHome>;

/// Records in memory.
#[derive(Default)]
pub struct MemoryHome {
    records: RwLock<BTreeMap<(i64, u32), (bool, Bytes)>>,
    bytes: AtomicU64,
}

/// An empty engine in memory.
pub fn engine() -> MemoryEngine {
    VolatileEngine::new(MemoryHome::default())
}

fn cost(value: &Bytes) -> u64 {
    (value.len() + RECORD_OVERHEAD) as u64
}

impl RecordHome for MemoryHome {
    fn get(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError> {
        let records = self.records.read();
        let found = records.get(&key.position());
        Ok(found
            .filter(|(tombstone, _)| *tombstone == key.tombstone)
            .map(|(_, value)| value.clone()))
    }

    fn some(
        &self,
        from: (i64, u32),
        to: (i64, u32),
        limit: usize,
    ) -> Result<Vec<(RecordKey, Bytes)>, EngineError> {
        let records = self.records.read();
        let range = records.range(from..to).take(limit);
        Ok(range
            .map(|((main, sub), (tombstone, value))| {
                let key = RecordKey {
                    main: *main,
                    sub: *sub,
                    tombstone: *tombstone,
                };
                (key, value.clone())
            })
            .collect())
    }

    fn insert(&self, new: &[(RecordKey, Bytes)]) -> Result<(), EngineError> {
        let mut records = self.records.write();
        for (key, value) in new {
            // A copy of its own: these bytes may be a small part of a large buffer.
            let value = Bytes::copy_from_slice(value);
            self.bytes.fetch_add(cost(&value), Ordering::Relaxed);
            let old = records.insert(key.position(), (key.tombstone, value));
            if let Some((_, old)) = old {
                self.bytes.fetch_sub(cost(&old), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn remove(&self, keys: &[RecordKey]) -> Result<(), EngineError> {
        let mut records = self.records.write();
        for key in keys {
            if let Some((_, value)) = records.remove(&key.position()) {
                self.bytes.fetch_sub(cost(&value), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn allocated(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}
