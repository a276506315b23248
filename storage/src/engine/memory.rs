//! Room storage, engines: the engine of tests and of the first start in a simulator: nothing survives.
//! Passes the same conformance suite as the durable ones.

use super::{
    Batch, Engine, EngineError, EngineSize, RECORD_COST, RecordKey, RevisionStore, Table, Tables,
    View, Visit,
};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Default)]
struct Content {
    records: BTreeMap<(i64, u32), (bool, Bytes)>,
    rows: BTreeMap<(Table, Bytes), Bytes>,
}

/// An engine without a disk. A view shares the content until the next commit copies it, so it suits
/// small data only.
#[derive(Default)]
pub struct MemoryEngine {
    content: RwLock<Arc<Content>>,
    removed_bytes: AtomicU64,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> MemoryEngine {
        MemoryEngine::default()
    }
}

impl Engine for MemoryEngine {
    fn view(&self) -> Result<Arc<dyn View>, EngineError> {
        Ok(Arc::new(MemoryView(self.content.read().clone())))
    }

    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        let mut guard = self.content.write();
        let content = Arc::make_mut(&mut guard);
        for (key, value) in &batch.records {
            content
                .records
                .insert(key.position(), (key.tombstone, value.clone()));
        }
        for key in &batch.removed {
            if let Some((_, value)) = content.records.remove(&key.position()) {
                self.removed_bytes
                    .fetch_add(value.len() as u64 + RECORD_COST, Ordering::Relaxed);
            }
        }
        for row in &batch.rows {
            let key = (row.table, row.key.clone());
            match &row.value {
                Some(value) => content.rows.insert(key, value.clone()),
                None => content.rows.remove(&key),
            };
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn close(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn size(&self) -> EngineSize {
        let content = self.content.read();
        let records: usize = content.records.values().map(|(_, v)| v.len() + 18).sum();
        let rows: usize = content
            .rows
            .iter()
            .map(|((_, k), v)| k.len() + v.len())
            .sum();
        EngineSize {
            allocated: (records + rows) as u64,
            removed_bytes: self.removed_bytes.load(Ordering::Relaxed),
        }
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

struct MemoryView(Arc<Content>);

impl View for MemoryView {}

impl RevisionStore for MemoryView {
    fn record(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError> {
        let found = self.0.records.get(&key.position());
        Ok(found
            .filter(|(tombstone, _)| *tombstone == key.tombstone)
            .map(|(_, v)| v.clone()))
    }

    fn scan(&self, from: (i64, u32), to: (i64, u32), visit: Visit<'_>) -> Result<(), EngineError> {
        if from >= to {
            return Ok(());
        }
        for ((main, sub), (tombstone, value)) in self.0.records.range(from..to) {
            let key = RecordKey {
                main: *main,
                sub: *sub,
                tombstone: *tombstone,
            };
            if let ControlFlow::Break(()) = visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl Tables for MemoryView {
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self
            .0
            .rows
            .get(&(table, Bytes::copy_from_slice(key)))
            .cloned())
    }

    fn rows(&self, table: Table) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let from = (table, Bytes::new());
        let rows = self
            .0
            .rows
            .range(from..)
            .take_while(|((t, _), _)| *t == table);
        Ok(rows.map(|((_, k), v)| (k.clone(), v.clone())).collect())
    }
}
