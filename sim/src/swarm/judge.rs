//! Room `sim`, swarm: the checkers read what everybody saw.

use super::report::Report;
use super::run::Scene;
use crate::check::modes::Modes;
use crate::check::reads::Answered;
use crate::check::{self, Finding};
use crate::history::Outcome;

impl Scene {
    pub(super) fn judge(self) -> Result<Report, Finding> {
        let calls = self.history.calls();
        let timeline = self.seen.timeline();
        let compaction = self.compaction();
        let last = timeline.last();
        let (model, expired) = check::writes::check(&calls, &timeline, compaction)?;
        check::reads::check(&calls, &model, compaction, last, Answered::ByAny)?;
        let hashes = check::hashes::check(&calls)?;
        if !self.plan.hastens() {
            let fast = self.plan.fast_percent();
            check::leases::check(&calls, &expired, &self.seen.seen_at(), fast)?;
        }
        let watched = self.seen.watched();
        for watched in &watched {
            check::watches::check(watched, &timeline)?;
        }
        let appends = check::appends::check(&calls, &timeline)?;
        let locked_writes = check::locks::check(&timeline, &model)?;
        let elections = check::elections::check(&timeline, &model)?;
        let sim = self.world.sim().clone();
        let mut report = Report {
            revisions: last,
            counts: self.record.counts(),
            lives: self.world.exits().len() as u64 + self.world.all_serving().len() as u64,
            sights: self.observer.sights(),
            expired: expired.len() as u64,
            hashes,
            watches: watched.len() as u64,
            appends,
            locked_writes,
            elections,
            host_answers: self.modes.as_ref().map_or(0, Modes::answers),
            simulated: sim.now(),
            ..Report::default()
        };
        for call in &calls {
            match call.outcome {
                Outcome::Reply(_) => report.answered += 1,
                Outcome::Refused(_) => report.refused += 1,
                Outcome::Unknown => report.unknown += 1,
            }
        }
        sim.note(&[report.answered, report.unknown, last as u64]);
        report.trace = sim.trace();
        Ok(report)
    }

    /// How far history may have been given up: by a client, or by the members themselves.
    fn compaction(&self) -> i64 {
        let own = self.world.all_serving().into_iter();
        let own = own.filter_map(|node| self.world.running(node));
        let own = own.map(|r| r.member.services().context.store().compact_revision().get());
        own.max().unwrap_or(0).max(self.history.compaction())
    }
}
