//! Seeds of hosts that switch modes, which must hold (more of them run by `tenon sim --hosts --seeds`), those that once
//! failed, and planted tables of edges that the `mode` checker must notice.

use crate::seeds::outcome;
use std::time::Duration;
use tenon_server::host::edges::{Answers, Edges, Step};
use tenon_sim::nemesis::Fault;
use tenon_sim::swarm::{Plan, Report};

/// Simulated time of troubles in CI.
const TROUBLES: Duration = Duration::from_secs(4);

/// Seeds that once failed, their seconds of troubles, whether candidates for offices took part, and the subject of the
/// commit that mended them.
const KEPT: [(u64, u64, bool, &str); 14] = [
    (
        5,
        8,
        false,
        "host: a leader that became the last voter says so",
    ),
    (
        14,
        8,
        false,
        "host: a client mode that ends while its look-up waits does not lock up",
    ),
    (
        22,
        8,
        false,
        "host: hosts that all moved their endpoints away come home",
    ),
    (47, 8, false, "host: whoever has a vote becomes a server"),
    (52, 8, false, "host: whoever has a vote becomes a server"),
    (
        63,
        8,
        false,
        "host: a learner of which its host never heard is removed",
    ),
    (
        316,
        4,
        true,
        "host: what hosts say of each other stays short",
    ),
    (
        366,
        4,
        true,
        "host: what an earlier attempt left may become the host's own",
    ),
    (
        437,
        4,
        true,
        "host: a removal that a clean-up asked for may come into force when the host is a server after all",
    ),
    (
        455,
        8,
        true,
        "host: the member that answered by a quorum is asked directly",
    ),
    (
        1016,
        8,
        true,
        "raft: a forwarded write that is not applied here is not answered",
    ),
    (
        2711,
        8,
        true,
        "host: a voter of a client whose disk fails ends the host",
    ),
    (
        4041,
        8,
        true,
        "host: a voter of a client whose disk fails ends the host",
    ),
    (
        4099,
        8,
        true,
        "host: a renewal that waited since a move is lifted to what was answered",
    ),
];

/// Runs seeds, all of which must hold, and shows what they did.
fn seeds(seeds: std::ops::RangeInclusive<u64>) {
    let mut total = Report::default();
    let mut failed = Vec::new();
    for seed in seeds {
        match outcome(seed, &Plan::hosts_lasting(seed, TROUBLES)) {
            Ok(report) => total += &report,
            Err(why) => {
                eprintln!("seed {seed} of hosts: {why}");
                failed.push(seed);
            }
        }
    }
    println!("{}", total.summary());
    assert!(failed.is_empty(), "seeds of hosts that failed: {failed:?}");
    assert!(total.host_answers > 0);
}

#[test]
fn seeds_of_hosts_to_250() {
    seeds(1..=250);
}

#[test]
fn seeds_of_hosts_to_500() {
    seeds(251..=500);
}

#[test]
fn seeds_of_hosts_that_once_failed_hold() {
    for (seed, seconds, candidates, mended) in KEPT {
        let mut plan = Plan::hosts_lasting(seed, Duration::from_secs(seconds));
        if !candidates {
            plan.electors = 0;
        }
        if let Err(why) = outcome(seed, &plan) {
            panic!("seed {seed} of hosts fails again, once mended by {mended:?}: {why}");
        }
    }
}

#[test]
fn the_same_seed_of_hosts_gives_the_same_trace() {
    let trace = || outcome(3, &Plan::hosts(3)).unwrap().trace;
    assert_eq!(trace(), trace());
}

/// A run that gives a planted table of edges occasion to show.
fn proving(seed: u64, edges: &Edges) -> Plan {
    let mut plan = Plan::hosts_lasting(seed, TROUBLES);
    plan.world.founders = 3;
    // Members that are behind and yet know a leader, asked by hosts that go from one to another.
    plan.world.heartbeat = Duration::from_millis(100);
    plan.world.election = Duration::from_millis(1_000);
    plan.faults = vec![
        Fault::Isolate,
        Fault::IsolateLeader,
        Fault::Split,
        Fault::OneWay,
    ];
    plan.every = Duration::from_millis(300);
    plan.think = Duration::from_millis(20);
    plan.patience = Duration::from_millis(1_500);
    plan.mix = tenon_sim::workload::Mix {
        puts: 30,
        deletes: 0,
        ranges: 70,
        txns: 0,
        compactions: 0,
        hashes: 0,
        leases: 0,
    };
    plan.callers = (8, 1_000);
    let switching = plan.switching.as_mut().expect("a plan of hosts");
    switching.every = Duration::from_millis(400);
    (switching.accidents_ppm, switching.loses_disk) = (0, false);
    let hosts = plan.world.hosts.as_mut().expect("a world of hosts");
    hosts.edges = edges.clone();
    plan
}

/// What the first seed that notices the planted table says, of at most `most` seeds; the product holds them all.
fn noticed(edges: &Edges, most: u64, wanted: &[&str]) {
    let mut said = Vec::new();
    for seed in 1..=most {
        if let Err(why) = outcome(seed, &proving(seed, edges)) {
            let why: String = why.chars().take(300).collect();
            println!("seed {seed}: {why}");
            if wanted.iter().any(|wanted| why.contains(wanted)) {
                return;
            }
            said.push(why);
        }
    }
    panic!("not noticed within {most} seeds; said: {said:?}");
}

#[test]
fn storage_that_goes_before_the_removal_is_noticed() {
    let mut edges = Edges::default();
    for edge in &mut edges.edges {
        if let Some(detach) = edge.steps.iter().position(|s| *s == Step::Detach) {
            edge.steps.remove(detach);
            let removes = edge.steps.iter().position(|s| *s == Step::RemoveSelf);
            edge.steps.insert(removes.expect("a removal"), Step::Detach);
        }
    }
    noticed(&edges, 4, &["away before its removal was committed"]);
}

#[test]
fn answers_that_go_back_are_noticed() {
    let edges = Edges {
        answers: Answers::AsTheyCome,
        ..Edges::default()
    };
    noticed(&edges, 128, &["and had answered revision"]);
}

#[test]
fn the_product_holds_the_same_plans() {
    for seed in 1..=2 {
        let held = outcome(seed, &proving(seed, &Edges::default()));
        assert!(held.is_ok(), "seed {seed}: {held:?}");
    }
}
