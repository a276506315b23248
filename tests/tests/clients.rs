//! Room `tests`: etcd's own Go client packages against Tenon (`tests/go`): concurrency, leasing, ordering,
//! namespace, mirror, recipes, keep-alive, watch; and the same while members are killed. Without Go, or when its modules cannot be downloaded, a loud
//! skip. May touch processes; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tenon_tests::cluster::Cluster;
use tenon_tests::run::until_ready;
use tenon_tests::server::{Kind, Server};

/// How long the chaos program may take after its time: its checks have bounds of their own.
const CHAOS_END_MAX: Duration = Duration::from_secs(90);

/// Runs `go ARGS` in the program's folder; `None` where there is no Go.
fn go(args: &[&str]) -> Option<Output> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    Command::new("go").args(args).current_dir(dir).output().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The Go program, built in `dir`; `None` after a loud skip.
fn build(dir: &Path) -> Option<PathBuf> {
    // The first step that needs the network: only its failure is a skip.
    match go(&["list", "-deps", "."]) {
        None => {
            println!("SKIP: no Go on this machine: etcd's Go client packages were not run");
            return None;
        }
        Some(output) if !output.status.success() => {
            println!("SKIP: Go modules cannot be had: {}", text(&output.stderr));
            return None;
        }
        Some(_) => {}
    }
    let program = dir.join("clients");
    let target = program.to_str().expect("a path in UTF-8");
    let built = go(&["build", "-o", target, "."]).expect("go was there a moment ago");
    assert!(built.status.success(), "{}", text(&built.stderr));
    Some(program)
}

#[test]
fn go_client_packages() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(program) = build(dir.path()) else {
        return;
    };
    let etcd = std::env::var_os("TENON_GO_ETCD").is_some();
    let kind = if etcd { Kind::Etcd } else { Kind::Tenon };
    let mut server = Server::start(kind, &[]).expect("server starts");
    until_ready(&mut server);
    let endpoint = server.url();
    let output = Command::new(&program)
        .arg(endpoint)
        .output()
        .expect("the Go program runs");
    print!("{}", text(&output.stdout));
    assert!(
        output.status.success(),
        "{}\n{}\nserver log: {}",
        text(&output.stdout),
        text(&output.stderr),
        server.log_end()
    );
}

/// Locks, elections, transactions and a watch on three members of which one after another is killed (-9) and
/// started again. `TENON_CHAOS_SECONDS` (12) and `TENON_CHAOS_PERIOD` (4), in seconds, change it.
#[test]
fn go_clients_while_members_are_killed() {
    let setting = |name: &str, default: u64| {
        let value = std::env::var(name).ok().and_then(|v| v.parse().ok());
        Duration::from_secs(value.unwrap_or(default))
    };
    let length = setting("TENON_CHAOS_SECONDS", 12);
    let period = setting("TENON_CHAOS_PERIOD", 4);
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(program) = build(dir.path()) else {
        return;
    };
    let flags = [
        "--heartbeat-interval=50",
        "--election-timeout=500",
        "--log-level=warn",
    ];
    let mut cluster = Cluster::found(3, &flags);
    let list = cluster.list();
    let urls: Vec<String> = cluster.members.iter().map(|m| m.url.clone()).collect();
    let mut running = Command::new(&program)
        .args(["chaos", &format!("{}s", length.as_secs())])
        .args(urls)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Go program runs");
    let begun = Instant::now();
    for at in (0..3).cycle() {
        std::thread::sleep(period / 2);
        if begun.elapsed() >= length {
            break;
        }
        cluster.kill(at);
        std::thread::sleep(period / 2);
        cluster.start(at, &list, "new");
    }
    let (deadline, mut ended) = (Instant::now() + CHAOS_END_MAX, None);
    while ended.is_none() && Instant::now() < deadline {
        ended = running.try_wait().expect("a child");
        std::thread::sleep(Duration::from_millis(50));
    }
    if ended.is_none() {
        running.kill().expect("a child");
    }
    let output = running.wait_with_output().expect("its output");
    print!("{}", text(&output.stdout));
    assert!(
        ended.is_some_and(|status| status.success()),
        "{}{}",
        text(&output.stdout),
        cluster.log_end(0)
    );
}
