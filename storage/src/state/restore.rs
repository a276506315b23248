//! Room storage, state: the state of a first member of a new cluster, made from an archive of another. Keys,
//! their history and leases stay; members, membership, alarms and the position in the log are the new
//! cluster's. Uses the receiving of snapshots, so that it is durable for every engine.

use super::members::Members;
use super::rows::{self, Meta, PositionRow};
use super::store::{OpenError, Store, StoreOptions};
use crate::archive::{ArchiveError, ArchiveReader, Piece};
use crate::engine::{EngineError, RowChange, Table};
use bytes::Bytes;
use std::path::Path;
use tenon_env::Env;
use tenon_proto::ids::Revision;
use tenon_proto::log::{LogId, Membership};

/// What the restored state is to be.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    /// Position in the new cluster's log that the state counts as: the log begins after it. The same for all
    /// its first members.
    pub id: LogId,
    /// The new cluster's first membership.
    pub membership: Membership,
    /// Added to the revision, and everything up to there counts as compacted, so that no client that saw the
    /// old cluster mistakes the new one's revisions for those it knows; 0 leaves both alone.
    pub bump_revision: u64,
}

/// Why a state cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The archive.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// What it is restored to.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Likewise.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The archive lacks what every state has, or the plan does not fit it.
    #[error("{0}")]
    Unfit(String),
}

/// Makes the state under `dir`, which must not have one. Blocking; durable when it returns. The revision it
/// stands at.
///
/// # Errors
/// [`RestoreError`]; the folder is then unfit for anything but removal.
pub fn restore(
    env: &Env,
    dir: &Path,
    options: StoreOptions,
    archive: &mut ArchiveReader,
    plan: &RestorePlan,
) -> Result<Revision, RestoreError> {
    let store = Store::open(env, dir, options)?;
    if store.applied().is_some() {
        let text = format!("{} holds a state already", dir.display());
        return Err(RestoreError::Unfit(text));
    }
    let mut receiver = store.receive_snapshot()?;
    let mut meta = Vec::new();
    while let Some(piece) = archive.next_piece()? {
        match piece {
            Piece::Records(records) => receiver.records(records)?,
            Piece::Rows(rows) => {
                for (table, key, value) in rows {
                    match table {
                        Table::Meta => meta.push((key, value)),
                        Table::Leases | Table::Auth => receiver.rows(table, vec![(key, value)])?,
                        Table::Members | Table::Alarms => {}
                    }
                }
            }
        }
    }
    let (revision, changes) = rows_of(&meta, plan)?;
    for RowChange { table, key, value } in changes {
        let value = value.expect("no row is removed here");
        receiver.rows(table, vec![(key, value)])?;
    }
    let view = receiver.finish()?;
    let installed = store.install_snapshot(&view);
    installed.map_err(|fatal| RestoreError::Unfit(fatal.to_string()))?;
    drop(view);
    store.inner.engine().close()?;
    Ok(revision)
}

/// The rows of the new cluster, and its revision.
fn rows_of(
    meta: &[(Bytes, Bytes)],
    plan: &RestorePlan,
) -> Result<(Revision, Vec<RowChange>), RestoreError> {
    let damaged = |row| RestoreError::Unfit(format!("row {row} of the snapshot is damaged"));
    let meta = Meta::read(meta).map_err(damaged)?;
    if meta.format != Some(rows::FORMAT) {
        let text = "the snapshot's content is of another format version";
        return Err(RestoreError::Unfit(text.into()));
    }
    let old = meta.position;
    let bump = i64::try_from(plan.bump_revision).ok();
    let revision = bump
        .and_then(|bump| old.revision.checked_add(bump))
        .filter(|revision| *revision < i64::MAX)
        .ok_or_else(|| RestoreError::Unfit("the revision would be too large".into()))?;
    let position = PositionRow {
        applied: Some(plan.id),
        revision,
        compacted_next: if plan.bump_revision > 0 {
            revision + 1
        } else {
            old.compacted_next
        },
        swept_next: old.swept_next,
    };
    let mut changes = Members::default().on_membership(&plan.membership);
    changes.extend([
        rows::format(),
        rows::position(&position),
        rows::membership(&plan.id, &plan.membership),
    ]);
    if !meta.cluster_version.is_empty() {
        changes.push(rows::cluster_version(&meta.cluster_version));
    }
    Ok((Revision(revision), changes))
}
