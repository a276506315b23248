//! Room storage, engines: one that keeps nothing over a crash. Rows stand in memory; records stand where
//! a [`RecordHome`] puts them: in memory, or in sled's files, which are scratch here and begin empty.
//! Durable is only the checkpoint that the state writes beside it.
//!
//! A home has no snapshots of its own, so views that stand still are made here:
//!
//! - Records are only ever added above all others, so a view ends at the last record of its commit.
//! - A removed record is *condemned*: views of later commits pass over it, and it leaves the home in a
//!   commit after the last view that may still see it was dropped.
//! - A row is a list of values, each with the number of the commit that set it; old ones go likewise.
//!
//! What this does not do: make anything durable, know what a batch means.

use super::{
    Batch, Durability, Engine, EngineError, EngineSize, RECORD_COST, RecordKey, RevisionStore,
    RowChange, Table, Tables, View, Visit, VisitRow,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Where records stand. Shared by the writer and all readers; one writer at a time.
pub trait RecordHome: Send + Sync + 'static {
    /// The value of one record.
    fn get(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError>;
    /// Records with `from <= (main, sub) < to`, ascending, at most `limit`.
    fn some(
        &self,
        from: (i64, u32),
        to: (i64, u32),
        limit: usize,
    ) -> Result<Vec<(RecordKey, Bytes)>, EngineError>;
    /// Adds or repeats records.
    fn insert(&self, records: &[(RecordKey, Bytes)]) -> Result<(), EngineError>;
    /// Removes records that are there.
    fn remove(&self, keys: &[RecordKey]) -> Result<(), EngineError>;
    /// Bytes it takes.
    fn allocated(&self) -> u64;
    /// Name as in `--storage-engine`.
    fn name(&self) -> &'static str;
}

/// Records asked from the home at once during a scan.
const SCANNED_AT_ONCE: usize = 256;

/// Values of a row by the number of the commit that set them, ascending; `None` = removed.
type RowHistory = Vec<(u64, Option<Bytes>)>;

#[derive(Default)]
struct Versions {
    /// Number of the newest commit.
    newest: u64,
    /// Position after the newest record.
    end: (i64, u32),
    /// How many views stand at a commit.
    held: BTreeMap<u64, usize>,
    /// Removed records that are still in the home, with the commit that removed them.
    condemned: BTreeMap<(i64, u32), (u64, RecordKey)>,
    rows: BTreeMap<(Table, Bytes), RowHistory>,
    /// Rows with more than their newest value, to be looked at.
    changed: Vec<(Table, Bytes)>,
    row_bytes: u64,
    removed_bytes: u64,
}

impl Versions {
    /// The oldest commit that somebody may still see.
    fn oldest(&self) -> u64 {
        self.held.keys().next().copied().unwrap_or(self.newest)
    }

    fn is_condemned(&self, position: (i64, u32), version: u64) -> bool {
        let found = self.condemned.get(&position);
        found.is_some_and(|(by, _)| *by <= version)
    }

    fn set_row(&mut self, row: &RowChange) {
        let key = (row.table, row.key.clone());
        let size = (row.key.len() + row.value.as_ref().map_or(0, Bytes::len)) as u64;
        self.row_bytes += size;
        // A copy of its own: the change's bytes may be a small part of a large buffer.
        let value = row.value.as_deref().map(Bytes::copy_from_slice);
        let history = self.rows.entry(key.clone()).or_default();
        match history.last_mut() {
            Some((version, last)) if *version == self.newest => *last = value,
            _ => history.push((self.newest, value)),
        }
        self.changed.push(key);
    }

    /// Lets go of values of rows that nobody can see any more.
    fn forget_rows(&mut self) {
        let oldest = self.oldest();
        let (rows, row_bytes) = (&mut self.rows, &mut self.row_bytes);
        self.changed.retain(|key| {
            let Some(history) = rows.get_mut(key) else {
                return false;
            };
            let current = history.iter().rposition(|(version, _)| *version <= oldest);
            for (_, gone) in history.drain(..current.unwrap_or(0)) {
                let size = (key.1.len() + gone.map_or(0, |value| value.len())) as u64;
                *row_bytes = row_bytes.saturating_sub(size);
            }
            if let [(version, None)] = history.as_slice()
                && *version <= oldest
            {
                rows.remove(key);
                return false;
            }
            history.len() > 1 || history.last().is_some_and(|(_, value)| value.is_none())
        });
    }

    /// Condemned records that nobody can see any more.
    fn executable(&self) -> Vec<RecordKey> {
        let oldest = self.oldest();
        let gone = self.condemned.values().filter(|(by, _)| *by <= oldest);
        gone.map(|(_, key)| *key).collect()
    }
}

/// An engine over a [`RecordHome`].
pub struct VolatileEngine<H> {
    home: Arc<H>,
    versions: Arc<Mutex<Versions>>,
}

impl<H: RecordHome> VolatileEngine<H> {
    /// An engine over an empty home.
    pub fn new(home: H) -> VolatileEngine<H> {
        VolatileEngine {
            home: Arc::new(home),
            versions: Arc::default(),
        }
    }

    fn condemn(&self, keys: &[RecordKey], commit: u64) -> Result<(), EngineError> {
        for key in keys {
            if self.versions.lock().condemned.contains_key(&key.position()) {
                continue;
            }
            let Some(value) = self.home.get(*key)? else {
                continue;
            };
            let mut versions = self.versions.lock();
            versions.condemned.insert(key.position(), (commit, *key));
            versions.removed_bytes += value.len() as u64 + RECORD_COST;
        }
        Ok(())
    }
}

impl<H: RecordHome> Engine for VolatileEngine<H> {
    fn view(&self) -> Result<Arc<dyn View>, EngineError> {
        let mut versions = self.versions.lock();
        let (version, end) = (versions.newest, versions.end);
        *versions.held.entry(version).or_default() += 1;
        Ok(Arc::new(VolatileView {
            home: self.home.clone(),
            versions: self.versions.clone(),
            version,
            end,
        }))
    }

    fn durability(&self) -> Durability {
        Durability::Checkpoint
    }

    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        // Above every view's end: nobody sees them yet.
        self.home.insert(&batch.records)?;
        // Of a number nobody stands at yet.
        let commit = self.versions.lock().newest + 1;
        self.condemn(&batch.removed, commit)?;
        let gone = {
            let mut versions = self.versions.lock();
            versions.newest = commit;
            if let Some((last, _)) = batch.records.last() {
                versions.end = versions.end.max((last.main, last.sub + 1));
            }
            for row in &batch.rows {
                versions.set_row(row);
            }
            versions.forget_rows();
            versions.executable()
        };
        self.home.remove(&gone)?;
        // Only now: a view taken meanwhile had to pass over them still.
        let mut versions = self.versions.lock();
        for key in gone {
            versions.condemned.remove(&key.position());
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
        let versions = self.versions.lock();
        EngineSize {
            allocated: self.home.allocated() + versions.row_bytes,
            removed_bytes: versions.removed_bytes,
        }
    }

    fn name(&self) -> &'static str {
        self.home.name()
    }
}

