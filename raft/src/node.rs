//! Room `raft`: one running raft, as the tasks of this room share it. Every call into openraft runs inside
//! the node's scope.

mod asks;
mod follow;
mod forward;
mod inquiry;
mod members;

use crate::config::RaftConfig;
use crate::network::{Links, Receiving};
use crate::proposer::Proposer;
use crate::sole::Sole;
use crate::state_machine::StateMachine;
use crate::status::RaftStatus;
use crate::types::{Birth, Config};
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{Fatal, InitializeError, RaftError};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tenon_env::sync::{self, watch};
use tenon_env::{Env, Instant, NodeScope};
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_proto::peer::AcquaintanceReply;
use tenon_storage::Store;
use tenon_storage::wal::Wal;

pub(crate) use members::Change;
pub use members::Premise;

pub(crate) type Raft = openraft::Raft<Config, StateMachine>;

/// Clones name the same member.
#[derive(Clone)]
pub(crate) struct Node(Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) config: RaftConfig,
    pub(crate) raft: Raft,
    pub(crate) store: Store,
    pub(crate) wal: Wal,
    pub(crate) sole: Arc<Sole>,
    pub(crate) links: Arc<Links>,
    pub(crate) proposer: Proposer,
    pub(crate) applied: watch::Receiver<Option<u64>>,
    pub(crate) status: watch::Sender<RaftStatus>,
    pub(crate) fatal: watch::Sender<Option<String>>,
    /// Whether raft may take part.
    pub(crate) admitted: AtomicBool,
    /// Why this member is none any more, once a peer said so.
    pub(crate) removed: watch::Sender<Option<String>>,
    pub(crate) stopping: watch::Sender<bool>,
    /// A snapshot that is on its way here.
    pub(crate) receiving: sync::Mutex<Option<Receiving>>,
    /// Who answers the services of other members.
    pub(crate) asks: asks::Desk,
    /// When the leader was last heard, nanoseconds of the node's clock.
    pub(crate) heard: AtomicU64,
}

