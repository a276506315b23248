//! Room `raft`: the way in for the rooms above, in words of our own. Calls may come from any task; the work
//! is done by tasks inside the node's scope.

mod asks;

use crate::config::{self, RaftConfig};
use crate::error::{MemberError, ProposeError, ReadError, StartError};
use crate::flight::{Applied, Via};
use crate::log_store::LogStore;
use crate::network::{self, Factory, Identity, Links, Refused};
use crate::node::{Change, Node, Parts, Premise};
use crate::proposer::Proposer;
use crate::reads::Reads;
use crate::sole::Sole;
use crate::state_machine::StateMachine;
use crate::status::{Progress, RaftStatus};
use crate::types::Birth;
use crate::upkeep;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tenon_env::sync::{self, watch};
use tenon_env::{Env, Instant, NodeScope, Task};
use tenon_proto::command::Command;
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_proto::log::{Membership, Node as MemberNode};
use tenon_proto::peer::refusal;
use tenon_storage::Store;
use tenon_storage::wal::{Recovery, Wal};

/// One member's raft. Clones name the same; it runs until [`RaftHandle::shutdown`] or its node's end.
#[derive(Clone)]
pub struct RaftHandle {
    node: Node,
    reads: Reads,
    tasks: Arc<Mutex<Vec<Task>>>,
}

impl std::fmt::Debug for RaftHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RaftHandle({})", self.node.config().member_id)
    }
}

