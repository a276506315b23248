//! Room `raft`: changes of who belongs and who votes, one member at a time and one after the other, made by
//! the leader; other members ask it. A change is one entry, checked against the membership it was made from.

use super::Node;
use crate::error::{MemberError, Reason};
use crate::network::{Lost, read_change_error};
use crate::status::Progress;
use crate::types::{Birth, Config, LogId, Membership, Payload, from_log_id};
use openraft::Precondition;
use openraft::async_runtime::WatchReceiver;
use openraft::entry::RaftPayload;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tenon_env::{Instant, NodeScope, Plant};
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_proto::log;
use tenon_proto::peer::{self, change, change_reply, request, response};

/// Pause before a change is tried again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer may take on its way back.
const GRACE: Duration = Duration::from_millis(500);

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Add {
        id: u64,
        node: log::Node,
        learner: bool,
    },
    Promote(u64),
    Remove(u64),
    Lead(u64),
}

/// Which membership a change was judged by. Whoever judges (enough members left, address free) does so before the
/// change is made, and another change may come between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Premise {
    /// It holds with any membership.
    Any,
    /// It is to be made only while the newest membership is the one at this position.
    At(log::LogId),
}

impl Premise {
    fn holds(self, newest: Option<&LogId>) -> bool {
        match self {
            Premise::Any => true,
            Premise::At(judged_by) => newest.copied().map(from_log_id) == Some(judged_by),
        }
    }
}

enum Step {
    Done(u64),
    Again,
}

impl Node {
    /// Makes the change, here or at the leader; the index of its entry (0 for a hand-over).
    pub(crate) async fn change(
        &self,
        change: Change,
        premise: Premise,
        deadline: Instant,
    ) -> Result<u64, MemberError> {
        loop {
            let now = self.env().now();
            if now >= deadline {
                return Err(MemberError::NotChanged(Reason::Timeout));
            }
            match self.leader() {
                Some(leader) if leader == self.member() => {
                    let here = self.change_here(change.clone(), premise, deadline);
                    match NodeScope::new(self.env().clone(), here).await {
                        Err(MemberError::NotLeader(_)) => {}
                        done => return done,
                    }
                }
                Some(leader) => {
                    let asked = asked(change.clone(), premise, deadline - now);
                    match self.ask_leader(leader.0, asked).await {
                        Err(MemberError::NotLeader(_)) => {}
                        done => return done,
                    }
                }
                None => {}
            }
            self.env().sleep(PAUSE).await;
        }
    }

    async fn ask_leader(&self, leader: u64, asked: peer::Change) -> Result<u64, MemberError> {
        let within = Duration::from_millis(asked.within_ms);
        let link = self.0.links.to(leader);
        match link
            .call(request::Body::Change(asked), within + GRACE)
            .await
        {
            Ok(response::Body::Change(reply)) => match reply.outcome {
                Some(change_reply::Outcome::Index(index)) => Ok(index),
                Some(change_reply::Outcome::Error(error)) => Err(read_change_error(&error)),
                None => Err(MemberError::Unknown(Reason::StreamBroken)),
            },
            Err(Lost::NotSent(_)) => Err(MemberError::NotLeader(None)),
            Ok(_) | Err(Lost::Unknown(_)) => Err(MemberError::Unknown(Reason::StreamBroken)),
        }
    }

    /// A change that a peer asks for.
    pub(crate) async fn take_change(&self, asked: peer::Change) -> Result<u64, MemberError> {
        let premise = asked.judged_by.map_or(Premise::Any, Premise::At);
        let change = match asked.change {
            Some(change::Change::Add(peer::Add {
                id,
                node: Some(node),
                learner,
            })) => Change::Add { id, node, learner },
            Some(change::Change::Promote(id)) => Change::Promote(id),
            Some(change::Change::Remove(id)) => Change::Remove(id),
            Some(change::Change::Lead(id)) => Change::Lead(id),
            Some(change::Change::Add(peer::Add { node: None, .. })) | None => {
                return Err(MemberError::NotChanged(Reason::StreamBroken));
            }
        };
        let deadline = self.env().now() + Duration::from_millis(asked.within_ms);
        self.change_here(change, premise, deadline).await
    }

    async fn change_here(
        &self,
        change: Change,
        premise: Premise,
        deadline: Instant,
    ) -> Result<u64, MemberError> {
        if self.leader() != Some(self.member()) {
            return Err(MemberError::NotLeader(self.leader()));
        }
        if let Change::Lead(to) = change {
            return self.hand_over(to, deadline).await;
        }
        loop {
            let left = deadline - self.env().now();
            if left.is_zero() {
                return Err(MemberError::NotChanged(Reason::Timeout));
            }
            let appended = self.append_change(&change, premise);
            match self.env().timeout(left, appended).await {
                Some(Ok(Step::Done(index))) => return Ok(index),
                Some(Ok(Step::Again)) => self.env().sleep(PAUSE).await,
                Some(Err(error)) => return Err(error),
                None => return Err(MemberError::Unknown(Reason::Timeout)),
            }
        }
    }

