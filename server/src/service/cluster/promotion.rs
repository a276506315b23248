//! Room `server/service`: which learners the leader promotes by itself, and when: once they had, twice in a row,
//! what was committed at the look before. Judged by what the leader knows of its peers.

use super::Cluster;
use std::collections::BTreeMap;
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_raft::{MemberError, Premise};

/// Looks in a row at which a learner must have had what was committed a look earlier.
const LOOKS: u32 = 2;

/// What a leader saw of its learners at earlier looks.
#[derive(Debug, Default)]
pub struct Readiness {
    committed: LogIndex,
    seen: BTreeMap<MemberId, u32>,
}

impl Readiness {
    /// Whether a learner caught up, by one more look. `matched` is how far its log is known to match.
    fn look(&mut self, learner: MemberId, matched: Option<LogIndex>) -> bool {
        let near = self.committed > LogIndex(0) && matched >= Some(self.committed);
        let seen = self.seen.entry(learner).or_default();
        *seen = if near { *seen + 1 } else { 0 };
        *seen >= LOOKS
    }
}

impl Cluster {
    /// Promotes the learners that need no operator and have caught up. Called now and then by the leader.
    pub async fn promote_ready(&self, readiness: &mut Readiness) {
        let all = self.context.config().cluster.auto_promote_learners;
        let Some(judged_by) = self.context.store().membership().0 else {
            return;
        };
        let members = self.context.store().members();
        let waiting = members.iter().filter(|m| m.is_learner);
        let waiting: Vec<MemberId> = waiting
            .filter(|m| m.promote_auto || (all && m.published))
            .map(|m| m.id)
            .collect();
        readiness.seen.retain(|id, _| waiting.contains(id));
        if waiting.is_empty() {
            return;
        }
        let (heard, progress) = (self.heard().await, self.context.raft().progress());
        let matched = |id: &MemberId| progress.get(id).and_then(|p| p.matched);
        for id in waiting.into_iter().filter(|id| heard.contains(id)) {
            if !readiness.look(id, matched(&id)) {
                continue;
            }
            let (raft, premise) = (self.context.raft(), Premise::At(judged_by));
            match raft.promote(id, premise, self.deadline()).await {
                Ok(_) => {
                    tracing::info!(member = %id, "promoted a learner that caught up");
                    self.count_promotion();
                }
                // The next look judges anew.
                Err(MemberError::NotReady(_) | MemberError::Outdated) => {}
                Err(error) => tracing::warn!(member = %id, %error, "cannot promote a learner"),
            }
        }
        readiness.committed = self.context.status().committed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_must_keep_up_twice() {
        let id = MemberId(7);
        let mut readiness = Readiness::default();
        assert!(!readiness.look(id, Some(LogIndex(9))), "no look before");
        readiness.committed = LogIndex(10);
        assert!(!readiness.look(id, Some(LogIndex(10))));
        assert!(!readiness.look(id, Some(LogIndex(9))), "fell behind");
        assert!(!readiness.look(id, Some(LogIndex(10))));
        assert!(readiness.look(id, Some(LogIndex(11))));
        assert!(!readiness.look(MemberId(8), None));
    }
}
