//! Checker: one leader per term. Told of every member that leads, as it thinks itself, and of the leader that
//! every log entry names.

use super::{Verdict, require};
use std::collections::BTreeMap;
use tenon_proto::ids::{MemberId, Term};

/// Who led which term.
#[derive(Clone, Debug, Default)]
pub struct Leaders(BTreeMap<Term, MemberId>);

impl Leaders {
    /// Notes that `member` leads, or led, `term`.
    pub fn led(&mut self, term: Term, member: MemberId) -> Verdict {
        let held = *self.0.entry(term).or_insert(member);
        require(held == member, || {
            format!("term {term} was led by {held} and by {member}")
        })
    }

    /// How many terms had a leader.
    pub fn terms(&self) -> u64 {
        self.0.len() as u64
    }
}
