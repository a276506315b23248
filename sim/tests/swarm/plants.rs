//! Planted mistakes: each must be noticed within so many seeds, and the same plans hold without it.

use crate::seeds::outcome;
use tenon_env::Plant;
use tenon_sim::swarm::Plan;

/// What the first seed that notices the mistake says, of at most `most` seeds.
fn noticed(plant: Plant, most: u64) -> String {
    for seed in 1..=most {
        if let Err(why) = outcome(seed, &Plan::proving(plant, seed)) {
            let first: String = why.chars().take(300).collect();
            println!("{plant:?}, seed {seed}: {first}");
            return why;
        }
    }
    panic!("{plant:?} was not noticed within {most} seeds");
}

#[test]
fn without_the_mistake_the_same_plans_hold() {
    for plant in [
        Plant::AcknowledgeBeforeSync,
        Plant::SkipVoteSync,
        Plant::GrantPreVote,
        Plant::PromoteEmptyLearner,
        Plant::DropWatchEvent,
    ] {
        let mut plan = Plan::proving(plant, 1);
        plan.plant = Plant::None;
        let held = outcome(1, &plan);
        assert!(held.is_ok(), "the plan for {plant:?}: {held:?}");
    }
}

#[test]
fn acknowledge_before_sync() {
    noticed(Plant::AcknowledgeBeforeSync, 8);
}

#[test]
fn skip_a_votes_sync() {
    noticed(Plant::SkipVoteSync, 20);
}

#[test]
fn grant_pre_vote() {
    let why = noticed(Plant::GrantPreVote, 3);
    assert!(why.contains("lost its office"), "{why}");
}

#[test]
fn reuse_a_revision() {
    noticed(Plant::ReuseRevision, 2);
}

#[test]
fn drop_a_watch_event() {
    noticed(Plant::DropWatchEvent, 2);
}

#[test]
fn promote_an_empty_learner() {
    let why = noticed(Plant::PromoteEmptyLearner, 16);
    assert!(why.contains("got a vote with"), "{why}");
}

#[test]
fn serve_a_stale_read() {
    noticed(Plant::StaleRead, 3);
}

#[test]
fn drain_the_engine_past_the_log() {
    noticed(Plant::DrainPastLog, 3);
}

#[test]
fn restore_a_leader() {
    noticed(Plant::RestoreLeader, 4);
}
