//! Room `raft`: openraft's words to those of `proto::log` and back.

use super::{Birth, LogId, Membership, StoredMembership, Vote};
use std::collections::{BTreeMap, BTreeSet};
use tenon_proto::log;

/// In openraft's standard mode a term has one leader, so a position names no node; `node_id` is 0.
pub(crate) fn from_log_id(id: LogId) -> log::LogId {
    log::LogId {
        term: id.leader_id.term,
        node_id: 0,
        index: id.index,
    }
}

pub(crate) fn to_log_id(id: &log::LogId) -> LogId {
    LogId::new_term_index(id.term, id.index)
}

pub(crate) fn from_vote(vote: &Vote) -> log::Vote {
    log::Vote {
        term: vote.leader_id.term,
        node_id: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(crate) fn to_vote(vote: &log::Vote) -> Vote {
    if vote.committed {
        Vote::new_committed(vote.term, vote.node_id)
    } else {
        Vote::new(vote.term, vote.node_id)
    }
}

pub(crate) fn from_membership(membership: &Membership) -> log::Membership {
    let configs = membership.get_joint_config().iter();
    log::Membership {
        configs: configs
            .map(|set| log::NodeSet {
                ids: set.iter().copied().collect(),
            })
            .collect(),
        nodes: membership
            .nodes()
            .map(|(id, birth)| (*id, birth.0.clone()))
            .collect(),
    }
}

/// `None` when a voter has no node or a set of voters is empty: such a membership cannot come from a log.
pub(crate) fn to_membership(membership: &log::Membership) -> Option<Membership> {
    if membership.configs.is_empty() && membership.nodes.is_empty() {
        return Some(Membership::default());
    }
    let configs: Vec<BTreeSet<u64>> = membership
        .configs
        .iter()
        .map(|set| set.ids.iter().copied().collect())
        .collect();
    let nodes: BTreeMap<u64, Birth> = membership
        .nodes
        .iter()
        .map(|(id, node)| (*id, Birth(node.clone())))
        .collect();
    Membership::new(configs, nodes).ok()
}

pub(crate) fn stored_membership(
    id: Option<&log::LogId>,
    membership: &log::Membership,
) -> Option<StoredMembership> {
    Some(StoredMembership::new(
        id.map(to_log_id),
        to_membership(membership)?,
    ))
}