impl Node {
    pub(crate) fn new(parts: Parts) -> Node {
        Node(Arc::new(parts))
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn config(&self) -> &RaftConfig {
        &self.0.config
    }

    pub(crate) fn member(&self) -> MemberId {
        self.0.config.member_id
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn wal(&self) -> &Wal {
        &self.0.wal
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.0.raft
    }

    pub(crate) fn links(&self) -> &Links {
        &self.0.links
    }

    pub(crate) fn receiving(&self) -> &sync::Mutex<Option<Receiving>> {
        &self.0.receiving
    }

    pub(crate) fn proposer(&self) -> &Proposer {
        &self.0.proposer
    }

    /// Index of the newest entry applied here.
    pub(crate) fn applied(&self) -> Option<u64> {
        *self.0.applied.borrow()
    }

    pub(crate) fn watch_status(&self) -> watch::Receiver<RaftStatus> {
        self.0.status.subscribe()
    }

    pub(crate) fn watch_fatal(&self) -> watch::Receiver<Option<String>> {
        self.0.fatal.subscribe()
    }

    pub(crate) fn watch_removed(&self) -> watch::Receiver<Option<String>> {
        self.0.removed.subscribe()
    }

    pub(crate) fn status(&self) -> RaftStatus {
        let mut status = self.0.status.borrow().clone();
        status.applied = LogIndex(self.applied().unwrap_or(0));
        let committed = self
            .0
            .raft
            .data_metrics()
            .borrow_watched()
            .cluster_committed;
        status.committed = LogIndex(committed.map_or(0, |id| id.index)).max(status.applied);
        status
    }

    pub(crate) fn leader(&self) -> Option<MemberId> {
        self.0.status.borrow().leader
    }

    /// Whether this id was a member once and is none any more.
    pub(crate) fn is_removed(&self, member: MemberId) -> bool {
        self.0.store.removed_members().contains(&member)
    }

    /// Records why the member must stop; the first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!("raft of member {} must stop: {reason}", self.member());
        self.0.fatal.send_if_modified(|held| {
            let first = held.is_none();
            held.get_or_insert(reason);
            first
        });
    }

    /// Makes the first membership the log's first entry, unless there is a log.
    pub(crate) async fn bootstrap(&self, nodes: BTreeMap<u64, Birth>) -> Result<(), String> {
        if self
            .0
            .raft
            .is_initialized()
            .await
            .map_err(|e| e.to_string())?
        {
            return Ok(());
        }
        match self.0.raft.initialize(nodes).await {
            Ok(()) => Ok(()),
            // Another first member was faster and has asked for this one's vote; its log begins with the same
            // membership.
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Tells `sole` the membership that openraft found in the log, in openraft's own order of events. The only
    /// voter need not wait for a timer: it leads at once.
    pub(crate) async fn report_membership(&self) -> Result<(), Fatal<Config>> {
        let (sole, me) = (self.0.sole.clone(), self.member().0);
        let report = move |state: &openraft::RaftState<Config>| {
            let effective = state.membership_state.effective();
            let voters: Vec<u64> = effective.voter_ids().collect();
            if let Some(id) = effective.log_id() {
                sole.on_membership(id.index, &voters);
            }
            voters == [me]
        };
        if self.0.raft.with_raft_state(report).await? {
            self.0.raft.trigger().elect(false).await?;
        }
        Ok(())
    }

    /// Announces a view as the newest snapshot and lets entries up to `through` go.
    pub(crate) async fn announce_snapshot(&self, through: u64) -> Result<(), Fatal<Config>> {
        self.0.raft.trigger().snapshot().await?;
        let mut metrics = self.0.raft.data_metrics();
        let wait = async {
            while metrics
                .borrow_watched()
                .snapshot
                .is_none_or(|id| id.index < through)
            {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        if self
            .0
            .env
            .timeout(Duration::from_secs(10), wait)
            .await
            .is_none()
        {
            return Ok(());
        }
        self.0.raft.trigger().purge_log(through).await
    }

    /// Notes that a leader spoke.
    pub(crate) fn heard(&self) {
        self.0.heard.store(self.0.env.now().0, Ordering::Relaxed);
    }

    fn last_heard(&self) -> Instant {
        Instant(self.0.heard.load(Ordering::Relaxed))
    }

    /// An append that stands alone.
    pub(crate) async fn append(
        &self,
        rpc: AppendEntriesRequest<Config>,
    ) -> Result<StreamAppendResult<Config>, String> {
        let prev = rpc.prev_log_id;
        let last = rpc.entries.last().map(|entry| entry.id()).or(prev);
        let response = self
            .0
            .raft
            .append_entries(rpc)
            .await
            .map_err(|e| e.to_string())?;
        Ok(response.into_stream_result(prev, last))
    }

    /// What a member with an empty disk wants to know before it votes.
    pub(crate) fn acquaintance(&self, member: u64) -> AcquaintanceReply {
        let status = self.0.status.borrow();
        let published = self
            .0
            .store
            .members()
            .iter()
            .any(|m| m.id.0 == member && m.published);
        let metrics = self.0.raft.data_metrics();
        let metrics = metrics.borrow_watched();
        let acknowledged = metrics
            .replication
            .as_ref()
            .is_some_and(|peers| peers.get(&member).is_some_and(|id| id.is_some()));
        AcquaintanceReply {
            running: status.leader.is_some() || metrics.last_applied.is_some(),
            has_run: published || acknowledged || self.is_removed(MemberId(member)),
        }
    }

    /// Waits until what was applied before the last stop is applied again.
    pub(crate) async fn wait_recovered(&self, within: Duration) -> bool {
        let wait = self.0.raft.wait_for_recovery(Some(within));
        NodeScope::new(self.0.env.clone(), wait).await.is_ok()
    }

    /// Completes when this member stops.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.0.stopping.subscribe();
        async move {
            while !*stopping.borrow_and_update() {
                if stopping.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Answers everybody and ends openraft and all streams.
    pub(crate) async fn stop(&self) {
        self.0.stopping.send_replace(true);
        self.0.links.close();
        self.0.sole.close();
        self.proposer().close();
        let stop = self.0.raft.shutdown();
        let _ = NodeScope::new(self.0.env.clone(), stop).await;
    }
}
