//! Room `sim`, L2: the server as `tenon serve` runs it, tonic, hyper and h2 included, and its clients on turmoil's
//! simulated network; time is tokio's, paused and moved by turmoil. L1 proves the core with thousands of seeds; this
//! layer proves what L1 leaves out: streams, pings, deadlines, limits, reconnects, with tens of seeds.
//!
//! Every scenario follows from its seed and is run twice: both runs must tell the same story, line for line.
#![allow(
    clippy::disallowed_methods,
    reason = "L2 runs on tokio, whose time turmoil simulates"
)]

mod calls;
mod dial;
mod disk;
mod drain;
mod env;
mod leases;
mod limits;
mod storms;
mod story;
mod world;

use std::ops::RangeInclusive;
use story::Story;

/// Runs a scenario twice with each seed.
fn each(seeds: RangeInclusive<u64>, scenario: impl Fn(u64) -> Story) {
    for seed in seeds {
        let (one, other) = (scenario(seed), scenario(seed));
        if let Some(at) = story::parting(&one, &other) {
            panic!("seed {seed} told two stories; {at}");
        }
    }
}
