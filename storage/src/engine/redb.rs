//! Room storage, engines: redb 4 over `env`'s disk. Every commit is immediate, two-phase and saves the
//! allocator's state (quick repair), so that opening after a kill takes no time.
//!
//! A file is read whole when it is opened, each page checked against the sum that its parent keeps of it: what
//! changed since redb wrote it is refused, not served.
//!
//! redb reuses room but never gives it back to the file system; with steady compaction the file levels
//! off.

use super::disk::DiskBackend;
use super::{
    Batch, Engine, EngineError, EngineSize, RECORD_COST, RecordKey, RevisionStore, Table, Tables,
    View, Visit, VisitRow,
};
use bytes::Bytes;
use parking_lot::RwLock;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tenon_env::{Disk, OpenMode};

type Raw = TableDefinition<'static, &'static [u8], &'static [u8]>;

const RECORDS: Raw = TableDefinition::new("key");

fn definition(table: Table) -> Raw {
    TableDefinition::new(table.name())
}

/// An open redb file.
pub struct RedbEngine {
    /// `None` once it is closed.
    database: RwLock<Option<Database>>,
    backend: DiskBackend,
    removed_bytes: AtomicU64,
}

fn failed(error: impl std::fmt::Display) -> EngineError {
    EngineError::Failed(error.to_string())
}

/// Gives a whole and durable file its name, replacing what stood there: a power cut leaves the one or the
/// other. Who has the file open goes on with it.
pub fn put_in_place(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), EngineError> {
    disk.rename(from, to).map_err(failed)?;
    disk.sync_dir(to.parent().unwrap_or(Path::new(".")))
        .map_err(failed)
}

fn closed() -> EngineError {
    EngineError::Failed("the storage engine is closed".into())
}

impl RedbEngine {
    /// Opens the file at `path`, made first when absent, with a page cache of `cache_bytes`.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        cache_bytes: usize,
    ) -> Result<RedbEngine, EngineError> {
        if disk.stat(path).map_err(failed)?.is_none() {
            let unfinished = path.with_extension("new");
            let engine = RedbEngine::create(disk, &unfinished, cache_bytes)?;
            put_in_place(disk, &unfinished, path)?;
            return Ok(engine);
        }
        // A process killed right after the rename left a name that a power cut may still take.
        disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
            .map_err(failed)?;
        RedbEngine::open_file(disk, path, OpenMode::ReadWrite, cache_bytes)
    }

    /// Makes a file with its tables, durably but for its name; whatever stood there is removed.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        cache_bytes: usize,
    ) -> Result<RedbEngine, EngineError> {
        if disk.stat(path).map_err(failed)?.is_some() {
            disk.remove_file(path).map_err(failed)?;
        }
        let engine = RedbEngine::open_file(disk, path, OpenMode::CreateNew, cache_bytes)?;
        engine.make_tables()?;
        Ok(engine)
    }

    fn open_file(
        disk: &dyn Disk,
        path: &Path,
        mode: OpenMode,
        cache_bytes: usize,
    ) -> Result<RedbEngine, EngineError> {
        let file = disk.open(path, mode).map_err(failed)?;
        let backend = DiskBackend::new(file).map_err(failed)?;
        let damaged = |what: String| EngineError::Damaged(format!("{}: {what}", path.display()));
        let there = mode == OpenMode::ReadWrite;
        if there && backend.length() == 0 {
            // redb would take it for a new one.
            return Err(damaged("the file is empty".to_owned()));
        }
        let opened = Database::builder()
            .set_cache_size(cache_bytes)
            .set_check_integrity_on_open(there)
            .create_with_backend(backend.clone())
            .map_err(|error| damaged(error.to_string()));
        if let Some(refused) = backend.held_back() {
            return Err(EngineError::Stalled(refused));
        }
        let removed_bytes = AtomicU64::new(0);
        Ok(RedbEngine {
            database: RwLock::new(Some(opened?)),
            backend,
            removed_bytes,
        })
    }

    fn make_tables(&self) -> Result<(), EngineError> {
        self.write(|writing| {
            writing.open_table(RECORDS)?;
            for table in Table::ALL {
                writing.open_table(definition(table))?;
            }
            Ok(())
        })
    }

    /// One transaction; durable when this returns `Ok`.
    fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), EngineError> {
        if let Some(refused) = self.backend.held_back() {
            return Err(EngineError::Stalled(refused));
        }
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(closed)?;
        let mut writing = database.begin_write().map_err(failed)?;
        writing
            .set_durability(Durability::Immediate)
            .map_err(failed)?;
        writing.set_quick_repair(true);
        change(&writing).map_err(failed)?;
        writing.commit().map_err(failed)?;
        match self.backend.held_back() {
            Some(refused) => Err(EngineError::Stalled(refused)),
            None => Ok(()),
        }
    }
}

