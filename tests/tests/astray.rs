//! Room `tests`: members of three that went astray: one whose data became another while it was down, and one that was
//! away for longer than the log reaches back. May touch processes and files; must not look inside.
//!
//! `TENON_AWAY_WRITES` (20000) and `TENON_AWAY_CLIENTS` (50) change the second.

#![allow(clippy::disallowed_methods, reason = "real processes, real files")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenon_tests::call::{self, Metadata};
use tenon_tests::cluster::{Cluster, field};
use tenon_tests::parallel::Repeated;
use tenon_tests::schema::Schema;

const FLAGS: &[&str] = &[
    "--heartbeat-interval=100",
    "--election-timeout=1000",
    "--snapshot-catchup-entries=100",
    "--log-level=warn",
];
const ALL: [usize; 3] = [0, 1, 2];
/// Two histories from one state must end at the same position of the log; a further election spoils one.
const TRIES: u32 = 8;
/// How long a member may take to come back while puts go on.
const BACK_WITHIN: Duration = Duration::from_secs(600);

fn copy(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).expect("removed");
    }
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn start_all(cluster: &mut Cluster) {
    let list = cluster.list();
    ALL.into_iter()
        .for_each(|at| cluster.start(at, &list, "new"));
    ALL.into_iter().for_each(|at| cluster.wait_serving(at));
}

fn kill_all(cluster: &mut Cluster) {
    ALL.into_iter().for_each(|at| cluster.kill(at));
}

/// From the state in `saved` the history in which `x` is `value`; where the log ends then, when all agree on it.
fn live(cluster: &mut Cluster, saved: &Path, value: &str) -> Option<(u64, u64)> {
    for at in ALL {
        copy(&saved.join(at.to_string()), &cluster.data_dir(at));
    }
    start_all(cluster);
    cluster.call_soon(0, "Put", &format!("key: \"x\" value: \"{value}\""));
    let mut ends = Vec::new();
    for at in ALL {
        let own = "key: \"x\" serializable: true";
        cluster.until(at, "Range", own, |text| {
            text.contains(&format!("value:\"{value}\""))
        });
        let status = cluster.call_soon(at, "Status", "");
        ends.push((field(&status, "raftTerm")?, field(&status, "raftIndex")?));
    }
    kill_all(cluster);
    ends.iter().all(|end| *end == ends[0]).then_some(ends[0])
}

/// A cluster, all down, whose third member holds another value at the same position of the log.
fn diverged() -> Cluster {
    let mut cluster = Cluster::found(3, FLAGS);
    cluster.call_soon(0, "Put", "key: \"a\" value: \"0\"");
    let saved = tempfile::tempdir().expect("a folder");
    kill_all(&mut cluster);
    for at in ALL {
        copy(&cluster.data_dir(at), &saved.path().join(at.to_string()));
    }
    let other = saved.path().join("other");
    for _ in 0..TRIES {
        let first = live(&mut cluster, saved.path(), "1");
        copy(&cluster.data_dir(2), &other);
        let second = live(&mut cluster, saved.path(), "2");
        if first.is_some() && first == second {
            copy(&other, &cluster.data_dir(2));
            return cluster;
        }
        println!("no two histories of one length: {first:?}, {second:?}");
    }
    panic!("{TRIES} times the log ended elsewhere");
}

#[test]
fn a_member_whose_data_became_another_is_noticed() {
    let mut cluster = diverged();
    for at in ALL {
        cluster.members[at]
            .flags
            .push("--corrupt-check-time=1s".to_owned());
    }
    start_all(&mut cluster);
    let own = "key: \"x\" serializable: true";
    for (at, value) in [(0, "2"), (1, "2"), (2, "1")] {
        let read = cluster.call_soon(at, "Range", own);
        assert!(
            read.contains(&format!("value:\"{value}\"")),
            "member {at}: {read}"
        );
    }
    // Now and then the leader compares, and names who differs from itself.
    let raised = |text: &str| text.contains("CORRUPT");
    for at in ALL {
        cluster.until(at, "Alarm", "", raised);
        let put = cluster.call(at, "Put", "key: \"b\" value: \"1\"");
        assert_eq!(put, Err("DataLoss: etcdserver: corrupt cluster".to_owned()));
        cluster.call_soon(at, "Range", "key: \"a\"");
    }
    // Asked to compare before it serves, it does not serve.
    cluster.kill(2);
    cluster.members[2].flags = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    cluster.members[2]
        .flags
        .push("--feature-gates=InitialCorruptCheck=true".to_owned());
    let list = cluster.list();
    cluster.start(2, &list, "new");
    assert_eq!(cluster.wait_exit(2), Some(1), "{}", cluster.log_end(2));
    let log = cluster.log_end(2);
    assert!(log.contains("found data inconsistency with peers"), "{log}");
}

