//! Room `server/host`: what a host consists of, and the few things every step needs: the journal by copy, edit,
//! persist, publish; questions to the members; storage that is attached and detached. The steps stand in `steps`.

use super::config::HostConfig;
use super::door::{Backend, Door};
use super::edges::{Asked, Mode, Step};
use super::journal::{Journal, JournalFile};
use super::remote::{CallInfo, Remote, Upstream, UpstreamError};
use super::status::Board;
use crate::member::Member;
use crate::member::data_dir::Identity;
use crate::service::method::Method;
use prost::Message;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::watch;
use tenon_env::{Env, Instant, Lane};
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::host::{StandingRequest, StandingResponse};
use tenon_proto::ids::MemberId;

/// Time for the own member to answer, before others are asked.
const HERE_WITHIN: Duration = Duration::from_secs(1);

/// Why a step did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepError {
    /// The switch cannot go on; the host can.
    Failed {
        /// What is in the way.
        why: String,
        /// What the operator can do.
        remedy: String,
    },
    /// The host cannot go on: its own disk fails it.
    Fatal(String),
}

impl StepError {
    pub(super) fn failed(why: impl Into<String>, remedy: impl Into<String>) -> StepError {
        StepError::Failed {
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}

pub(super) type StepResult = Result<(), StepError>;

/// What a switch aims at.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    pub(super) to: Mode,
    pub(super) deadline: Instant,
    pub(super) fault_tolerance: super::config::FaultTolerance,
}

/// A host, seen by its one task.
pub(super) struct Core {
    pub(super) env: Env,
    pub(super) config: HostConfig,
    pub(super) file: JournalFile,
    pub(super) journal: Journal,
    pub(super) door: Door,
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) member: Option<Member>,
    pub(super) attached: watch::Sender<Option<Member>>,
    pub(super) remote: Option<Arc<Remote>>,
    pub(super) board: Board,
    /// How often it is still to be looked whether the cluster lists a learner of this host of which the host never
    /// heard: its request to join had an answer that was lost.
    pub(super) orphan_looks: u8,
    /// Dead member whose place this host takes, during the switch that takes it.
    pub(super) replaces: Option<MemberId>,
}

impl Core {
    /// Changes the journal: copy, edit, persist, publish.
    pub(super) async fn save(&mut self, edit: impl FnOnce(&mut Journal)) -> StepResult {
        let mut next = self.journal.clone();
        edit(&mut next);
        if next != self.journal {
            self.file.write(&next).await.map_err(StepError::Fatal)?;
            self.journal = next;
        }
        self.publish();
        Ok(())
    }

    /// Posts what the journal says.
    pub(super) fn publish(&self) {
        let journal = &self.journal;
        self.board.edit(|status| {
            status.mode = journal.mode;
            status.cluster = journal.cluster;
            status.member = journal.member.filter(|_| journal.mode == Mode::Server);
            status.endpoints.clone_from(&journal.endpoints);
            status.leftover = journal.leftover;
        });
    }

    /// Asks members behind these client URLs from now on.
    pub(super) fn ask_through(&mut self, endpoints: Vec<String>) -> Arc<Remote> {
        if let Some(old) = self.remote.take() {
            old.shutdown();
        }
        let floor = self.door.shared_floor();
        let remote = Remote::new(&self.env, self.upstream.clone(), endpoints, floor);
        remote.avoid(&self.config.member.advertise_client_urls);
        self.remote = Some(remote.clone());
        remote
    }

    /// A question to the members.
    pub(super) async fn ask<Q, R>(
        &self,
        method: Method,
        request: &Q,
        deadline: Instant,
    ) -> Result<R, Error>
    where
        Q: Message + 'static,
        R: Message + Default,
    {
        let Some(remote) = &self.remote else {
            return Err(Error::NoLeader);
        };
        let caller = Caller::default();
        if self.config.edges.asked == Asked::AnyMember {
            return remote.call(method, &caller, request, deadline).await;
        }
        let first = self.journal.endpoints.first().cloned().unwrap_or_default();
        let bytes = request.encode_to_vec().into();
        let call = self
            .upstream
            .unary(&first, method, CallInfo::default(), bytes);
        let answer = self.env.timeout(deadline - self.env.now(), call).await;
        let unavailable = |text: String| Error::other(Code::Unavailable, text);
        match answer {
            None => Err(Error::Timeout),
            Some(Ok(bytes)) => R::decode(bytes).map_err(|e| unavailable(e.to_string())),
            Some(Err(UpstreamError::Status(error))) => Err(error),
            Some(Err(UpstreamError::NotSent(text) | UpstreamError::Broken(text))) => {
                Err(unavailable(text))
            }
        }
    }

    /// The members by a quorum.
    pub(super) async fn members(&self, deadline: Instant) -> Result<pb::MemberListResponse, Error> {
        let request = pb::MemberListRequest { linearizable: true };
        self.ask(Method::ClusterMemberList, &request, deadline)
            .await
    }