impl Engine for RedbEngine {
    fn view(&self) -> Result<Arc<dyn View>, EngineError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(closed)?;
        let reading = database.begin_read().map_err(failed)?;
        let records = reading.open_table(RECORDS).map_err(failed)?;
        let tables = Table::ALL
            .iter()
            .map(|table| reading.open_table(definition(*table)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        Ok(Arc::new(RedbView { records, tables }))
    }

    fn durability(&self) -> super::Durability {
        super::Durability::Commit
    }

    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        let mut removed = 0;
        let done = self.write(|writing| {
            let mut records = writing.open_table(RECORDS)?;
            for (key, value) in &batch.records {
                records.insert(&*key.to_bytes(), &**value)?;
            }
            for key in &batch.removed {
                if let Some(value) = records.remove(&*key.to_bytes())? {
                    removed += value.value().len() as u64 + RECORD_COST;
                }
            }
            drop(records);
            for table in Table::ALL {
                let mut changes = batch
                    .rows
                    .iter()
                    .filter(|row| row.table == table)
                    .peekable();
                if changes.peek().is_none() {
                    continue;
                }
                let mut rows = writing.open_table(definition(table))?;
                for row in changes {
                    match &row.value {
                        Some(value) => rows.insert(&*row.key, &**value)?,
                        None => rows.remove(&*row.key)?,
                    };
                }
            }
            Ok(())
        });
        if matches!(done, Ok(()) | Err(EngineError::Stalled(_))) {
            self.removed_bytes.fetch_add(removed, Ordering::Relaxed);
        }
        done
    }

    fn settle(&self) -> Result<(), EngineError> {
        match self.backend.settle() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => Err(EngineError::Stalled(refused)),
            Err(lost) => Err(EngineError::Failed(format!("sync failed: {lost}"))),
        }
    }

    fn close(&self) -> Result<(), EngineError> {
        match self.database.write().take() {
            Some(database) => database.close().map_err(failed),
            None => Ok(()),
        }
    }

    fn size(&self) -> EngineSize {
        EngineSize {
            allocated: self.backend.length(),
            removed_bytes: self.removed_bytes.load(Ordering::Relaxed),
        }
    }

    fn name(&self) -> &'static str {
        "redb"
    }
}

type Open = ReadOnlyTable<&'static [u8], &'static [u8]>;

struct RedbView {
    records: Open,
    /// By [`Table::ALL`].
    tables: Vec<Open>,
}

impl RedbView {
    fn table(&self, table: Table) -> &Open {
        let at = Table::ALL
            .iter()
            .position(|t| *t == table)
            .expect("every table is in ALL");
        &self.tables[at]
    }
}

impl View for RedbView {}

impl RevisionStore for RedbView {
    fn record(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError> {
        let found = self.records.get(&*key.to_bytes()).map_err(failed)?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan(&self, from: (i64, u32), to: (i64, u32), visit: Visit<'_>) -> Result<(), EngineError> {
        if from >= to {
            return Ok(());
        }
        let bound = |(main, sub)| {
            RecordKey {
                main,
                sub,
                tombstone: false,
            }
            .to_bytes()
        };
        let (from, to) = (bound(from), bound(to));
        let range = self.records.range::<&[u8]>(&*from..&*to).map_err(failed)?;
        for entry in range {
            let (key, value) = entry.map_err(failed)?;
            let key = RecordKey::from_bytes(key.value())
                .ok_or_else(|| EngineError::Damaged("a revision key is malformed".into()))?;
            if let ControlFlow::Break(()) = visit(key, value.value()) {
                break;
            }
        }
        Ok(())
    }
}

impl Tables for RedbView {
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.table(table).get(key).map_err(failed)?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan_rows(
        &self,
        table: Table,
        after: Option<&[u8]>,
        visit: VisitRow<'_>,
    ) -> Result<(), EngineError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::<&[u8]>::Unbounded);
        for entry in self.table(table).range::<&[u8]>(range).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if visit(key.value(), value.value()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "redb_tests.rs"]
mod tests;