/// Most memory that a member's process ever had, in MB.
fn peak(cluster: &Cluster, at: usize) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid(at)));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Puts until told to stop; how long each took.
async fn keep_putting(put: Repeated, over: Arc<AtomicBool>) -> Vec<Duration> {
    let mut took = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        put.in_turn(1).await.expect("a put");
        took.push(begun.elapsed());
    }
    took
}

/// Four clients put until `how_long` returns; how long each put took.
fn puts_during(
    runtime: &tokio::runtime::Runtime,
    put: &Repeated,
    how_long: &mut dyn FnMut(),
) -> Vec<Duration> {
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4)
        .map(|_| runtime.spawn(keep_putting(put.clone(), Arc::clone(&over))))
        .collect();
    how_long();
    over.store(true, Ordering::SeqCst);
    let took = tasks
        .into_iter()
        .map(|task| runtime.block_on(task).expect("puts go on"));
    took.flatten().collect()
}

fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took.get(took.len() * 99 / 100).copied().unwrap_or_default()
}

#[test]
fn a_member_that_was_away_for_long_comes_back_while_puts_go_on() {
    let setting = |name, default| std::env::var(name).map_or(default, |v| v.parse().expect(name));
    let (writes, clients) = (
        setting("TENON_AWAY_WRITES", 20_000_usize),
        setting("TENON_AWAY_CLIENTS", 50),
    );
    let mut cluster = Cluster::found(3, FLAGS);
    let leader = cluster.leader(0);
    let away = ALL
        .into_iter()
        .find(|at| *at != leader)
        .expect("three members");
    cluster.kill(away);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.expect("runtime");
    let schema = Schema::load().expect("schemas");
    let channel = runtime.block_on(call::connect(&cluster.members[leader].url));
    let put = Repeated {
        channel: channel.expect("connected"),
        method: schema.method("Put").expect("Put"),
        metadata: Metadata::new(),
        text: format!("key: \"k%i\" value: \"{}\"", "v".repeat(200)),
    };
    let begun = Instant::now();
    runtime
        .block_on(put.at_once(clients, writes / clients))
        .expect("puts");
    println!("{writes} puts while it was away: {:?}", begun.elapsed());

    let mut more = put.clone();
    more.text = "key: \"more\" value: \"1\"".to_owned();
    let measure = |how_long: &mut dyn FnMut()| puts_during(&runtime, &more, how_long);
    let before = measure(&mut || std::thread::sleep(Duration::from_secs(2)));
    let list = cluster.list();
    let begun = Instant::now();
    cluster.start(away, &list, "new");
    let during = measure(&mut || {
        let last = format!(
            "key: \"k{}\" serializable: true",
            writes / clients * clients - 1
        );
        let back = |read: &str| read.contains("kvs");
        while !cluster
            .call(away, "Range", &last)
            .is_ok_and(|read| back(&read))
        {
            assert!(begun.elapsed() < BACK_WITHIN, "{}", cluster.log_end(away));
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    println!(
        "back after {:?}; p99 of {} puts before {:?}, of {} puts meanwhile {:?}; peak memory: leader {} MB, it {} MB",
        begun.elapsed(),
        before.len(),
        p99(before),
        during.len(),
        p99(during),
        peak(&cluster, leader),
        peak(&cluster, away),
    );
    cluster.wait_serving(away);
    cluster.assert_same_keys(&ALL);
}
