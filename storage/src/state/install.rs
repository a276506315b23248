//! Room storage, state: taking over a snapshot. Its content is received into an engine of its own beside
//! the running one, made durable, and only then swapped in, by one rename; until then the member
//! answers from its old state.
//!
//! For an engine that keeps nothing over a crash the file is a checkpoint, written when all has arrived.
//!
//! ```text
//! receive ──► <snap>/received.* (durable) ──► rename over db.redb or checkpoint ──► memory rebuilt ──► swapped
//!             a crash here: thrown away           a crash from here on: the new state is found
//! ```
//!
//! What this does not do: talk to the sender, check what belongs together across pieces (the raft room's
//! transport does), reset the log.

use super::core::Inner;
use super::home;
use super::open;
use super::rows::Meta;
use super::snapshot::SnapshotView;
use super::store::Fatal;
use crate::archive::ArchiveFile;
use crate::engine::redb::put_in_place;
use crate::engine::{Batch, Durability, Engine, EngineError, RecordKey, RowChange, Table};
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use tenon_proto::ids::{LogIndex, Revision};

/// Bytes gathered before a batch goes to the engine.
const BATCH_BYTES: usize = 8 << 20;

/// An engine filled from a snapshot and not yet taken over.
pub(crate) struct Staged {
    /// Taken when it is installed; given back to nobody.
    engine: Mutex<Option<Box<dyn Engine>>>,
    /// The durable file with its content.
    path: PathBuf,
}

/// Receives the content of a snapshot, in pieces, into an engine of its own. Blocking; for a lane.
pub struct SnapshotReceiver {
    inner: Arc<Inner>,
    engine: Box<dyn Engine>,
    path: PathBuf,
    batch: Batch,
    bytes: usize,
    last: (i64, u32),
}

impl SnapshotReceiver {
    pub(crate) fn new(inner: &Arc<Inner>) -> Result<SnapshotReceiver, EngineError> {
        let (engine, path) = home::receive(&inner.env, &inner.dir, &inner.options)?;
        let (inner, batch) = (inner.clone(), Batch::default());
        Ok(SnapshotReceiver {
            inner,
            engine,
            path,
            batch,
            bytes: 0,
            last: (0, 0),
        })
    }

    /// Adds records, in ascending order over all calls.
    ///
    /// # Errors
    /// What the disk says; `Damaged` for records out of order.
    pub fn records(&mut self, records: Vec<(RecordKey, Bytes)>) -> Result<(), EngineError> {
        for (key, value) in records {
            if key.position() <= self.last {
                return Err(EngineError::Damaged("snapshot records out of order".into()));
            }
            self.last = key.position();
            self.bytes += value.len() + size_of::<(RecordKey, Bytes)>();
            self.batch.records.push((key, value));
            self.maybe_commit()?;
        }
        Ok(())
    }

    /// Adds rows of a table.
    ///
    /// # Errors
    /// What the disk says.
    pub fn rows(&mut self, table: Table, rows: Vec<(Bytes, Bytes)>) -> Result<(), EngineError> {
        for (key, value) in rows {
            self.bytes += key.len() + value.len() + size_of::<RowChange>();
            self.batch.rows.push(RowChange {
                table,
                key,
                value: Some(value),
            });
            self.maybe_commit()?;
        }
        Ok(())
    }

    fn maybe_commit(&mut self) -> Result<(), EngineError> {
        if self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.bytes = 0;
        self.engine.commit(&std::mem::take(&mut self.batch))
    }

    /// Makes what was received durable. Everything a sender's [`SnapshotView`] holds must have been
    /// given: all records and the rows of all tables.
    ///
    /// # Errors
    /// What the disk says; `Damaged` when the position or the membership is missing.
    pub fn finish(self) -> Result<SnapshotView, EngineError> {
        if !self.batch.is_empty() {
            self.engine.commit(&self.batch)?;
        }
        let view = self.engine.view()?;
        let damaged = |what: &str| EngineError::Damaged(format!("snapshot without {what}"));
        let meta = Meta::read(&view.rows(Table::Meta)?).map_err(damaged)?;
        let id = meta.position.applied.ok_or_else(|| damaged("a position"))?;
        if meta.format != Some(super::rows::FORMAT) {
            return Err(damaged("this version's format"));
        }
        if self.last.0 > meta.position.revision {
            return Err(damaged("a position that covers its records"));
        }
        drop(view);
        self.engine.commit(&Batch {
            rows: vec![super::rows::received(&id)],
            ..Batch::default()
        })?;
        let view = self.engine.view()?;
        let at = (meta.position.revision, meta.position.compacted_next - 1);
        let durability = self.engine.durability();
        let staged = Staged {
            engine: Mutex::new(Some(self.engine)),
            path: self.path.clone(),
        };
        let view = SnapshotView::staged(view, id, at, staged);
        if durability == Durability::Checkpoint {
            let disk = &*self.inner.env.disk;
            let written = ArchiveFile::create(disk, &self.path, view.clone())
                .and_then(|mut file| file.write_all());
            written.map_err(|error| EngineError::Failed(error.to_string()))?;
        }
        Ok(view)
    }
}

/// Takes over what `view` received. Blocking; nothing may be applied meanwhile.
pub(crate) fn install(inner: &Inner, view: &SnapshotView) -> Result<(), Fatal> {
    let result = swap(inner, view).map_err(Fatal::from);
    inner.lose(result)
}

fn swap(inner: &Inner, view: &SnapshotView) -> Result<(), EngineError> {
    let (engine, path) = view.take_staged().ok_or_else(|| {
        EngineError::Failed("the snapshot is no received one, or was installed before".into())
    })?;
    // No drain from here to the end: the old engine gets nothing more.
    let _gate = inner.drain_gate.lock();
    let applied = inner.state.read().applied.map_or(0, |id| id.index);
    assert!(
        view.log_id().index >= applied,
        "a snapshot never takes the state back"
    );
    let target = home::durable_file(&inner.dir, inner.options.engine);
    put_in_place(&*inner.env.disk, &path, &target)?;
    let (new, lessor) = open::rebuild(&inner.env, &*engine, &inner.options)?;
    let (revision, compacted, swept) = (new.revision, new.compacted, new.swept);
    let durable = new.engine_mark.map_or(0, |mark| mark.id.index);
    {
        let mut state = inner.state.write();
        *inner.engine.write() = Arc::from(engine);
        *inner.stalled.lock() = None;
        inner.lessor.replace(lessor);
        inner.pins.break_all();
        let old = std::mem::replace(&mut *state, new);
        inner.watches.restored(revision, compacted);
        drop(state);
        // Not under the lock: it may be large.
        drop(old);
    }
    let length = inner.env.disk.stat(&target).ok().flatten();
    inner.checkpoint.restart(length.map_or(0, |file| file.len));
    inner.durable.send_replace(LogIndex(durable));
    inner.swept.send_replace(Revision(swept));
    inner.compact.notify_one();
    inner.drained.notify_waiters();
    Ok(())
}

impl Staged {
    /// The engine and its file, once.
    pub(crate) fn take(&self) -> Option<(Box<dyn Engine>, PathBuf)> {
        Some((self.engine.lock().take()?, self.path.clone()))
    }
}
