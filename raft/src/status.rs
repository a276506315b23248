//! Room `raft`: what a member knows of itself and its cluster, followed from openraft's metrics.

use crate::types::Config;
use openraft::metrics::RaftServerMetrics;
use std::collections::BTreeSet;
use std::time::Duration;
use tenon_proto::ids::{ClusterId, LogIndex, MemberId, Term};

/// A member's view at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftStatus {
    /// This member.
    pub member_id: MemberId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// The leader of `term`, once one is known.
    pub leader: Option<MemberId>,
    /// The newest term seen.
    pub term: Term,
    /// Position known to be committed; 0 before any.
    pub committed: LogIndex,
    /// Position applied here; 0 before any.
    pub applied: LogIndex,
    /// Whether this member leads.
    pub is_leader: bool,
    /// Whether this member is in the newest configuration, but without a vote.
    pub is_learner: bool,
    /// Whether this member is in the newest configuration.
    pub is_member: bool,
    /// Who votes, by the newest configuration in the log.
    pub voters: BTreeSet<MemberId>,
    /// Who only learns.
    pub learners: BTreeSet<MemberId>,
}

/// What a leader knows of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Position up to which its log is known to be the leader's; `None` before any.
    pub matched: Option<LogIndex>,
    /// Time since it last acknowledged something; `None` when it never did.
    pub silent: Option<Duration>,
}

impl RaftStatus {
    /// The view before anything is known.
    pub(crate) fn unknown(member_id: MemberId, cluster_id: ClusterId) -> RaftStatus {
        RaftStatus {
            member_id,
            cluster_id,
            leader: None,
            term: Term(0),
            committed: LogIndex(0),
            applied: LogIndex(0),
            is_leader: false,
            is_learner: false,
            is_member: false,
            voters: BTreeSet::new(),
            learners: BTreeSet::new(),
        }
    }

    /// Takes over what openraft says of leader and membership.
    pub(crate) fn observe(&mut self, server: &RaftServerMetrics<Config>) {
        let membership = server.membership_config.membership();
        self.term = Term(server.vote.leader_id.term);
        self.leader = server.current_leader.map(MemberId);
        self.is_leader = server.state.is_leader();
        self.voters = membership.voter_ids().map(MemberId).collect();
        self.learners = membership.learner_ids().map(MemberId).collect();
        self.is_learner = self.learners.contains(&self.member_id);
        self.is_member = self.is_learner || self.voters.contains(&self.member_id);
    }
}
