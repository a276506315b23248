//! Checker: what holds for hosts that switch between server and client.
//!
//! - Storage is never taken away before the removal of its member is committed.
//! - An id whose storage went, or was lost, never runs again; an id whose removal is committed has no vote in any
//!   later term.
//! - What one host answers never goes back: no answer has a lower revision or term than another one that the host had
//!   given before it was asked. A member that was killed may, without a quorum, serve *local* reads that are older than
//!   before; those are compared with the answers of one life.
//!
//! Told by those who look at hosts; it looks at nothing itself.

use super::{Verdict, require};
use crate::NodeId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenon_proto::etcdserverpb::ResponseHeader;
use tenon_proto::ids::{MemberId, Term};

/// What a host had answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answered {
    revision: i64,
    term: u64,
}

impl Answered {
    fn raise(&mut self, header: &ResponseHeader) {
        self.revision = self.revision.max(header.revision);
        self.term = self.term.max(header.raft_term);
    }
}

/// How far back an answer may not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// No answer of this host, whenever.
    Never,
    /// No answer of this life of the host.
    InThisLife,
}

/// A question put to a host.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    node: NodeId,
    life: u64,
    before: Answered,
}

#[derive(Debug, Default)]
struct Inner {
    ever: BTreeMap<NodeId, Answered>,
    lives: BTreeMap<(NodeId, u64), Answered>,
    answers: u64,
    /// Members whose removal is committed, and a term by which it was.
    removed: BTreeMap<MemberId, Term>,
    /// Whose storage stands on a node, and what identifies it there.
    homes: BTreeMap<NodeId, (MemberId, Vec<u8>)>,
    /// Whose storage stood on a node and went.
    gone: BTreeMap<MemberId, (NodeId, Vec<u8>)>,
    /// Whose storage a broken disk took.
    lost: BTreeSet<MemberId>,
}

/// What is known of all hosts of a run. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Modes(Arc<Mutex<Inner>>);

impl Modes {
    /// A host is asked, in a life of its node.
    pub fn ask(&self, node: NodeId, life: u64, behind: Behind) -> Asked {
        let inner = self.0.lock();
        let before = match behind {
            Behind::Never => inner.ever.get(&node),
            Behind::InThisLife => inner.lives.get(&(node, life)),
        };
        Asked {
            node,
            life,
            before: before.copied().unwrap_or_default(),
        }
    }

    /// It answered. Revision 0 says nothing.
    ///
    /// # Errors
    /// When the answer is older than one given before it was asked.
    pub fn answered(&self, asked: &Asked, header: &ResponseHeader) -> Verdict {
        let mut inner = self.0.lock();
        inner.answers += 1;
        let (node, before) = (asked.node, asked.before);
        inner.ever.entry(node).or_default().raise(header);
        let lives = &mut inner.lives;
        lives.entry((node, asked.life)).or_default().raise(header);
        let (revision, term) = (header.revision, header.raft_term);
        let holds = (revision == 0 || revision >= before.revision) && term >= before.term;
        require(holds, || {
            format!(
                "the host of {node} answered revision {revision} of term {term}, and had answered revision {} \
                 of term {}",
                before.revision, before.term
            )
        })
    }

    /// A member has applied the removal of these, in this term or before.
    pub fn removed(&self, ids: &[MemberId], term: Term) {
        let mut inner = self.0.lock();
        for id in ids {
            let at = inner.removed.entry(*id).or_insert(term);
            *at = term.min(*at);
        }
    }

    /// A member runs on a node, on this storage.
    ///
    /// # Errors
    /// When it must not.
    pub fn attached(&self, node: NodeId, id: MemberId, storage: Option<Vec<u8>>) -> Verdict {
        let mut inner = self.0.lock();
        let gone = inner.gone.get(&id).map(|(at, _)| *at);
        let lost = inner.lost.contains(&id);
        if let Some(storage) = storage {
            inner.homes.insert(node, (id, storage));
        }
        require(gone.is_none() && !lost, || {
            format!("member {id}, whose storage went, runs again on {node}")
        })
    }