impl RaftHandle {
    /// Starts a member on its store and log, both freshly opened. Committed entries that the store does not
    /// hold yet are applied before this returns. A first configuration is used only when the log is empty.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(
        env: &Env,
        config: RaftConfig,
        store: Store,
        (wal, recovery): (Wal, Recovery),
    ) -> Result<RaftHandle, StartError> {
        let start = start(env.clone(), config, store, wal, recovery);
        NodeScope::new(env.clone(), start).await
    }

    /// Replicates a command and applies it; its result. Commands proposed at the same time share an entry.
    ///
    /// # Errors
    /// [`ProposeError::NotProposed`] when the command is in no log, [`ProposeError::Unknown`] otherwise.
    pub async fn propose(
        &self,
        command: Command,
        deadline: Instant,
    ) -> Result<Applied, ProposeError> {
        self.node
            .proposer()
            .propose(command, Via::Leader, deadline)
            .await
    }

    /// As [`RaftHandle::propose`], but only by this member as leader: a member that does not lead, or not any
    /// more, refuses instead of forwarding. For what a leader does by virtue of its office.
    ///
    /// # Errors
    /// As [`RaftHandle::propose`]; `NotProposed(NoLeader)` when this member does not lead.
    pub async fn propose_as_leader(
        &self,
        command: Command,
        deadline: Instant,
    ) -> Result<Applied, ProposeError> {
        self.node
            .proposer()
            .propose(command, Via::Here, deadline)
            .await
    }

    /// Completes once everything acknowledged anywhere before this call is applied here; a read of the store
    /// is linearizable then. The index applied.
    ///
    /// # Errors
    /// When no leader confirmed it before `deadline`.
    pub async fn read_index(&self, deadline: Instant) -> Result<LogIndex, ReadError> {
        self.reads.read_index(deadline).await
    }

    /// The member's view now.
    pub fn status(&self) -> RaftStatus {
        self.node.status()
    }

    /// The member's view as leader, term and membership change; its positions are those of that moment.
    pub fn watch_status(&self) -> watch::Receiver<RaftStatus> {
        self.node.watch_status()
    }

    /// The replicated state.
    pub fn store(&self) -> &Store {
        self.node.store()
    }

    /// Adds a member that only learns. The index of the entry that added it; see [`MemberError`]. Any member
    /// may be asked; the leader does it.
    ///
    /// # Errors
    /// [`MemberError`]; of them only `NotChanged` may be asked again blindly, and `Outdated` once it was judged
    /// again.
    pub async fn add_learner(
        &self,
        id: MemberId,
        node: MemberNode,
        premise: Premise,
        deadline: Instant,
    ) -> Result<LogIndex, MemberError> {
        let change = Change::Add {
            id: id.0,
            node,
            learner: true,
        };
        let done = self.node.change(change, premise, deadline).await;
        done.map(LogIndex)
    }

    /// Adds a member that votes, and counts for the quorum, at once. As [`RaftHandle::add_learner`].
    ///
    /// # Errors
    /// As [`RaftHandle::add_learner`].
    pub async fn add_voter(
        &self,
        id: MemberId,
        node: MemberNode,
        premise: Premise,
        deadline: Instant,
    ) -> Result<LogIndex, MemberError> {
        let change = Change::Add {
            id: id.0,
            node,
            learner: false,
        };
        let done = self.node.change(change, premise, deadline).await;
        done.map(LogIndex)
    }

    /// Gives a learner a vote. Its log must have nine tenths of the leader's.
    ///
    /// # Errors
    /// As [`RaftHandle::add_learner`].
    pub async fn promote(
        &self,
        id: MemberId,
        premise: Premise,
        deadline: Instant,
    ) -> Result<LogIndex, MemberError> {
        let done = self
            .node
            .change(Change::Promote(id.0), premise, deadline)
            .await;
        done.map(LogIndex)
    }

    /// Removes a member for good, voter or learner.
    ///
    /// # Errors
    /// As [`RaftHandle::add_learner`].
    pub async fn remove(
        &self,
        id: MemberId,
        premise: Premise,
        deadline: Instant,
    ) -> Result<LogIndex, MemberError> {
        let done = self
            .node
            .change(Change::Remove(id.0), premise, deadline)
            .await;
        done.map(LogIndex)
    }

    /// Hands the lead to a voter that is close behind the leader and was heard lately. Writes wait meanwhile.
    ///
    /// # Errors
    /// [`MemberError`]; `Unknown` when no new leader appeared before `deadline`.
    pub async fn transfer_leader(
        &self,
        to: MemberId,
        deadline: Instant,
    ) -> Result<(), MemberError> {
        self.node
            .change(Change::Lead(to.0), Premise::Any, deadline)
            .await
            .map(|_| ())
    }

    /// Hands the lead to whichever voter can take it, the closest first; true once this member does not lead.
    /// Bounded by `deadline`; a member that stops calls this first.
    pub async fn step_down(&self, deadline: Instant) -> bool {
        self.node.step_down(deadline).await
    }

    /// How far the peers are, as this member knows as leader; empty when it does not lead.
    pub fn progress(&self) -> BTreeMap<MemberId, Progress> {
        self.node.peers_progress()
    }

    /// Waits until this member has applied at least what it had applied before it stopped, so that a
    /// serializable read cannot go back behind an answer given then. False when the deadline came first:
    /// without a quorum nobody can tell.
    pub async fn wait_recovered(&self, deadline: Instant) -> bool {
        let within = deadline - self.node.env().now();
        self.node.wait_recovered(within).await
    }

    /// Why the member must stop, once it must: disk, log or a bug. Nothing is acknowledged from then on.
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.node.watch_fatal()
    }

    /// Why this member is none any more, once a peer told it that it has been removed. It can do nothing
    /// useful from then on.
    pub fn removed(&self) -> watch::Receiver<Option<String>> {
        self.node.watch_removed()
    }

    /// Commands of this member's callers that are queued or under way.
    pub fn pending_proposals(&self) -> usize {
        self.node.proposer().pending()
    }

    /// Ends all tasks: callers get their answers, openraft stops. Store and WAL stay open; close the store
    /// first, then the WAL.
    pub async fn shutdown(&self) {
        self.reads.close();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(Task::abort);
        self.node.stop().await;
    }
}