    async fn append_change(&self, change: &Change, premise: Premise) -> Result<Step, MemberError> {
        let (id, now) = {
            let server = self.0.raft.server_metrics();
            let server = server.borrow_watched();
            (
                *server.membership_config.log_id(),
                server.membership_config.membership().clone(),
            )
        };
        // From here to the append nothing can come between: openraft compares `id` once more.
        if !premise.holds(id.as_ref()) {
            return Err(MemberError::Outdated);
        }
        if now.get_joint_config().len() != 1 {
            return Ok(Step::Again);
        }
        let next = next_membership(&now, change)?;
        if let Change::Promote(learner) = change {
            self.check_ready(*learner)?;
        }
        let unchanged = Precondition::LastMembershipLogId {
            last_membership_log_id: id,
        };
        let done = self
            .0
            .raft
            .append_membership(next, Payload::blank(), [unchanged])
            .await;
        match done {
            Ok(done) => Ok(Step::Done(done.log_id.index)),
            Err(RaftError::Fatal(_)) => Err(MemberError::Unknown(Reason::Stopping)),
            Err(RaftError::APIError(error)) => step_after(&error),
        }
    }

    /// A learner may vote once it has nine tenths of the leader's log, as in etcd.
    fn check_ready(&self, learner: u64) -> Result<(), MemberError> {
        let (matched, last) = self.progress(learner);
        let ready = matched.is_some_and(|m| (m + 1) * 10 >= (last + 1) * 9);
        if ready || self.env().plant == Plant::PromoteEmptyLearner {
            Ok(())
        } else {
            Err(MemberError::NotReady(MemberId(learner)))
        }
    }

    /// How far a peer's log is known to match, and the last index of this leader's.
    pub(super) fn progress(&self, peer: u64) -> (Option<u64>, u64) {
        let last = self
            .0
            .raft
            .data_metrics()
            .borrow_watched()
            .last_log
            .map_or(0, |id| id.index);
        let known = self.peers_progress().get(&MemberId(peer)).copied();
        (known.and_then(|p| p.matched).map(|index| index.0), last)
    }

    /// What this member as leader knows of its peers.
    pub(crate) fn peers_progress(&self) -> BTreeMap<MemberId, Progress> {
        let now = self.env().now();
        let metrics = self.0.raft.data_metrics();
        let metrics = metrics.borrow_watched();
        let heard = |peer: &u64| {
            let at = metrics
                .heartbeat
                .as_ref()
                .and_then(|peers| *peers.get(peer)?);
            at.map(|at| now - at.into_inner().0)
        };
        let peers = metrics.replication.iter().flatten();
        let others = peers.filter(|(peer, _)| **peer != self.member().0);
        others
            .map(|(peer, id)| {
                let matched = id.as_ref().map(|id| LogIndex(id.index));
                (
                    MemberId(*peer),
                    Progress {
                        matched,
                        silent: heard(peer),
                    },
                )
            })
            .collect()
    }

    /// Hands the lead to whichever voter can take it; true once this member does not lead.
    pub(crate) async fn step_down(&self, deadline: Instant) -> bool {
        loop {
            let (me, status) = (self.member(), self.status());
            if !status.is_leader || status.voters.len() <= 1 && status.voters.contains(&me) {
                return !status.is_leader;
            }
            let now = self.env().now();
            if now >= deadline {
                return false;
            }
            let mut ready: Vec<_> = self.peers_progress().into_iter().collect();
            ready.retain(|(peer, _)| status.voters.contains(peer) && self.can_lead_soon(peer.0));
            let closest = ready.into_iter().max_by_key(|(peer, p)| (p.matched, *peer));
            match closest {
                Some((peer, _)) => {
                    let patience = (now + self.config().election * 2).min(deadline);
                    let _ = self
                        .change(Change::Lead(peer.0), Premise::Any, patience)
                        .await;
                }
                None => self.env().sleep(PAUSE).await,
            }
        }
    }

    /// Hands the lead to `to`, which must be a voter, close behind and heard lately: while the hand-over is
    /// under way nothing is written.
    async fn hand_over(&self, to: u64, deadline: Instant) -> Result<u64, MemberError> {
        if to == self.member().0 {
            return Ok(0);
        }
        if !self.0.status.borrow().voters.contains(&MemberId(to)) {
            return Err(MemberError::NotVoter(MemberId(to)));
        }
        if !self.can_lead_soon(to) {
            return Err(MemberError::NotReady(MemberId(to)));
        }
        let asked = self.0.raft.trigger().transfer_leader(to).await;
        asked.map_err(|_| MemberError::Unknown(Reason::Stopping))?;
        let mut status = self.watch_status();
        let me = self.member();
        let moved = status.wait_for(|s| s.leader.is_some_and(|leader| leader != me));
        let left = deadline - self.env().now();
        match self.env().timeout(left, moved).await {
            Some(_) => Ok(0),
            None => Err(MemberError::Unknown(Reason::Timeout)),
        }
    }

