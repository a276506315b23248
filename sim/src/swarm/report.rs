//! Room `sim`, swarm: what runs did, one or many.

use crate::nemesis::{Counts, Fault};
use crate::observe::Sights;
use crate::trace::Trace;
use std::ops::AddAssign;
use std::time::Duration;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls answered.
    pub answered: u64,
    /// Calls refused.
    pub refused: u64,
    /// Calls of unknown outcome.
    pub unknown: u64,
    /// The newest revision at the end.
    pub revisions: i64,
    /// Faults injected and changes of members, by name.
    pub counts: Counts,
    /// Lives of members.
    pub lives: u64,
    /// What observers saw.
    pub sights: Sights,
    /// Leases that ended by themselves.
    pub expired: u64,
    /// Hashes compared with an earlier one of the same history.
    pub hashes: u64,
    /// Stretches of watches compared with the timeline.
    pub watches: u64,
    /// Elements in lists.
    pub appends: u64,
    /// Writes under a lock.
    pub locked_writes: u64,
    /// Offices that changed hands.
    pub elections: u64,
    /// Answers of hosts compared with earlier ones.
    pub host_answers: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Everything that happened, as a hash.
    pub trace: Trace,
}

impl AddAssign<&Report> for Report {
    /// Adds what another run did; the trace stays.
    fn add_assign(&mut self, r: &Report) {
        self.answered += r.answered;
        self.refused += r.refused;
        self.unknown += r.unknown;
        self.revisions += r.revisions;
        for (what, n) in &r.counts {
            *self.counts.entry(what).or_default() += n;
        }
        self.lives += r.lives;
        self.sights.terms += r.sights.terms;
        self.sights.entries += r.sights.entries;
        self.sights.states += r.sights.states;
        self.sights.snapshots += r.sights.snapshots;
        self.expired += r.expired;
        self.hashes += r.hashes;
        self.watches += r.watches;
        self.appends += r.appends;
        self.locked_writes += r.locked_writes;
        self.elections += r.elections;
        self.host_answers += r.host_answers;
        self.simulated += r.simulated;
    }
}

impl Report {
    /// A few lines for a person.
    pub fn summary(&self) -> String {
        let counts = self.counts.iter();
        let counts: Vec<String> = counts.map(|(what, n)| format!("{n} x {what}")).collect();
        format!(
            "clusters: {} calls answered, {} refused, {} of unknown outcome; {} revisions, {} lives, {} terms, \
             {} snapshots, {} leases that ended, {} list elements, {} writes under locks, \
             {} elections of clients\n\
             compared: {} log entries, {} states, {} hashes, {} stretches of watches, {} answers of hosts\n\
             happened: {}",
            self.answered,
            self.refused,
            self.unknown,
            self.revisions,
            self.lives,
            self.sights.terms,
            self.sights.snapshots,
            self.expired,
            self.appends,
            self.locked_writes,
            self.elections,
            self.sights.entries,
            self.sights.states,
            self.hashes,
            self.watches,
            self.host_answers,
            counts.join(", ")
        )
    }

    /// Faults and checks that never happened.
    pub fn never(&self) -> Vec<&'static str> {
        let faults = Fault::ALL.into_iter().map(Fault::name);
        let churn = [
            "learner added",
            "learner promoted",
            "voter added",
            "member removed",
        ];
        let counted = faults.chain(churn);
        let mut never: Vec<&str> = counted
            .filter(|what| !self.counts.contains_key(what))
            .collect();
        let checks = [
            ("snapshot", self.sights.snapshots),
            ("state compared", self.sights.states),
            ("list element", self.appends),
            ("write under a lock", self.locked_writes),
            ("election of clients", self.elections),
        ];
        never.extend(
            checks
                .into_iter()
                .filter(|(_, n)| *n == 0)
                .map(|(what, _)| what),
        );
        never
    }
}
