//! Room `raft`: one running raft, as the tasks of this room share it. The only file that calls openraft's
//! `Raft`; every call runs inside the node's scope.

use crate::config::RaftConfig;
use crate::error::{ProposeError, Reason};
use crate::flight::Ticket;
use crate::proposer::{Departure, Proposer};
use crate::reads::Confirm;
use crate::sole::Sole;
use crate::state_machine::StateMachine;
use crate::status::RaftStatus;
use crate::types::{Birth, Config, OnComplete};
use openraft::LinearizerOption;
use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::raft::ClientWriteResult;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::watch;
use tenon_env::{Env, NodeScope};
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_storage::Store;
use tenon_storage::wal::Wal;

type Raft = openraft::Raft<Config, StateMachine>;

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
    pub(crate) proposer: Proposer,
    pub(crate) applied: watch::Receiver<Option<u64>>,
    pub(crate) status: watch::Sender<RaftStatus>,
    pub(crate) fatal: watch::Sender<Option<String>>,
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

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn wal(&self) -> &Wal {
        &self.0.wal
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

    fn leader(&self) -> Option<MemberId> {
        self.0.status.borrow().leader
    }

    /// Records why the member must stop; the first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!(
            "raft of member {} must stop: {reason}",
            self.0.config.member_id
        );
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
        self.0
            .raft
            .initialize(nodes)
            .await
            .map_err(|e| e.to_string())
    }

    /// Tells `sole` the membership that openraft found in the log, in openraft's own order of events.
    pub(crate) async fn report_membership(&self) -> Result<(), String> {
        let sole = self.0.sole.clone();
        let report = move |state: &openraft::RaftState<Config>| {
            let effective = state.membership_state.effective();
            if let Some(id) = effective.log_id() {
                let voters: Vec<u64> = effective.voter_ids().collect();
                sole.on_membership(id.index, &voters);
            }
        };
        self.0
            .raft
            .with_raft_state(report)
            .await
            .map_err(|e| e.to_string())
    }

    /// Proposes until the queue closes.
    pub(crate) async fn propose(self) {
        let mut status = self.watch_status();
        while let Some(departure) = self.proposer().next(&mut status).await {
            self.depart(departure).await;
        }
    }

    async fn depart(&self, departure: Departure) {
        let Departure {
            proposal,
            ticket,
            slot,
        } = departure;
        if self.leader() != Some(self.0.config.member_id) {
            self.proposer().refused(ticket, slot);
            return;
        }
        let proposer = self.proposer().clone();
        let landed = OnComplete::new(move |outcome: ClientWriteResult<Config>| {
            land(&proposer, ticket, slot, outcome);
        });
        if let Err(fatal) = self.0.raft.write(proposal).responder(landed).await {
            tracing::warn!("a proposal did not reach raft: {fatal}");
        }
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

    /// Follows openraft's view of leader and membership for as long as it runs.
    pub(crate) async fn follow_status(self) {
        let mut server = self.0.raft.server_metrics();
        loop {
            let seen = server.borrow_and_update().clone();
            self.0.status.send_if_modified(|status| {
                let before = status.clone();
                status.observe(&seen);
                status.applied = LogIndex(self.applied().unwrap_or(0));
                before != *status
            });
            if server.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reports it when openraft, the WAL or the store gave up.
    pub(crate) async fn follow_failures(self) {
        let mut metrics = self.0.raft.metrics();
        let raft = async {
            loop {
                if let Err(fatal) = &metrics.borrow_and_update().running_state {
                    return fatal.to_string();
                }
                if metrics.changed().await.is_err() {
                    return "raft ended".to_owned();
                }
            }
        };
        let mut wal = self.0.wal.fatal();
        let wal = async {
            wait_some(&mut wal)
                .await
                .unwrap_or_else(|| "the log ended".to_owned())
        };
        let mut store = self.0.store.watch_fatal();
        let store = async {
            wait_some(&mut store)
                .await
                .map_or("ended".to_owned(), |f| f.0)
        };
        let (raft, wal, store) = (
            std::pin::pin!(raft),
            std::pin::pin!(wal),
            std::pin::pin!(store),
        );
        let disk = futures_util::future::select(wal, store);
        let reason = match futures_util::future::select(disk, raft).await {
            futures_util::future::Either::Left((disk, _)) => disk.factor_first().0,
            futures_util::future::Either::Right((raft, _)) => raft,
        };
        self.fail(reason);
    }

    /// Waits until what was applied before the last stop is applied again.
    pub(crate) async fn wait_recovered(&self, within: Duration) -> bool {
        let wait = self.0.raft.wait_for_recovery(Some(within));
        NodeScope::new(self.0.env.clone(), wait).await.is_ok()
    }

    /// Answers everybody and ends openraft.
    pub(crate) async fn stop(&self) {
        self.0.sole.close();
        self.proposer().close();
        let stop = self.0.raft.shutdown();
        let _ = NodeScope::new(self.0.env.clone(), stop).await;
    }
}

async fn wait_some<T: Clone>(receiver: &mut watch::Receiver<Option<T>>) -> Option<T> {
    receiver
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|held| held.clone())
}

/// What openraft says of a batch.
fn land(
    proposer: &Proposer,
    ticket: Ticket,
    slot: tokio::sync::OwnedSemaphorePermit,
    outcome: ClientWriteResult<Config>,
) {
    match outcome {
        Ok(done) => {
            // The slot goes first, so that the next batch is under way while callers are woken.
            drop(slot);
            ticket.land(done.log_id.index, done.log_id.leader_id.term, done.data);
        }
        // Refused before it was in the log: this member does not lead, or not any more.
        Err(ClientWriteError::ForwardToLeader(_)) => proposer.refused(ticket, slot),
        // It was in a log and is gone from this one; another leader may have it.
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            ticket.fail(ProposeError::Unknown(Reason::LeaderChanged));
        }
        Err(error) => {
            debug_assert!(false, "a batch is no membership change: {error}");
            ticket.fail(ProposeError::Unknown(Reason::LeaderChanged));
        }
    }
}

impl Confirm for Node {
    async fn confirm(&self, within: Duration) -> Result<u64, Reason> {
        if self.leader() != Some(self.0.config.member_id) {
            return Err(Reason::NoLeader);
        }
        let option = LinearizerOption::from(ReadPolicy::ReadIndex).with_wait_timeout(within);
        match self.0.raft.get_read_linearizer(option).await {
            Ok(linearizer) => Ok(linearizer.read_log_id().index()),
            Err(RaftError::APIError(_)) => Err(Reason::NoLeader),
            Err(RaftError::Fatal(_)) => Err(Reason::Stopping),
        }
    }
}
