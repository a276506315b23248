//! Room `server/service`: what all services share: the member's raft, store and identity, the answer's
//! header, and the one way to propose a command or to wait for a linearizable read.

use super::counters::Counters;
use crate::member::config::MemberConfig;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tenon_env::{Env, sync::watch};
use tenon_proto::caller::Caller;
use tenon_proto::command::{Command, CommandResult, command::Body, command_result::Outcome};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::ResponseHeader;
use tenon_proto::ids::{ClusterId, MemberId};
use tenon_raft::{ProposeError, RaftHandle, RaftStatus, ReadError, Reason};
use tenon_storage::Store;
use tenon_storage::measures::operation_name;
use tenon_storage::wal::Wal;

/// Committed entries that may wait for their apply before new commands are refused.
const UNAPPLIED_MAX: u64 = 5000;

struct Shared {
    env: Env,
    raft: RaftHandle,
    wal: Wal,
    store: Store,
    status: watch::Receiver<RaftStatus>,
    config: MemberConfig,
    member: MemberId,
    cluster: ClusterId,
    stopping: watch::Receiver<bool>,
    counters: Counters,
    raised_nospace: AtomicBool,
}

/// What all services share. Cloning is cheap.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
}

impl Context {
    /// The context of a running member; `stopping` turns true when it begins to shut down.
    pub fn new(
        env: Env,
        raft: RaftHandle,
        wal: Wal,
        config: MemberConfig,
        member: MemberId,
        cluster: ClusterId,
        stopping: watch::Receiver<bool>,
    ) -> Context {
        let (store, status) = (raft.store().clone(), raft.watch_status());
        let counters = Counters::default();
        let shared = Shared {
            env,
            raft,
            wal,
            store,
            status,
            config,
            member,
            cluster,
            stopping,
            counters,
            raised_nospace: AtomicBool::new(false),
        };
        Context {
            shared: Arc::new(shared),
        }
    }

    /// The member's world.
    pub fn env(&self) -> &Env {
        &self.shared.env
    }

    /// The member's raft.
    pub fn raft(&self) -> &RaftHandle {
        &self.shared.raft
    }

    /// The member's log, for its metrics.
    pub fn wal(&self) -> &Wal {
        &self.shared.wal
    }

    /// The member's state.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The member's configuration.
    pub fn config(&self) -> &MemberConfig {
        &self.shared.config
    }

    /// Id of this member.
    pub fn member(&self) -> MemberId {
        self.shared.member
    }