    /// The members by a quorum, asked of the own member first, if one runs. When every host of a cluster asks only the
    /// others, and their endpoints are with the others too, nobody ever answers; the one whose member has the quorum
    /// must see that it has it.
    pub(super) async fn members_here_first(
        &self,
        deadline: Instant,
    ) -> Result<pb::MemberListResponse, Error> {
        if let Some(member) = &self.member {
            let (caller, linearizable) = (Caller::default(), true);
            let request = pb::MemberListRequest { linearizable };
            let asked = member.services().cluster.member_list(&caller, request);
            let within = HERE_WITHIN.min(deadline - self.env.now());
            if let Some(Ok(list)) = self.env.timeout(within, asked).await {
                return Ok(list);
            }
        }
        self.members(deadline).await
    }

    /// Whether the own member runs and has a vote, as it knows itself. One that peers told of its removal has none:
    /// nobody sends it the entry by which it would see that in its own log.
    pub(super) fn has_vote(&self) -> bool {
        self.member.as_ref().is_some_and(|member| {
            let context = &member.services().context;
            let removed = context.raft().removed().borrow().is_some();
            let status = context.status();
            status.is_member && !status.is_learner && !removed
        })
    }

    /// Who belongs to the cluster and whom its leader hears; asked of the own member where it serves.
    pub(super) async fn standing(&self, deadline: Instant) -> Result<StandingResponse, Error> {
        let request = StandingRequest {};
        match &self.member {
            Some(member) if self.journal.mode == Mode::Server => {
                let caller = Caller::default();
                let asked = member.services().cluster.standing(&caller, request);
                let within = deadline - self.env.now();
                let answer = self.env.timeout(within, asked).await;
                answer.unwrap_or(Err(Error::Timeout))
            }
            _ => self.ask(Method::MembersStanding, &request, deadline).await,
        }
    }

    /// Keeps in mind whom to ask once the own member is gone; written down with the intent.
    pub(super) fn planned_endpoints(&mut self, endpoints: Vec<String>) {
        self.journal.endpoints = endpoints;
    }

    /// Whether the endpoint is with the own member.
    pub(super) fn is_home(&self) -> bool {
        match (self.door.backend(), &self.member) {
            (Backend::Member(at), Some(member)) => Arc::ptr_eq(&at, &member.services_shared()),
            _ => false,
        }
    }

    /// Attaches a member that runs, or none.
    pub(super) fn attach(&mut self, member: Option<Member>) {
        self.attached.send_replace(member.clone());
        self.member = member;
    }

    /// Folder of a member's storage.
    pub(super) fn storage(&self) -> PathBuf {
        self.config.member.data_dir.join("member")
    }

    /// Where storage goes by one rename before it is deleted.
    pub(super) fn detached(&self) -> PathBuf {
        self.config.member.data_dir.join("member.detached")
    }

    /// Who the storage says it belongs to; `None` when there is none.
    pub(super) async fn stored(&self) -> Result<Option<MemberId>, StepError> {
        let (env, dir) = (self.env.clone(), self.config.member.data_dir.clone());
        let read = self
            .env
            .blocking(Lane::Read, move || Identity::stored(&env, &dir));
        let read = read
            .await
            .map_err(|gone| StepError::Fatal(gone.to_string()));
        match read? {
            Ok(identity) => Ok(identity.map(|identity| identity.member)),
            // Whoever cannot be read is nobody; the storage goes when another is attached.
            Err(error) => {
                tracing::warn!(%error, "storage without a readable identity");
                Ok(None)
            }
        }
    }

    /// Stops the member, if one runs, and moves its storage away by one rename.
    pub(super) async fn detach(&mut self) -> StepResult {
        if let Some(member) = self.member.clone() {
            member.shutdown().await;
            self.attach(None);
            self.env.net.identify(0, 0);
        }
        let (from, to) = (self.storage(), self.detached());
        let (env, dir) = (self.env.clone(), self.config.member.data_dir.clone());
        let moved = self.env.blocking(Lane::Read, move || {
            if env.disk.stat(&from)?.is_none() {
                return Ok(());
            }
            if env.disk.stat(&to)?.is_some() {
                env.disk.remove_dir_all(&to)?;
            }
            env.disk.rename(&from, &to)?;
            env.disk.sync_dir(&dir)
        });
        self.file_step("move", moved.await)
    }

    /// Deletes storage that was moved away.
    pub(super) async fn delete(&mut self) -> StepResult {
        let (env, dir) = (self.env.clone(), self.config.member.data_dir.clone());
        let gone = self.detached();
        let deleted = self.env.blocking(Lane::Read, move || {
            if env.disk.stat(&gone)?.is_none() {
                return Ok(());
            }
            env.disk.remove_dir_all(&gone)?;
            env.disk.sync_dir(&dir)
        });
        self.file_step("delete", deleted.await)
    }

    fn file_step(
        &self,
        what: &str,
        done: Result<std::io::Result<()>, tenon_env::Gone>,
    ) -> StepResult {
        let done = done.unwrap_or_else(|gone| Err(std::io::Error::other(gone)));
        done.map_err(|why| {
            let storage = self.storage();
            StepError::Fatal(format!(
                "cannot {what} storage {}: {why}",
                storage.display()
            ))
        })
    }
}

/// Position of a step in a list; none when a planted table lacks it.
pub(super) fn position(steps: &[Step], step: Step) -> Option<usize> {
    steps.iter().position(|s| *s == step)
}