    /// What stands on a node's disk now.
    ///
    /// # Errors
    /// When storage went whose member was not removed.
    pub fn stands(&self, node: NodeId, storage: Option<&[u8]>) -> Verdict {
        let mut inner = self.0.lock();
        if let Some(storage) = storage {
            // A crash that undid the rename brings it back.
            let back = |(_, (at, was)): &(&MemberId, &(NodeId, Vec<u8>))| {
                *at == node && was.as_slice() == storage
            };
            let back = inner.gone.iter().find(back).map(|(id, _)| *id);
            if let Some(id) = back
                && let Some((_, was)) = inner.gone.remove(&id)
            {
                inner.homes.insert(node, (id, was));
            }
        }
        let Some((id, was)) = inner.homes.get(&node).cloned() else {
            return Ok(());
        };
        if storage == Some(was.as_slice()) {
            return Ok(());
        }
        inner.homes.remove(&node);
        inner.gone.insert(id, (node, was));
        require(inner.removed.contains_key(&id), || {
            format!("{node} took the storage of member {id} away before its removal was committed")
        })
    }

    /// A broken disk took a node's storage.
    pub fn lost(&self, node: NodeId) {
        let mut inner = self.0.lock();
        if let Some((id, _)) = inner.homes.remove(&node) {
            inner.lost.insert(id);
        }
    }

    /// A member leads a term, with these voters.
    ///
    /// # Errors
    /// When one of them was removed in an earlier term.
    pub fn led(&self, term: Term, leader: MemberId, voters: &BTreeSet<MemberId>) -> Verdict {
        let inner = self.0.lock();
        let mut all = voters.iter().chain([&leader]);
        let wrong = all.find(|id| inner.removed.get(id).is_some_and(|at| *at < term));
        require(wrong.is_none(), || {
            format!("member {wrong:?} was removed and votes in term {term} of {leader}")
        })
    }

    /// How many answers were compared.
    pub fn answers(&self) -> u64 {
        self.0.lock().answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(revision: i64, raft_term: u64) -> ResponseHeader {
        ResponseHeader {
            revision,
            raft_term,
            ..Default::default()
        }
    }

    #[test]
    fn answers_that_go_back_are_noticed_those_under_way_are_not() {
        let modes = Modes::default();
        let node = NodeId(1);
        let early = modes.ask(node, 1, Behind::Never);
        let first = modes.ask(node, 1, Behind::Never);
        assert!(modes.answered(&first, &header(7, 2)).is_ok());
        assert!(modes.answered(&early, &header(5, 1)).is_ok());
        let later = modes.ask(node, 1, Behind::Never);
        assert!(modes.answered(&later, &header(6, 2)).is_err());
        assert!(modes.answered(&later, &header(7, 1)).is_err());
        assert!(modes.answered(&later, &header(0, 2)).is_ok());
        let other_life = modes.ask(node, 2, Behind::InThisLife);
        assert!(modes.answered(&other_life, &header(6, 1)).is_ok());
        let other_host = modes.ask(NodeId(2), 1, Behind::Never);
        assert!(modes.answered(&other_host, &header(1, 1)).is_ok());
    }

    #[test]
    fn storage_goes_after_the_removal_and_never_comes_back() {
        let (modes, node, id) = (Modes::default(), NodeId(1), MemberId(7));
        modes.attached(node, id, Some(vec![7])).unwrap();
        assert!(modes.stands(node, Some(&[7])).is_ok());
        assert!(modes.stands(node, None).is_err());
        // The power failed before the rename was durable.
        assert!(modes.stands(node, Some(&[7])).is_ok());
        assert!(modes.attached(node, id, Some(vec![7])).is_ok());
        modes.removed(&[id], Term(3));
        assert!(modes.stands(node, Some(&[8])).is_ok());
        assert!(modes.attached(node, id, Some(vec![9])).is_err());
    }

    #[test]
    fn a_removed_member_has_no_vote_later() {
        let modes = Modes::default();
        modes.removed(&[MemberId(7)], Term(3));
        let voters = BTreeSet::from([MemberId(1), MemberId(7)]);
        assert!(modes.led(Term(3), MemberId(1), &voters).is_ok());
        assert!(modes.led(Term(4), MemberId(1), &voters).is_err());
        assert!(modes.led(Term(4), MemberId(7), &BTreeSet::new()).is_err());
    }

    #[test]
    fn lost_storage_never_runs_again() {
        let (modes, node, id) = (Modes::default(), NodeId(1), MemberId(7));
        modes.attached(node, id, Some(vec![7])).unwrap();
        modes.lost(node);
        assert!(modes.stands(node, None).is_ok());
        assert!(modes.attached(node, id, Some(vec![7])).is_err());
    }
}
