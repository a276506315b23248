//! Room `sim`: the examples of the guide hold as they stand, and each shows its bug when asked for it.

#[path = "../../examples/config.rs"]
#[allow(dead_code, reason = "the example's main")]
mod config;
#[path = "../../examples/worker.rs"]
#[allow(dead_code, reason = "the example's main")]
mod worker;

use config::Resume;
use worker::Care;

/// A bug must show within so many seeds.
const SEEDS: u64 = 10;

#[test]
fn a_fenced_worker_never_acts_on_an_old_lease() {
    for seed in 1..=2 {
        let (result, _) = worker::run(seed, Care::Fenced);
        let orders = result.unwrap_or_else(|violation| panic!("{violation}"));
        assert!(orders > 20, "seed {seed}: only {orders} orders");
    }
}

#[test]
fn a_trusting_worker_is_found() {
    let found = (1..=SEEDS).find_map(|seed| {
        let (result, cluster) = worker::run(seed, Care::Trusting);
        Some((result.err()?, cluster))
    });
    let (violation, cluster) = found.expect("the bug shows");
    let what = &violation.what;
    assert!(what.starts_with("nobody acts on an old lease: "), "{what}");
    // The same seed shows the same, and the page tells of it.
    let again = worker::run(violation.seed, Care::Trusting);
    assert_eq!(again.0, Err(violation.clone()));
    let html = cluster.html();
    assert_eq!(html, again.1.html());
    assert!(html.contains(what) && html.contains("bar paused"));
}

#[test]
fn a_watcher_that_resumes_where_it_was_misses_nothing() {
    for seed in 1..=2 {
        let (result, _) = config::run(seed, Resume::AfterLast);
        let changes = result.unwrap_or_else(|violation| panic!("{violation}"));
        assert!(changes > 20, "seed {seed}: only {changes} changes");
    }
}

#[test]
fn a_watcher_that_resumes_from_now_is_found() {
    let found = (1..=SEEDS).find_map(|seed| config::run(seed, Resume::FromNow).0.err());
    let what = found.expect("the bug shows").what;
    assert!(
        what.starts_with("no change is missed: after setting "),
        "{what}"
    );
}
