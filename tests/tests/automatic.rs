//! Room `tests`: automatic membership on real processes: a first host alone, others that join by its address, a dead
//! voter replaced by a standby, a replaced one that comes back, an emptied disk. May touch processes and files; must
//! not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real files")]

use std::process::Command;
use tenon_tests::cluster::{Cluster, field};
use tenon_tests::server::tenon;

const FLAGS: &[&str] = &[
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--log-level=info",
    "--voters-target=3",
    "--replace-after=4s",
];

/// A further host, told the addresses of these; started.
fn join(cluster: &mut Cluster, told: &[usize]) -> usize {
    let at = cluster.push(FLAGS);
    tell(cluster, at, told);
    start(cluster, at);
    at
}

/// From its next start on a host knows these addresses.
fn tell(cluster: &mut Cluster, at: usize, told: &[usize]) {
    let urls: Vec<&str> = told
        .iter()
        .map(|n| cluster.members[*n].url.as_str())
        .collect();
    let endpoints = format!("--endpoints={}", urls.join(","));
    let flags = &mut cluster.members[at].flags;
    flags.retain(|flag| !flag.starts_with("--endpoints"));
    flags.push(endpoints);
}

fn start(cluster: &mut Cluster, at: usize) {
    let member = &cluster.members[at];
    let alone = format!("{}={}", member.name, member.peer_url);
    cluster.start(at, &alone, "new");
}

/// Waits until exactly these hosts vote; the list.
fn voters(cluster: &Cluster, asked: usize, expected: &[usize]) -> String {
    let good = |list: &str| {
        let is_there = |at: &usize| list.contains(&format!("\"{}\"", cluster.members[*at].name));
        expected.iter().all(is_there)
            && list.matches("peerURLs").count() == expected.len()
            && !list.contains("isLearner")
    };
    cluster.until(asked, "MemberList", "linearizable: true", good)
}

fn status(cluster: &Cluster, at: usize) -> String {
    let mut command = Command::new(tenon().expect("the program"));
    let url = &cluster.members[at].url;
    let ran = command.args(["host", "status", "--endpoint", url]).output();
    String::from_utf8_lossy(&ran.expect("tenon host runs").stdout).into_owned()
}

/// Waits until a host's status has this text.
fn says(cluster: &Cluster, at: usize, text: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !status(cluster, at).contains(text) {
        assert!(
            std::time::Instant::now() < deadline,
            "not {text:?}: {}; log: {}",
            status(cluster, at),
            cluster.log_end(at)
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn put(cluster: &Cluster, at: usize, value: &str) {
    cluster.call_soon(at, "Put", &format!("key: \"k\" value: \"{value}\""));
}

#[test]
fn hosts_find_their_places_and_fill_those_of_the_dead() {
    let mut cluster = Cluster::found(1, FLAGS);
    put(&cluster, 0, "one");
    for told in [vec![0], vec![0, 1]] {
        let at = join(&mut cluster, &told);
        let all: Vec<usize> = (0..=at).collect();
        voters(&cluster, 0, &all);
    }
    let standby = join(&mut cluster, &[0, 1]);
    says(
        &cluster,
        standby,
        "up to 3 voters; standby: 3 of 3 voters are there",
    );
    let mut by_hand = Command::new(tenon().expect("the program"));
    let url = &cluster.members[standby].url;
    by_hand.args(["host", "mode", "server", "--wait", "--endpoint", url]);
    let refused = by_hand.output().expect("tenon host runs");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("automatic membership decides"), "{why}");

    // A voter dies: the standby takes its place.
    cluster.kill(1);
    put(&cluster, 0, "two");
    voters(&cluster, 0, &[0, 2, standby]);
    says(&cluster, standby, "mode:         server");
    put(&cluster, standby, "three");

    // It comes back, and stands by.
    start(&mut cluster, 1);
    says(&cluster, 1, "standby: 3 of 3 voters are there");
    assert!(!cluster.data_dir(1).join("member").exists());
    let read = cluster.call_soon(1, "Range", "key: \"k\"");
    assert!(read.contains("value:\"three\""), "{read}");

    // The first host loses its disk.
    let former = cluster.id(0);
    cluster.kill(0);
    std::fs::remove_dir_all(cluster.data_dir(0)).expect("its data");
    tell(&mut cluster, 0, &[2, standby]);
    start(&mut cluster, 0);
    says(&cluster, 0, "votes");
    voters(&cluster, 2, &[0, 2, standby]);
    assert_ne!(cluster.id(0), former, "a new member");
    let read = cluster.call_soon(0, "Range", "key: \"k\"");
    assert!(read.contains("value:\"three\""), "{read}");
    let ids = [0, 2].map(|at| field(&cluster.call_soon(at, "Status", ""), "cluster_id"));
    assert_eq!(ids[0], ids[1], "one cluster");
}
