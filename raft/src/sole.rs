//! Room `raft`: whether this member alone decides, so that a linearizable read needs no round. Pure state;
//! the log store and the state machine report to it *before* openraft can act on what they report.
//!
//! While this member leads and the newest membership in its log has it as the only voter, nothing can be
//! acknowledged by anyone else: another voter needs an entry in this log first, and another leader needs
//! this member's vote. Both pass through here before they leave the member.
//!
//! - `alone` is true only if: the newest saved vote is this member's, granted; the newest membership
//!   appended (not merely applied) names it as the only voter; an entry of the vote's term is applied.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reports in, one answer out.
pub(crate) struct Sole {
    member: u64,
    alone: AtomicBool,
    facts: Mutex<Facts>,
}

#[derive(Default)]
struct Facts {
    /// Term that this member leads; `None` when it does not.
    leads: Option<u64>,
    /// Index of the newest membership seen, and whether this member is its only voter.
    membership: Option<(u64, bool)>,
    /// Term of the newest applied entry.
    applied_term: Option<u64>,
    closed: bool,
}

impl Sole {
    pub(crate) fn new(member: u64) -> Sole {
        Sole {
            member,
            alone: AtomicBool::new(false),
            facts: Mutex::new(Facts::default()),
        }
    }

    /// Whether the applied state may be read as it is, this moment.
    pub(crate) fn alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    fn update(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock();
        change(&mut facts);
        let alone = !facts.closed
            && facts.leads.is_some()
            && facts.applied_term == facts.leads
            && facts.membership.is_some_and(|(_, only_me)| only_me);
        self.alone.store(alone, Ordering::Release);
    }

    /// A vote is about to be saved.
    pub(crate) fn on_vote(&self, term: u64, node: u64, granted: bool) {
        let leads = (granted && node == self.member).then_some(term);
        self.update(|facts| facts.leads = leads);
    }

    /// A membership is about to be appended, or is known to be in the log. Older ones are ignored.
    pub(crate) fn on_membership(&self, index: u64, voters: &[u64]) {
        let only_me = voters == [self.member];
        self.update(|facts| {
            if facts.membership.is_none_or(|(known, _)| known <= index) {
                facts.membership = Some((index, only_me));
            }
        });
    }

    /// The log lost its end: the newest membership may be an older one now, so nothing is assumed until
    /// one is appended again.
    pub(crate) fn on_truncate(&self) {
        self.update(|facts| facts.membership = facts.membership.map(|(index, _)| (index, false)));
    }

    /// Entries up to one of this term are applied.
    pub(crate) fn on_applied(&self, term: u64) {
        self.update(|facts| facts.applied_term = Some(term));
    }

    /// The member stops.
    pub(crate) fn close(&self) {
        self.update(|facts| facts.closed = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading_alone() -> Sole {
        let sole = Sole::new(7);
        sole.on_membership(0, &[7]);
        sole.on_vote(3, 7, false);
        sole.on_vote(3, 7, true);
        sole.on_applied(3);
        assert!(sole.alone());
        sole
    }

    #[test]
    fn every_condition_is_needed() {
        let sole = Sole::new(7);
        sole.on_vote(3, 7, true);
        sole.on_applied(3);
        assert!(!sole.alone(), "no membership yet");
        sole.on_membership(0, &[7]);
        assert!(sole.alone());
        let sole = Sole::new(7);
        sole.on_membership(0, &[7]);
        sole.on_applied(2);
        assert!(!sole.alone(), "not elected");
        sole.on_vote(3, 7, true);
        assert!(!sole.alone(), "nothing of this term applied");
        sole.on_applied(3);
        assert!(sole.alone());
    }

    #[test]
    fn whatever_lets_another_decide_ends_it() {
        let sole = leading_alone();
        sole.on_membership(9, &[7, 8]);
        assert!(!sole.alone(), "a second voter is on its way");
        sole.on_membership(4, &[7]);
        assert!(!sole.alone(), "older news changes nothing");
        sole.on_membership(12, &[7]);
        assert!(sole.alone());

        let sole = leading_alone();
        sole.on_vote(4, 8, false);
        assert!(!sole.alone(), "voted for another");
        let sole = leading_alone();
        sole.on_vote(4, 7, false);
        assert!(!sole.alone(), "asks for votes again");
        let sole = leading_alone();
        sole.on_truncate();
        assert!(!sole.alone());
        let sole = leading_alone();
        sole.close();
        assert!(!sole.alone());
    }
}
