//! Room `raft`: committed entries go into `storage`'s store in order, and their results straight to whoever
//! waits for them. May touch the store; decides nothing about what a command means.

use crate::network::meta;
use crate::sole::Sole;
use crate::types::{Body, Config, Entry, LogId, Results, StoredMembership};
use crate::types::{from_log_id, from_membership, stored_membership, to_log_id};
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use std::io;
use std::sync::Arc;
use tenon_env::sync::watch;
use tenon_env::{Env, Lane};
use tenon_proto::log;
use tenon_storage::Store;
use tenon_storage::state::SnapshotView;

/// The state machine openraft drives, on one task.
pub(crate) struct StateMachine {
    env: Env,
    store: Store,
    sole: Arc<Sole>,
    applied: watch::Sender<Option<u64>>,
}

impl StateMachine {
    /// `applied` follows the index of the newest applied entry.
    pub(crate) fn new(
        env: &Env,
        store: Store,
        sole: Arc<Sole>,
        applied: watch::Sender<Option<u64>>,
    ) -> StateMachine {
        StateMachine {
            env: env.clone(),
            store,
            sole,
            applied,
        }
    }

    fn apply_entry(&self, entry: &Entry) -> io::Result<Results> {
        let id = from_log_id(entry.id());
        let results = match entry.body() {
            Body::Blank => {
                self.store.apply_blank(id);
                Vec::new()
            }
            Body::Membership(membership) => {
                self.store
                    .apply_membership(id, &from_membership(membership));
                Vec::new()
            }
            Body::Batch(batch) => {
                let results = self.store.apply(id, batch).map_err(io::Error::other)?;
                assert_eq!(
                    results.len(),
                    batch.commands.len(),
                    "one result for each command"
                );
                results
            }
        };
        self.sole.on_applied(entry.id().leader_id.term);
        self.applied.send_replace(Some(entry.id().index));
        Ok(results)
    }
}

/// What stands applied in `store`.
fn applied_state(store: &Store) -> io::Result<(Option<LogId>, StoredMembership)> {
    let (id, membership) = store.membership();
    Ok((
        store.applied().as_ref().map(to_log_id),
        stored(id.as_ref(), &membership)?,
    ))
}

fn stored(id: Option<&log::LogId>, membership: &log::Membership) -> io::Result<StoredMembership> {
    stored_membership(id, membership)
        .ok_or_else(|| io::Error::other("the store holds an impossible membership"))
}

/// A snapshot is a view of the store, not a file: making one costs nothing. It stands at the engine's durable
/// position, so the log may be purged up to it.
fn view(store: &Store) -> io::Result<Option<SnapshotOf<Config, SnapshotView>>> {
    let Some(view) = store.snapshot() else {
        return Ok(None);
    };
    let meta = meta(&view).map_err(io::Error::other)?;
    Ok(Some(Snapshot {
        meta,
        snapshot: view,
    }))
}

/// Makes views.
pub(crate) struct Views(Store);

impl RaftSnapshotBuilder<Config> for Views {
    type SnapshotData = SnapshotView;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Config, SnapshotView>> {
        view(&self.0)?.ok_or_else(|| io::Error::other("nothing is applied yet"))
    }
}

impl RaftStateMachine<Config> for StateMachine {
    type SnapshotData = SnapshotView;
    type SnapshotBuilder = Views;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        applied_state(&self.store)
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Config>>> + Unpin + Send,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            self.store.room().await;
            let results = self.apply_entry(&entry)?;
            if let Some(responder) = responder {
                responder.send(results);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Views {
        Views(self.store.clone())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Config>,
        snapshot: SnapshotView,
    ) -> io::Result<()> {
        tracing::info!("installing the snapshot {meta}");
        self.sole.on_truncate();
        let store = self.store.clone();
        let step = move || store.install_snapshot(&snapshot);
        let installed = self.env.blocking(Lane::Engine, step).await;
        installed
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        if let Some(id) = meta.last_log_id {
            self.sole.on_applied(id.leader_id.term);
            self.applied.send_replace(Some(id.index));
        }
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<Config, SnapshotView>>> {
        view(&self.store)
    }
}