    /// Id of the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.shared.cluster
    }

    /// Counts of this context.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Whether this member's NOSPACE alarm is its own doing and not an operator's.
    pub(super) fn raised_nospace(&self) -> &AtomicBool {
        &self.shared.raised_nospace
    }

    /// Follows whether the member is shutting down.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.shared.stopping.clone()
    }

    /// Follows what raft is doing.
    pub fn watch_status(&self) -> watch::Receiver<RaftStatus> {
        self.shared.status.clone()
    }

    /// What raft is doing now.
    pub fn status(&self) -> RaftStatus {
        self.shared.raft.status()
    }

    /// Whether this member knows a leader.
    pub fn has_leader(&self) -> bool {
        self.shared.status.borrow().leader.is_some()
    }

    /// Whether this member only learns. One that was added as a voter and waits for its vote may be asked
    /// like any other: it forwards what it cannot do.
    pub fn is_learner(&self) -> bool {
        let (is_learner, is_member) = {
            let status = self.shared.status.borrow();
            (status.is_learner, status.is_member)
        };
        let own = self.shared.member;
        if is_learner {
            let members = self.shared.store.members();
            return !members.iter().any(|m| m.id == own && m.added_as_voter);
        }
        let joined = self.shared.config.cluster.running.iter();
        !is_member
            && joined
                .flat_map(|running| &running.members)
                .any(|m| m.id == own && m.is_learner)
    }

    /// The header of an answer at this revision.
    pub fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.shared.cluster.get(),
            member_id: self.shared.member.get(),
            revision,
            raft_term: self.shared.status.borrow().term.get(),
        }
    }

    /// The header of an answer at the current revision.
    pub fn current_header(&self) -> ResponseHeader {
        self.header(self.shared.store.revision().get())
    }

    /// Completes a header in which apply or the store set the revision only.
    pub fn fill(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.as_ref().map_or(0, |h| h.revision);
        *header = Some(self.header(revision));
    }

    /// Whether `caller` may use the cluster at all. With authentication off, which is all there is until
    /// the security issue, everybody may, and a token is ignored.
    pub fn authorise(&self, caller: &Caller) -> Result<(), Error> {
        let _ = caller;
        Ok(())
    }

    /// Has the cluster agree on a command and gives what applying it answered.
    pub async fn propose(&self, body: Body) -> Result<CommandResult, Error> {
        let shared = &self.shared;
        self.check_backlog()?;
        let operation = operation_name(&body);
        let command = Command {
            caller: None,
            auth_revision: 0,
            origin: shared.member.get(),
            request_id: 0,
            wall_ms: shared.env.clock.wall_ms(),
            body: Some(body),
        };
        if command.encoded_len() > shared.config.max_request_bytes {
            return Err(Error::RequestTooLarge);
        }
        let began = shared.env.now();
        let deadline = began + shared.config.request_timeout();
        let pending = Pending::new(&shared.counters.pending);
        let outcome = shared.raft.propose(command, deadline).await;
        drop(pending);
        if let Some(operation) = operation {
            let refused =
                |result: &CommandResult| matches!(result.outcome, Some(Outcome::Error(_)));
            let success = outcome.as_ref().is_ok_and(|a| !refused(&a.result));
            let took = shared.env.now() - began;
            shared.counters.requests.observe(operation, success, took);
        }
        match outcome {
            Ok(applied) => Ok(applied.result),
            Err(error) => {
                shared.counters.failed.fetch_add(1, Ordering::Relaxed);
                let waited = ProposeError::NotProposed(Reason::Timeout);
                if error == waited && !self.has_leader() {
                    return Err(Error::NoLeaderInTime);
                }
                Err(propose_error(&error))
            }
        }
    }

    /// Refuses while too much is committed and not applied. Asks raft only when many commands wait, because
    /// its answer costs more than a put.
    fn check_backlog(&self) -> Result<(), Error> {
        let pending = self.shared.counters.pending.load(Ordering::Relaxed);
        if u64::try_from(pending).unwrap_or(0) <= UNAPPLIED_MAX {
            return Ok(());
        }
        let status = self.shared.raft.status();
        if status.committed.get() > status.applied.get() + UNAPPLIED_MAX {
            return Err(Error::RequestTooManyRequests);
        }
        Ok(())
    }

    /// Waits until a read of the local state is linearizable.
    pub async fn read_barrier(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let deadline = shared.env.now() + shared.config.request_timeout();
        match shared.raft.read_index(deadline).await {
            Ok(_) => Ok(()),
            Err(error) => {
                shared.counters.reads_failed.fetch_add(1, Ordering::Relaxed);
                Err(read_error(&error))
            }
        }
    }
}

/// Counts a waiting command for as long as it lives, so that a caller that hangs up is counted out.
struct Pending<'a>(&'a AtomicI64);

impl<'a> Pending<'a> {
    fn new(count: &'a AtomicI64) -> Pending<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Pending(count)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// etcd's words for a command without a result. Its clients know an unknown outcome by `Unavailable`.
fn propose_error(error: &ProposeError) -> Error {
    let (ProposeError::NotProposed(reason) | ProposeError::Unknown(reason)) = error;
    reason_error(*reason)
}

/// etcd's words for why nobody knows what became of a change.
pub(super) fn reason_error(reason: Reason) -> Error {
    match reason {
        Reason::NoLeader | Reason::Timeout => Error::Timeout,
        Reason::LeaderChanged => Error::TimeoutDueToLeaderFail,
        Reason::StreamBroken => Error::TimeoutDueToConnectionLost,
        Reason::Stopping => Error::Stopped,
    }
}

fn read_error(error: &ReadError) -> Error {
    match error.0 {
        Reason::NoLeader | Reason::Timeout => Error::Timeout,
        Reason::LeaderChanged => Error::LeaderChanged,
        Reason::StreamBroken => Error::TimeoutDueToConnectionLost,
        Reason::Stopping => Error::Stopped,
    }
}
