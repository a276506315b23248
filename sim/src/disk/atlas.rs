//! Room `sim`: the fault atlas: which members' disks may be spoiled, so that a correct cluster can always recover.
//!
//! A cluster keeps its promises only while a quorum of its voters holds what it once called durable. Whoever
//! spoils disks asks the atlas first:
//!
//! - a *damage* (bit rot, a misdirected write, a lying sync, a wiped disk) is allowed on fewer than half of the
//!   voters, and a voter once damaged stays so until it was replaced;
//! - a damaged voter may be damaged again;
//! - what only costs time (slowness, a full disk, EIO, a failed sync at which the member stops before it answers)
//!   needs no leave, but the run must end it before it asks for progress.
//!
//! It keeps accounts and touches no disk.

use crate::NodeId;
use std::collections::BTreeSet;

/// Accounts of damaged disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Atlas {
    voters: BTreeSet<NodeId>,
    damaged: BTreeSet<NodeId>,
}

impl Atlas {
    /// The atlas of a cluster of these voters, all whole.
    pub fn new<N: Into<NodeId>>(voters: impl IntoIterator<Item = N>) -> Atlas {
        Atlas {
            voters: voters.into_iter().map(Into::into).collect(),
            damaged: BTreeSet::new(),
        }
    }

    /// How many voters more may be damaged.
    pub fn spare(&self) -> usize {
        let most = self.voters.len().saturating_sub(1) / 2;
        most.saturating_sub(self.damaged.intersection(&self.voters).count())
    }

    /// Leave to damage a node's disk; remembers it. Nodes that do not vote may always be damaged.
    pub fn may_damage(&mut self, node: impl Into<NodeId>) -> bool {
        let node = node.into();
        let allowed =
            !self.voters.contains(&node) || self.damaged.contains(&node) || self.spare() > 0;
        if allowed {
            self.damaged.insert(node);
        }
        allowed
    }

    /// Whether the node's disk is damaged.
    pub fn is_damaged(&self, node: impl Into<NodeId>) -> bool {
        self.damaged.contains(&node.into())
    }

    /// The node began anew with an empty disk and holds everything again.
    pub fn replaced(&mut self, node: impl Into<NodeId>) {
        self.damaged.remove(&node.into());
    }

    /// Leave to change the voters; false, and nothing changed, when those that are whole would be no quorum.
    pub fn may_vote<N: Into<NodeId>>(&mut self, voters: impl IntoIterator<Item = N>) -> bool {
        let voters: BTreeSet<NodeId> = voters.into_iter().map(Into::into).collect();
        let whole = voters.difference(&self.damaged).count();
        let allowed = !voters.is_empty() && whole > voters.len() / 2;
        if allowed {
            self.voters = voters;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_stays_whole() {
        for (voters, most) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)] {
            let mut atlas = Atlas::new(1..=voters);
            let allowed = (1..=voters).filter(|id| atlas.may_damage(*id)).count();
            assert_eq!(allowed, most, "{voters} voters");
            assert_eq!(atlas.spare(), 0);
            assert_eq!(atlas.may_damage(1u64), most > 0, "the same one again");
        }
    }

    #[test]
    fn a_replaced_member_may_be_damaged_again_and_another_instead() {
        let mut atlas = Atlas::new(1..=3u64);
        assert!(atlas.may_damage(2u64) && !atlas.may_damage(3u64));
        assert!(atlas.may_damage(9u64), "no voter");
        atlas.replaced(2u64);
        assert!(!atlas.is_damaged(2u64) && atlas.may_damage(3u64));
    }

    #[test]
    fn voters_change_only_while_a_quorum_is_whole() {
        let mut atlas = Atlas::new(1..=3u64);
        assert!(atlas.may_damage(3u64));
        assert!(!atlas.may_vote([1u64, 3]), "one whole of two");
        assert!(atlas.may_vote([1u64, 2]));
        assert_eq!(atlas.spare(), 0);
        assert!(atlas.may_vote([1u64, 2, 4, 5, 3]), "four whole of five");
        assert_eq!(atlas.spare(), 1);
    }
}
