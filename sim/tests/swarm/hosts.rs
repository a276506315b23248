//! Seeds of hosts that switch modes, which must hold. More of them run by `tenon sim --hosts --seeds`.

use crate::seeds::outcome;
use tenon_sim::swarm::{Plan, Report};

/// Runs seeds, all of which must hold, and shows what they did.
fn seeds(seeds: std::ops::RangeInclusive<u64>) {
    let mut total = Report::default();
    let mut failed = Vec::new();
    for seed in seeds {
        match outcome(seed, &Plan::hosts(seed)) {
            Ok(report) => total += &report,
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                failed.push(seed);
            }
        }
    }
    println!("{}", total.summary());
    assert!(failed.is_empty(), "seeds of hosts that failed: {failed:?}");
}

#[test]
fn seeds_of_hosts_to_250() {
    seeds(1..=250);
}

#[test]
fn seeds_of_hosts_to_500() {
    seeds(251..=500);
}
