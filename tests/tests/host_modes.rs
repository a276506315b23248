//! Room `tests`: hosts that switch between server and client while real clients use their endpoint. May touch
//! processes and files; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real files")]

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tenon_tests::cluster::Cluster;
use tenon_tests::server::tenon;

/// Elections within tenths of a second.
const FAST: &[&str] = &[
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--log-level=info",
];

fn host(cluster: &Cluster, at: usize, words: &[&str]) -> Output {
    let mut command = Command::new(tenon().expect("the program"));
    let url = &cluster.members[at].url;
    let ran = command.arg("host").args(words).args(["--endpoint", url]);
    ran.output().expect("tenon host runs")
}

/// Runs `tenon host` on one host; its output. Panics unless it succeeds.
fn host_ok(cluster: &Cluster, at: usize, words: &[&str]) -> String {
    let output = host(cluster, at, words);
    assert!(
        output.status.success(),
        "{words:?}: {output:?}; log: {}",
        cluster.log_end(at)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `tenon host` on one host; its error. Panics unless it is refused.
fn host_refused(cluster: &Cluster, at: usize, words: &[&str]) -> String {
    let output = host(cluster, at, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn members(cluster: &Cluster, asked: usize) -> usize {
    let list = cluster.call_soon(asked, "MemberList", "linearizable: true");
    list.matches("peerURLs").count()
}

/// Writes and reads through one endpoint while `work` goes on: every call must succeed and read what was written.
fn under_load<T>(cluster: &Cluster, at: usize, work: impl FnOnce() -> T) -> (T, u64) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let worker = || {
        let mut failures = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let n = done.fetch_add(1, Ordering::Relaxed);
            let key = format!("load-{at}");
            let put = format!("key: \"{key}\" value: \"{n}\"");
            if let Err(why) = cluster.call(at, "Put", &put) {
                failures.push(format!("put {n}: {why}"));
                continue;
            }
            match cluster.call(at, "Range", &format!("key: \"{key}\"")) {
                Ok(answer) if answer.contains(&format!("value:\"{n}\"")) => {}
                other => failures.push(format!("range {n}: {other:?}")),
            }
        }
        failures
    };
    std::thread::scope(|scope| {
        let worker = scope.spawn(worker);
        let result = work();
        stop.store(true, Ordering::Relaxed);
        let failures = worker.join().expect("the worker ends");
        assert!(
            failures.is_empty(),
            "{failures:?}; log: {}",
            cluster.log_end(at)
        );
        (result, done.load(Ordering::Relaxed))
    })
}

#[test]
fn a_leader_becomes_a_client_and_a_server_again() {
    let mut cluster = Cluster::found(3, FAST);
    let at = cluster.leader(0);
    let other = (at + 1) % 3;
    let storage = cluster.data_dir(at).join("member");
    for n in 0..50 {
        cluster.call_soon(at, "Put", &format!("key: \"k{n}\" value: \"v\""));
    }
    assert!(host_ok(&cluster, at, &["status"]).contains("mode:         server"));

    // Only looked at: nothing changes.
    let plan = host_ok(&cluster, at, &["mode", "client", "--dry-run"]);
    assert!(
        plan.contains("remove-self: ") && plan.contains("no fault tolerance"),
        "{plan}"
    );
    let strict = ["mode", "client", "--require-fault-tolerance", "--wait"];
    let refused = host_refused(&cluster, at, &strict);
    assert!(refused.contains("no fault tolerance"), "{refused}");
    assert_eq!(members(&cluster, at), 3);

    let (said, calls) = under_load(&cluster, at, || {
        host_ok(&cluster, at, &["mode", "client", "--wait"])
    });
    assert!(said.starts_with("became a client"), "{said}; {calls} calls");
    assert_eq!(members(&cluster, at), 2);
    assert_eq!(members(&cluster, other), 2);
    assert!(!storage.exists(), "storage is gone");
    assert!(host_ok(&cluster, at, &["status"]).contains("mode:         client"));

    // The journal knows: no flag says that it is a client.
    cluster.kill(at);
    let list = cluster.list();
    cluster.start(at, &list, "new");
    cluster.wait_serving(at);
    assert!(!storage.exists(), "it founded no cluster");
    assert_eq!(members(&cluster, at), 2);

    let (said, calls) = under_load(&cluster, at, || {
        host_ok(&cluster, at, &["mode", "server", "--wait"])
    });
    assert!(said.starts_with("became a server"), "{said}; {calls} calls");
    assert_eq!(members(&cluster, other), 3);
    let list = cluster.call_soon(other, "MemberList", "");
    assert!(!list.contains("isLearner"), "it votes: {list}");
    let read = cluster.call_soon(at, "Range", "key: \"k7\" serializable: true");
    assert!(read.contains("value:\"v\""), "its own copy: {read}");
    assert!(storage.join("wal").is_dir());
}

#[test]
fn a_switch_that_would_cost_the_quorum_is_refused_by_name() {
    let mut cluster = Cluster::found(3, FAST);
    let (at, dead) = (0, 2);
    cluster.kill(dead);
    cluster.call_soon(at, "Put", "key: \"a\" value: \"1\"");
    // Until the leader has missed it for an election timeout.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let refused = host_refused(&cluster, at, &["mode", "client", "--wait"]);
    assert!(
        refused.contains("m3")
            && refused.contains("not heard")
            && refused.contains("Nothing was changed"),
        "{refused}"
    );
    assert_eq!(members(&cluster, at), 3);
    cluster.call_soon(at, "Put", "key: \"a\" value: \"2\"");
    assert!(host_ok(&cluster, at, &["status"]).contains("mode:         server"));
    let none = host_refused(&cluster, at, &["abort"]);
    assert!(none.contains("no switch is under way"), "{none}");
}
