//! Seeds that must hold. More of them run by `tenon sim --seeds`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tenon_sim::panic_text;
use tenon_sim::swarm::{Plan, Report, run};

/// Runs one plan; a panic is a failure like any other.
pub fn outcome(seed: u64, plan: &Plan) -> Result<Report, String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed, plan))) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(finding)) => Err(finding.to_string()),
        Err(panic) => Err(format!("panicked: {}", panic_text(&*panic))),
    }
}

/// Runs seeds, all of which must hold, and shows what they did.
fn seeds(seeds: std::ops::RangeInclusive<u64>) {
    let mut total = Report::default();
    let mut failed = Vec::new();
    for seed in seeds {
        match outcome(seed, &Plan::of(seed)) {
            Ok(report) => total += &report,
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                failed.push(seed);
            }
        }
    }
    println!("{}", total.summary());
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn seeds_to_125() {
    seeds(1..=125);
}

#[test]
fn seeds_to_250() {
    seeds(126..=250);
}

#[test]
fn seeds_to_375() {
    seeds(251..=375);
}

#[test]
fn seeds_to_500() {
    seeds(376..=500);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = || outcome(6, &Plan::of(6)).unwrap().trace;
    assert_eq!(trace(), trace());
}
