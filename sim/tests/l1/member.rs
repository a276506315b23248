//! A whole member: nothing acknowledged or shown is ever lost, whatever the disk does.

use std::panic::catch_unwind;
use std::time::Duration;
use tenon_sim::CrashMode;
use tenon_sim::l1::{End, Plan, run};

fn seeds(seeds: std::ops::Range<u64>) {
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(finding) = run(seed, &Plan::of(seed)) {
            eprintln!("seed {seed}: {finding}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

/// Together two hundred seeds of crash and restart, in parts that run beside each other.
#[test]
fn seeds_to_50() {
    seeds(0..50);
}

#[test]
fn seeds_to_100() {
    seeds(50..100);
}

#[test]
fn seeds_to_150() {
    seeds(100..150);
}

#[test]
fn seeds_to_200() {
    seeds(150..200);
}

fn crash_at_every_operation(mode: CrashMode) {
    let whole = run(1, &Plan::crash_at(u64::MAX / 2, mode)).unwrap();
    assert!(
        whole.answered > 30 && whole.disk_operations > 60,
        "too little work: {whole:?}"
    );
    let mut failed = Vec::new();
    for n in 1..=whole.disk_operations {
        if let Err(finding) = run(1, &Plan::crash_at(n, mode)) {
            eprintln!("operation {n}, {mode:?}: {finding}");
            failed.push(n);
        }
    }
    assert!(
        failed.is_empty(),
        "crashes that lost something, {mode:?}: {failed:?}"
    );
}

#[test]
fn a_kill_at_every_disk_operation() {
    crash_at_every_operation(CrashMode::Kept);
}

#[test]
fn a_power_cut_at_every_disk_operation() {
    crash_at_every_operation(CrashMode::Lost);
}

#[test]
fn a_torn_write_at_every_disk_operation() {
    crash_at_every_operation(CrashMode::Torn);
}

#[test]
fn a_kill_at_every_operation_of_the_first_start_and_then_a_power_cut() {
    for n in 1..60 {
        let plan = Plan::crash_at_and_cut(n, CrashMode::Kept);
        run(2, &plan).unwrap_or_else(|finding| panic!("operation {n}: {finding}"));
    }
}

/// Seeds that once failed, with what they found.
///
/// - 1: the data directory's own name was never synced and vanished with the power.
/// - 26, 28, 142: a replay larger than the store's memory waited for a drain that waited for the log.
/// - 99: the log asked for a snapshot of an engine that held nothing, which ended raft.
#[test]
fn seeds_that_once_failed() {
    for seed in [1, 26, 28, 99, 142] {
        run(seed, &Plan::of(seed)).unwrap_or_else(|finding| panic!("seed {seed}: {finding}"));
    }
}

/// The proof that a loss would be noticed: on a disk whose syncs do nothing, losses are.
#[test]
fn a_disk_that_lies_is_noticed() {
    let noticed = |seed: &u64| {
        let mut plan = Plan::of(*seed);
        plan.lives.truncate(1);
        let life = &mut plan.lives[0];
        life.end = End::At(Duration::from_millis(800), CrashMode::Lost);
        (life.lies, life.fail_sync, life.pause) = (true, None, None);
        catch_unwind(|| run(*seed, &plan)).is_ok_and(|ran| ran.is_err())
    };
    let noticed = (0..10).filter(noticed).count();
    assert!(noticed >= 8, "only {noticed} of 10 seeds noticed");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 4, 5] {
        let first = run(seed, &Plan::of(seed)).unwrap();
        let second = run(seed, &Plan::of(seed)).unwrap();
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