async fn start(
    env: Env,
    config: RaftConfig,
    store: Store,
    wal: Wal,
    recovery: Recovery,
) -> Result<RaftHandle, StartError> {
    let settings = Arc::new(config::openraft(&config, env.plant)?);
    let agree = store.check_log(&recovery);
    agree.map_err(|e| StartError::Storage(e.to_string()))?;
    let first = config.initial.as_ref().map(first_nodes).transpose()?;
    let member = config.member_id;
    let is_empty = recovery.last.is_none() && recovery.vote.is_none() && store.applied().is_none();
    let sole = Arc::new(Sole::new(member.0));
    let (applied_tx, applied) = watch::channel(store.applied().map(|id| id.index));
    let log = LogStore::new(wal.clone(), &recovery, store.clone(), sole.clone());
    let machine = StateMachine::new(&env, store.clone(), sole.clone(), applied_tx);
    let removed = watch::Sender::new(None);
    let links = Arc::new(links(&env, &config, &store, removed.clone()));
    let factory = Factory::new(
        links.clone(),
        config.election,
        config.snapshot_bytes_per_second,
    );
    let raft = openraft::Raft::new(member.0, settings, factory, log, machine).await;
    let raft = raft.map_err(|e| StartError::Storage(e.to_string()))?;
    let reads = Reads::new(&env, sole.clone(), applied.clone());
    let status = RaftStatus::unknown(member, config.cluster_id);
    let node = Node::new(Parts {
        proposer: Proposer::new(&env),
        env,
        config,
        raft,
        store,
        wal,
        sole,
        links,
        applied,
        status: watch::Sender::new(status),
        fatal: watch::Sender::new(None),
        admitted: AtomicBool::new(false),
        removed,
        stopping: watch::Sender::new(false),
        receiving: sync::Mutex::new(None),
        heard: AtomicU64::new(0),
        asks: Default::default(),
    });
    let tasks = Arc::new(Mutex::new(spawn_tasks(&node, &reads)));
    let handle = RaftHandle { node, reads, tasks };
    handle.take_part(first, is_empty).await?;
    Ok(handle)
}

impl RaftHandle {
    /// Begins the log where there is none and lets raft take part; with an empty disk and peers only after
    /// they were asked, for which this does not wait.
    async fn take_part(
        &self,
        first: Option<BTreeMap<u64, Birth>>,
        is_empty: bool,
    ) -> Result<(), StartError> {
        let node = &self.node;
        let config = node.config();
        let mut peers = config.known_peers.clone();
        peers.extend(config.initial.iter().flat_map(|first| first.nodes.clone()));
        peers.remove(&config.member_id.0);
        if is_empty && !peers.is_empty() {
            let inquiry = node.clone().inquire(peers, first);
            self.tasks
                .lock()
                .push(node.env().spawn("raft-inquiry", inquiry));
            return Ok(());
        }
        node.admit();
        if let Some(first) = first {
            node.bootstrap(first).await.map_err(StartError::Bootstrap)?;
        }
        let reported = node.report_membership().await;
        reported.map_err(|e| StartError::Storage(e.to_string()))
    }
}

/// The ways to peers. Their present addresses stand in the members table.
fn links(
    env: &Env,
    config: &RaftConfig,
    store: &Store,
    removed: watch::Sender<Option<String>>,
) -> Links {
    let me = Identity {
        cluster: config.cluster_id,
        member: config.member_id,
    };
    let known = store.clone();
    let addresses = move |member: u64| {
        let members = known.members();
        members
            .into_iter()
            .find(|m| m.id.0 == member)
            .map(|m| m.peer_urls)
    };
    let refused = move |refused: &Refused| {
        if refused.kind == refusal::Kind::Removed {
            removed.send_replace(Some(refused.text.clone()));
        }
    };
    let links = Links::new(env.clone(), me, config.heartbeat, addresses, refused);
    for (id, node) in config
        .initial
        .iter()
        .flat_map(|membership| &membership.nodes)
    {
        links.learn(*id, node);
    }
    links
}

fn spawn_tasks(node: &Node, reads: &Reads) -> Vec<Task> {
    let env = node.env();
    vec![
        env.spawn("raft-status", node.clone().follow_status()),
        env.spawn("raft-failures", node.clone().follow_failures()),
        env.spawn("raft-propose", node.clone().propose()),
        env.spawn("raft-deadlines", node.proposer().clone().sweep()),
        env.spawn("raft-reads", reads.clone().serve(node.clone())),
        env.spawn("raft-peers", network::serve(node.clone())),
        env.spawn("raft-purge", upkeep::purge(env.clone(), node.clone())),
        env.spawn("raft-engine", upkeep::follow_engine(node.clone())),
    ]
}

/// The members of a first configuration, which are all voters.
fn first_nodes(initial: &Membership) -> Result<BTreeMap<u64, Birth>, StartError> {
    let [voters] = initial.configs.as_slice() else {
        return Err(StartError::Bootstrap(
            "the first configuration is one set of voters".to_owned(),
        ));
    };
    let nodes: BTreeMap<u64, Birth> = initial
        .nodes
        .iter()
        .map(|(id, node)| (*id, Birth(node.clone())))
        .collect();
    if !nodes.keys().eq(voters.ids.iter()) {
        return Err(StartError::Bootstrap(
            "every member of the first configuration is a voter, in ascending order".to_owned(),
        ));
    }
    Ok(nodes)
}