    fn can_lead_soon(&self, to: u64) -> bool {
        const BEHIND_MAX: u64 = 64;
        let (matched, last) = self.progress(to);
        let silent = self
            .peers_progress()
            .get(&MemberId(to))
            .and_then(|p| p.silent);
        matched.is_some_and(|m| m + BEHIND_MAX >= last)
            && silent.is_some_and(|silent| silent <= self.config().heartbeat * 2)
    }
}

/// The change as the leader is asked for it.
fn asked(change: Change, premise: Premise, within: Duration) -> peer::Change {
    let change = match change {
        Change::Add { id, node, learner } => change::Change::Add(peer::Add {
            id,
            node: Some(node),
            learner,
        }),
        Change::Promote(id) => change::Change::Promote(id),
        Change::Remove(id) => change::Change::Remove(id),
        Change::Lead(id) => change::Change::Lead(id),
    };
    peer::Change {
        change: Some(change),
        within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        judged_by: match premise {
            Premise::Any => None,
            Premise::At(id) => Some(id),
        },
    }
}

/// What openraft's refusal means for a change that should be one entry.
fn step_after(error: &ClientWriteError<Config>) -> Result<Step, MemberError> {
    match error {
        ClientWriteError::ForwardToLeader(to) => {
            Err(MemberError::NotLeader(to.leader_id.map(MemberId)))
        }
        ClientWriteError::LogEntryDiscarded(_) => Err(MemberError::Unknown(Reason::LeaderChanged)),
        ClientWriteError::PreconditionFailed(_)
        | ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_),
        ) => Ok(Step::Again),
        ClientWriteError::ChangeMembershipError(other) => {
            tracing::error!("openraft refuses a change that was checked: {other}");
            Err(MemberError::NotChanged(Reason::LeaderChanged))
        }
    }
}

/// The membership after the change.
fn next_membership(now: &Membership, change: &Change) -> Result<Membership, MemberError> {
    let mut voters: BTreeSet<u64> = now.voter_ids().collect();
    let mut nodes: BTreeMap<u64, Birth> = now.nodes().map(|(id, b)| (*id, b.clone())).collect();
    match change {
        Change::Add { id, node, learner } => {
            if nodes.contains_key(id) {
                return Err(MemberError::Exists(MemberId(*id)));
            }
            nodes.insert(*id, Birth(node.clone()));
            if !learner {
                voters.insert(*id);
            }
        }
        Change::Promote(id) => {
            if !nodes.contains_key(id) {
                return Err(MemberError::NotFound(MemberId(*id)));
            }
            if !voters.insert(*id) {
                return Err(MemberError::NotLearner(MemberId(*id)));
            }
        }
        Change::Remove(id) => {
            if nodes.remove(id).is_none() {
                return Err(MemberError::NotFound(MemberId(*id)));
            }
            voters.remove(id);
            if voters.is_empty() {
                return Err(MemberError::LastVoter);
            }
        }
        Change::Lead(_) => {}
    }
    Ok(Membership::new(vec![voters], nodes).expect("every voter has a node"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(voters: &[u64], learners: &[u64]) -> Membership {
        let nodes = voters
            .iter()
            .chain(learners)
            .map(|id| (*id, Birth::default()));
        let nodes = nodes.collect::<BTreeMap<_, _>>();
        Membership::new(vec![voters.iter().copied().collect()], nodes).expect("valid")
    }

    fn add(id: u64, learner: bool) -> Change {
        Change::Add {
            id,
            node: log::Node::default(),
            learner,
        }
    }

    #[test]
    fn one_member_changes_at_a_time() {
        let now = membership(&[1, 2], &[3]);
        let next = |change| next_membership(&now, &change);
        assert_eq!(next(add(4, true)), Ok(membership(&[1, 2], &[3, 4])));
        assert_eq!(next(add(4, false)), Ok(membership(&[1, 2, 4], &[3])));
        assert_eq!(next(Change::Promote(3)), Ok(membership(&[1, 2, 3], &[])));
        assert_eq!(next(Change::Remove(3)), Ok(membership(&[1, 2], &[])));
        assert_eq!(next(Change::Remove(2)), Ok(membership(&[1], &[3])));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let now = membership(&[1], &[3]);
        let next = |change| next_membership(&now, &change);
        assert_eq!(next(add(3, false)), Err(MemberError::Exists(MemberId(3))));
        assert_eq!(
            next(Change::Promote(1)),
            Err(MemberError::NotLearner(MemberId(1)))
        );
        assert_eq!(
            next(Change::Promote(9)),
            Err(MemberError::NotFound(MemberId(9)))
        );
        assert_eq!(
            next(Change::Remove(9)),
            Err(MemberError::NotFound(MemberId(9)))
        );
        assert_eq!(next(Change::Remove(1)), Err(MemberError::LastVoter));
    }
}