struct VolatileView<H> {
    home: Arc<H>,
    versions: Arc<Mutex<Versions>>,
    version: u64,
    end: (i64, u32),
}

impl<H> Drop for VolatileView<H> {
    fn drop(&mut self) {
        let mut versions = self.versions.lock();
        if let Some(views) = versions.held.get_mut(&self.version) {
            *views -= 1;
            if *views == 0 {
                versions.held.remove(&self.version);
            }
        }
    }
}

impl<H: RecordHome> View for VolatileView<H> {}

impl<H: RecordHome> RevisionStore for VolatileView<H> {
    fn record(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError> {
        let position = key.position();
        if position >= self.end || self.versions.lock().is_condemned(position, self.version) {
            return Ok(None);
        }
        self.home.get(key)
    }

    fn scan(&self, from: (i64, u32), to: (i64, u32), visit: Visit<'_>) -> Result<(), EngineError> {
        let (mut from, to) = (from, to.min(self.end));
        while from < to {
            let mut some = self.home.some(from, to, SCANNED_AT_ONCE)?;
            let Some((last, _)) = some.last() else { break };
            from = (last.main, last.sub + 1);
            let versions = self.versions.lock();
            if !versions.condemned.is_empty() {
                some.retain(|(key, _)| !versions.is_condemned(key.position(), self.version));
            }
            drop(versions);
            for (key, value) in &some {
                if visit(*key, value).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl<H: RecordHome> Tables for VolatileView<H> {
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let versions = self.versions.lock();
        let history = versions.rows.get(&(table, Bytes::copy_from_slice(key)));
        Ok(history.and_then(|history| value_at(history, self.version)))
    }

    fn scan_rows(
        &self,
        table: Table,
        after: Option<&[u8]>,
        visit: VisitRow<'_>,
    ) -> Result<(), EngineError> {
        let mut from = match after {
            Some(key) => Bound::Excluded((table, Bytes::copy_from_slice(key))),
            None => Bound::Included((table, Bytes::new())),
        };
        loop {
            // The visitor runs without the lock.
            let (some, last) = self.some_rows(table, from);
            for (key, value) in &some {
                if let ControlFlow::Break(()) = visit(key, value) {
                    return Ok(());
                }
            }
            let Some(last) = last else { return Ok(()) };
            from = Bound::Excluded(last);
        }
    }
}

impl<H> VolatileView<H> {
    /// Rows of a table, and where to go on when there may be more.
    #[expect(clippy::type_complexity, reason = "a pair used once")]
    fn some_rows(
        &self,
        table: Table,
        from: Bound<(Table, Bytes)>,
    ) -> (Vec<(Bytes, Bytes)>, Option<(Table, Bytes)>) {
        let versions = self.versions.lock();
        let mut some = Vec::new();
        for (seen, (key, history)) in versions.rows.range((from, Bound::Unbounded)).enumerate() {
            if key.0 != table {
                break;
            }
            if let Some(value) = value_at(history, self.version) {
                some.push((key.1.clone(), value));
            }
            if seen + 1 == SCANNED_AT_ONCE {
                return (some, Some(key.clone()));
            }
        }
        (some, None)
    }
}

fn value_at(history: &RowHistory, version: u64) -> Option<Bytes> {
    let newest = history.iter().rev().find(|(by, _)| *by <= version);
    newest.and_then(|(_, value)| value.clone())
}
