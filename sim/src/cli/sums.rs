//! Room `sim`, `tenon sim`: sums over the runs of many seeds.

use crate::l1::Report;
use crate::swarm;
use std::ops::AddAssign;
use std::time::Duration;

/// Sums over runs.
#[derive(Debug, Default)]
pub(super) struct Total {
    pub(super) seeds: u64,
    /// Seeds that were run again to compare their traces.
    pub(super) again: u64,
    pub(super) report: Report,
    pub(super) clusters: swarm::Report,
    pub(super) failed: Vec<u64>,
}

impl AddAssign<&Report> for Total {
    fn add_assign(&mut self, r: &Report) {
        let sum = &mut self.report;
        sum.answered += r.answered;
        sum.refused += r.refused;
        sum.unknown += r.unknown;
        sum.crashes += r.crashes;
        sum.orderly += r.orderly;
        sum.fatal += r.fatal;
        sum.cut_starts += r.cut_starts;
        sum.revisions += r.revisions;
        sum.pauses += r.pauses;
        sum.jumps += r.jumps;
        sum.full += r.full;
        sum.expired += r.expired;
        sum.hashes += r.hashes;
        sum.watches += r.watches;
        sum.disk_operations += r.disk_operations;
        sum.simulated += r.simulated;
    }
}

/// Prints what many seeds did, and what none of them did.
pub(super) fn summary(total: &Total, took: Duration) {
    let r = &total.report;
    let simulated = (r.simulated + total.clusters.simulated).as_secs_f64();
    let speed = simulated / took.as_secs_f64().max(0.001);
    println!(
        "{} seeds in {:.1} s: {simulated:.0} simulated seconds ({speed:.0} per second)",
        total.seeds,
        took.as_secs_f64()
    );
    println!(
        "calls: {} answered, {} refused, {} of unknown outcome; {} revisions",
        r.answered, r.refused, r.unknown, r.revisions
    );
    println!(
        "lives: {} crashed, {} ended in order, {} stopped by a disk error, {} starts cut short; \
         {} disk operations",
        r.crashes, r.orderly, r.fatal, r.cut_starts, r.disk_operations
    );
    println!(
        "troubles: {} pauses, {} jumps of clocks, {} full disks",
        r.pauses, r.jumps, r.full
    );
    println!(
        "compared: {} hashes, {} stretches of watches; {} leases ended by themselves",
        r.hashes, r.watches, r.expired
    );
    println!("{}", total.clusters.summary());
    let never: Vec<&str> = [
        ("crash", r.crashes),
        ("orderly end", r.orderly),
        ("disk error", r.fatal),
        ("cut start", r.cut_starts),
        ("pause", r.pauses),
        ("jump of a clock", r.jumps),
        ("full disk", r.full),
        ("unknown outcome", r.unknown),
        ("lease that ends", r.expired),
        ("hash compared", r.hashes),
    ]
    .into_iter()
    .filter_map(|(what, n)| (n == 0).then_some(what))
    .collect();
    let never: Vec<&str> = never.into_iter().chain(total.clusters.never()).collect();
    if !never.is_empty() {
        println!("never happened: {}", never.join(", "));
    }
    println!("run twice with one trace: {} seeds", total.again);
    match total.failed.as_slice() {
        [] => println!("every seed held"),
        failed => println!("failed: {failed:?}"),
    }
}
