//! Room `sim`: one seed, one trace, in every process: whatever the working directory, the environment, the time of
//! day and the random seeds that the process drew for its hash maps.
//!
//! The test runs itself again as a child, which runs the seeds and prints their traces.

use std::process::Command;
use std::time::Duration;
use tenon_sim::{Cluster, Storm};

/// What the child prints before its traces.
const MARK: &str = "traces:";

/// A cluster under a storm with a client that writes and reads.
fn cluster(seed: u64) -> u64 {
    let cluster = Cluster::new(seed);
    let client = cluster.client();
    let here = client.clone();
    client.spawn("client", async move {
        for n in 0.. {
            let _ = here.put(&format!("k{}", n % 3), &n.to_string()).await;
            let _ = here.get_prefix("k").await;
            here.sleep(Duration::from_millis(40)).await;
        }
    });
    let storm = Storm {
        lasts: Duration::from_secs(5),
        clients: vec![client.node()],
        ..Storm::default()
    };
    cluster.run(cluster.storm(storm)).expect("nothing breaks");
    cluster.control().trace().hash()
}

/// One member under the workload of `tenon sim`.
fn member(seed: u64) -> u64 {
    let plan = tenon_sim::l1::Plan::of(seed);
    let report = tenon_sim::l1::run(seed, &plan).expect("nothing breaks");
    report.trace.hash()
}

#[test]
#[ignore = "only as the child of the test below"]
fn child() {
    let traces = [cluster(1), cluster(2), member(3), member(4)];
    println!("{MARK} {traces:x?}");
}

/// The traces of a process of its own.
fn traces(directory: &std::path::Path, variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    child
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .current_dir(directory)
        .env_clear()
        .envs(variables.iter().copied());
    let output = child.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once(MARK));
    let Some((_, traces)) = line else {
        panic!(
            "no traces: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    traces.to_owned()
}

#[test]
fn two_processes_two_surroundings_one_trace() {
    let here = std::env::current_dir().expect("a directory");
    let first = traces(&here, &[("TZ", "UTC")]);
    let elsewhere = [
        ("TZ", "Asia/Tokyo"),
        ("LANG", "de_DE"),
        ("X", "y"),
        ("RUST_BACKTRACE", "1"),
    ];
    let second = traces(&std::env::temp_dir(), &elsewhere);
    assert_eq!(first, second);
}
