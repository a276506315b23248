//! Room storage, engines: where revisions and small tables rest on disk. May use env's `Disk`; knows
//! nothing of MVCC rules, Raft or requests.
//!
//! An engine has two halves ([`RevisionStore`] and [`Tables`]) and ONE way to change them:
//! [`Engine::commit`] takes a [`Batch`] of records, removed records and rows and takes all of it at once,
//! or nothing. redb makes it durable in the same step; [`volatile`] engines keep nothing over a crash and
//! are rebuilt from a checkpoint ([`crate::archive`]) and the log. Reads go through a [`View`], which stands still: a commit made after
//! the view was taken, removals included, does not show in it.
//!
//! Records arrive in ascending key order and are never changed, only removed once compaction passed
//! them, so an append-only revision log can stand behind the same traits. A batch names the position of
//! the log it brings the engine to as a row of [`Table::Meta`]; what that means is the caller's business.
//!
//! What this does not do: no caching beyond the engine's own, no retry, no thread. `commit` blocks and
//! belongs on a lane.

pub mod batch;
pub mod disk;
pub mod memory;
pub mod redb;
#[cfg(feature = "engine-sled")]
pub mod sled;
pub mod volatile;

#[cfg(test)]
mod conformance;

pub use batch::{Batch, RecordKey, RowChange, Table};

use bytes::Bytes;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Why an engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The disk had no room, or refused a write, before anything was promised. Reads go on; the batch
    /// is kept by the engine and [`Engine::settle`] completes it once the disk takes writes again.
    #[error("storage engine waits for the disk: {0}")]
    Stalled(io::Error),
    /// The disk failed so that durability or content is in doubt (a failed sync, a failed read). The
    /// member has to stop.
    #[error("storage engine failed: {0}")]
    Failed(String),
    /// The file holds what no version of ours would have written.
    #[error("storage engine file is damaged: {0}")]
    Damaged(String),
}

/// Bytes an engine takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSize {
    /// Length of its file or files.
    pub allocated: u64,
    /// Bytes of the records removed since the engine was opened, with [`RECORD_COST`] for each.
    pub removed_bytes: u64,
}

/// Allowance for what an engine adds to the value of a record, bytes.
pub const RECORD_COST: u64 = 18 + 10;

/// What a visitor tells a scan.
pub type Visit<'a> = &'a mut dyn FnMut(RecordKey, &[u8]) -> ControlFlow<()>;

/// What a visitor tells a scan of rows.
pub type VisitRow<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// When what was committed survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once: `commit` is durable when it returns.
    Commit,
    /// Never by itself: the engine begins empty, and a checkpoint beside it says what it held.
    Checkpoint,
}

/// Reading revision records.
pub trait RevisionStore {
    /// The value of one record.
    fn record(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError>;
    /// Visits records with `from <= (main, sub) < to` in ascending order until told to stop.
    fn scan(&self, from: (i64, u32), to: (i64, u32), visit: Visit<'_>) -> Result<(), EngineError>;
}

/// Reading small tables.
pub trait Tables {
    /// The value of one row.
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, EngineError>;
    /// Visits the rows of a table in ascending key order, those after `after` when it is given, until told
    /// to stop.
    fn scan_rows(
        &self,
        table: Table,
        after: Option<&[u8]>,
        visit: VisitRow<'_>,
    ) -> Result<(), EngineError>;

    /// All rows of a table in ascending key order.
    fn rows(&self, table: Table) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let mut rows = Vec::new();
        self.scan_rows(table, None, &mut |key, value| {
            rows.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

/// The engine's content as of one commit; later commits do not show in it. Cheap to hold for seconds;
/// held for long it keeps the engine from reusing the room of what was removed meanwhile.
pub trait View: RevisionStore + Tables + Send + Sync + 'static {}

/// A home of revision records and small tables. One writer at a time: `commit` and `settle`
/// are called from one place only.
pub trait Engine: Send + Sync + 'static {
    /// The content as of the newest commit.
    fn view(&self) -> Result<Arc<dyn View>, EngineError>;
    /// When what [`Engine::commit`] took survives a crash.
    fn durability(&self) -> Durability;
    /// Applies the batch in full, durably where [`Engine::durability`] says so, or not at all. After [`EngineError::Stalled`] the batch
    /// is neither lost nor durable: call [`Engine::settle`] until it succeeds, and commit nothing else.
    fn commit(&self, batch: &Batch) -> Result<(), EngineError>;
    /// Completes a stalled commit. `Ok` when nothing is stalled (any more).
    fn settle(&self) -> Result<(), EngineError>;
    /// Lets go of the files: later commits fail, and so may reads of views. Afterwards another engine may
    /// be opened on them.
    fn close(&self) -> Result<(), EngineError>;
    /// Bytes taken on disk.
    fn size(&self) -> EngineSize;
    /// Name as in `--storage-engine`.
    fn name(&self) -> &'static str;
}
