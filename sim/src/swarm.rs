//! Room `sim`: whole runs of clusters, from one seed to a verdict. Every seed draws its own swarm of options: how
//! many members, how fast, which faults and how often, which work, which features; no two look alike, and what is
//! rare in one is common in another.
//!
//! A run:
//! 1. the founders start and serve;
//! 2. callers call, lists grow, locks change hands, watchers watch, members come and go, while the nemesis rages;
//! 3. a quorum is healed and the rest is left dead: it must elect a leader and take writes;
//! 4. everything is healed: everybody must serve, hold the same state, and forget the leases that ended;
//! 5. the checkers read what everybody saw.
//!
//! What is planted on purpose ([`tenon_env::Plant`]) is the proof that the checkers would notice.

mod hosts;
mod judge;
mod plan;
mod report;
mod rest;
mod run;

pub use plan::Plan;
pub use report::Report;
pub(crate) use run::run_within;
pub use run::{run, run_told};
