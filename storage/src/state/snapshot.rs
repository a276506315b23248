//! Room storage, state: a view of the whole state at one position of the log. A view, not a file: making
//! it costs nothing, the records stream out in revision order while it is held.
//!
//! It stands where the engine's content does, so it never covers an entry that the log does not have
//! durably; the log itself is purged only up to what is durable here too. Holding it keeps the engine from reusing the room
//! of what compaction removes meanwhile: drop it when done.

use super::core::{Inner, State};
use super::install::Staged;
use super::rows::MembershipRow;
use crate::engine::{Engine, EngineError, RecordKey, Table, View, Visit, VisitRow};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use tenon_proto::ids::Revision;
use tenon_proto::log::{LogId, Membership};

/// The state as of an engine commit.
#[derive(Clone)]
pub struct SnapshotView {
    view: Arc<dyn View>,
    id: LogId,
    revision: i64,
    compacted: i64,
    /// For a received snapshot: its engine.
    staged: Option<Arc<Staged>>,
}

impl SnapshotView {
    /// The view at the engine's position; `None` before anything was drained.
    pub(crate) fn take(inner: &Inner) -> Option<SnapshotView> {
        let state = inner.state.read();
        let mark = state.engine_mark?;
        let (id, revision, compacted) = (mark.id, mark.revision, mark.compacted);
        let (view, staged) = (state.view.clone(), None);
        Some(SnapshotView {
            view,
            id,
            revision,
            compacted,
            staged,
        })
    }

    /// The view of a received snapshot.
    pub(crate) fn staged(
        view: Arc<dyn View>,
        id: LogId,
        (revision, compacted): (i64, i64),
        staged: Staged,
    ) -> SnapshotView {
        let staged = Some(Arc::new(staged));
        SnapshotView {
            view,
            id,
            revision,
            compacted,
            staged,
        }
    }

    /// The engine of a received snapshot and its file, once.
    pub(crate) fn take_staged(&self) -> Option<(Box<dyn Engine>, PathBuf)> {
        self.staged.as_ref()?.take()
    }

    /// The newest entry covered.
    pub fn log_id(&self) -> LogId {
        self.id
    }

    /// The store's revision then.
    pub fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    /// The newest compaction then; -1 = never.
    pub fn compact_revision(&self) -> Revision {
        Revision(self.compacted)
    }

    /// The membership then, and the entry that brought it.
    ///
    /// # Errors
    /// What the engine says; a damaged row.
    pub fn membership(&self) -> Result<(Option<LogId>, Membership), EngineError> {
        let rows = self.view.rows(Table::Meta)?;
        let meta = super::rows::Meta::read(&rows);
        let MembershipRow { id, membership } = meta
            .map_err(|row| EngineError::Damaged(format!("row {row}")))?
            .membership;
        Ok((id, membership.unwrap_or_default()))
    }

    /// All rows of a table, by key.
    ///
    /// # Errors
    /// What the engine says.
    pub fn rows(&self, table: Table) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        self.view.rows(table)
    }

    /// Visits the rows of a table after `after`, by key, until told to stop.
    ///
    /// # Errors
    /// What the engine says.
    pub fn scan_rows(
        &self,
        table: Table,
        after: Option<&[u8]>,
        visit: VisitRow<'_>,
    ) -> Result<(), EngineError> {
        self.view.scan_rows(table, after, visit)
    }

    /// Visits the records from `from` (main and sub) on, in revision order, until told to stop.
    ///
    /// # Errors
    /// What the engine says.
    pub fn scan(&self, from: (i64, u32), visit: Visit<'_>) -> Result<(), EngineError> {
        self.view.scan(from, State::after(self.revision), visit)
    }

    /// The next records from `from` (main and sub) on, in revision order, about `bytes_max` of them
    /// but at least one; none at the end. The next call begins after the last one's position.
    ///
    /// # Errors
    /// What the engine says.
    pub fn records(
        &self,
        from: (i64, u32),
        bytes_max: usize,
    ) -> Result<Vec<(RecordKey, Bytes)>, EngineError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        self.scan(from, &mut |key, value| {
            bytes += value.len() + 18;
            records.push((key, Bytes::copy_from_slice(value)));
            if bytes < bytes_max {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(records)
    }
}

impl std::fmt::Debug for SnapshotView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SnapshotView(log {}, revision {})",
            self.id.index, self.revision
        )
    }
}
