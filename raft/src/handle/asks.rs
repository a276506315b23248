//! Room `raft`: the way in for questions between the services of members.

use super::RaftHandle;
use crate::error::Reason;
use crate::network::Traffic;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_proto::ids::MemberId;
use tenon_proto::peer::{ask::Ask, ask_reply::Reply};

impl RaftHandle {
    /// Answers by `answerer` what the services of other members ask from now on.
    pub fn answer_asks_by(
        &self,
        answerer: impl Fn(Ask) -> BoxFuture<'static, Reply> + Send + Sync + 'static,
    ) {
        self.node.answer_asks_by(Arc::new(answerer));
    }

    /// Asks the services of another member. Questions change nothing that asking twice would harm.
    ///
    /// # Errors
    /// `NoLeader` when the question did not leave this member, `StreamBroken` when no answer came.
    pub async fn ask(&self, member: MemberId, ask: Ask, within: Duration) -> Result<Reply, Reason> {
        self.node.ask_services(member, ask, within).await
    }

    /// Members that this one heard of since its start, from its configuration or by the log; some may have left. It is
    /// all that a member knows which joined and has applied nothing yet.
    pub fn acquaintances(&self) -> BTreeSet<MemberId> {
        let known = self.node.links().acquaintances();
        known.into_iter().map(MemberId).collect()
    }

    /// What this member exchanged with each other since its start.
    pub fn traffic(&self) -> BTreeMap<MemberId, Traffic> {
        let all = self.node.links().traffic();
        all.into_iter()
            .map(|(id, traffic)| (MemberId(id), traffic))
            .collect()
    }

    /// Members that acknowledged a heartbeat of the leader `within` this time, the leader among them, each with
    /// the number of the leader's entries that it lacks. Other members ask it, for `patience`.
    ///
    /// # Errors
    /// Without a leader, or when it does not answer.
    pub async fn heard_by_leader(
        &self,
        within: Duration,
        patience: Duration,
    ) -> Result<BTreeMap<MemberId, u64>, Reason> {
        self.node.heard_by_leader(within, patience).await
    }
}
