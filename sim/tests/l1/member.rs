//! A whole member: nothing acknowledged or shown is ever lost, whatever the disk does.

use tenon_sim::CrashMode;
use tenon_sim::l1::{Plan, run};

const MODES: [CrashMode; 3] = [CrashMode::Kept, CrashMode::Lost, CrashMode::Torn];

#[test]
fn two_hundred_seeds_of_crash_and_restart() {
    let mut failed = Vec::new();
    for seed in 0..200 {
        if let Err(finding) = run(seed, &Plan::of(seed)) {
            eprintln!("seed {seed}: {finding}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn a_crash_at_every_disk_operation() {
    let whole = run(1, &Plan::crash_at(u64::MAX / 2, CrashMode::Kept)).unwrap();
    let mut failed = Vec::new();
    for n in 1..=whole.disk_operations {
        for mode in MODES {
            if let Err(finding) = run(1, &Plan::crash_at(n, mode)) {
                eprintln!("operation {n}, {mode:?}: {finding}");
                failed.push((n, mode));
            }
        }
    }
    assert!(failed.is_empty(), "crashes that lost something: {failed:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 4, 5] {
        let first = run(seed, &Plan::of(seed)).unwrap();
        let second = run(seed, &Plan::of(seed)).unwrap();
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
