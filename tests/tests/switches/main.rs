//! Room `tests`: a host switches between server and client again and again, as leader and as follower, while many
//! clients with a deadline, watches and leases go through its endpoint. No request fails, no watch misses or
//! repeats a revision, no answer goes back, no lease ends.
//!
//! `TENON_SWITCH_MB` (3), `TENON_SWITCH_CLIENTS` (50), `TENON_SWITCH_COUNT` (6), `TENON_SWITCH_PAUSE_MS` (100, between
//! switches) and `TENON_SWITCH_THINK_MS` (20, between a client's requests) change it; `TENON_SWITCH_OUT` names a file
//! for the table, beside which the hosts' logs are kept. May touch processes and sockets; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

mod load;
mod record;
mod streams;

use load::Load;
use record::Record;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenon_tests::call::{self, Metadata};
use tenon_tests::cluster::Cluster;
use tenon_tests::schema::Schema;
use tenon_tests::server::tenon;

/// The host that switches.
const AT: usize = 0;
/// Bytes of one filling value.
const PIECE: usize = 64 << 10;
/// Filling values on their way at once.
const FILLERS: usize = 8;
const FLAGS: &[&str] = &["--log-level=info", "--quota-backend-bytes=8589934592"];

fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |v| {
        v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}"))
    })
}

/// Fills the store.
async fn fill(url: &str, schema: &Schema, pieces: usize) {
    let channel = call::connect(url).await.expect("the host answers");
    let put = schema.method("Put").expect("Put");
    let mut tasks = Vec::new();
    for filler in 0..FILLERS {
        let (channel, put) = (channel.clone(), put.clone());
        tasks.push(tokio::spawn(async move {
            for n in (filler..pieces).step_by(FILLERS) {
                let key = format!("key: \"fill/{n}\"");
                let mut request = Schema::request(put.input(), &key).expect("a put");
                let value = bytes::Bytes::from(vec![(n % 251) as u8; PIECE]);
                request.set_field_by_name("value", prost_reflect::Value::Bytes(value));
                let done = call::unary(&channel, &put, &Metadata::new(), request).await;
                done.expect("filled");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a filler ends");
    }
}

/// Makes the host leader, or another member.
fn lead(cluster: &Cluster, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let leader = cluster.leader(AT);
        if leader == wanted {
            return;
        }
        let target = format!("targetID: {}", cluster.id(wanted));
        let moved = cluster.call(leader, "MoveLeader", &target);
        assert!(Instant::now() < deadline, "{moved:?}");
    }
}

/// One switch; how long it took by the host's own count.
fn switch(cluster: &Cluster, to: &str) -> Duration {
    let mut command = Command::new(tenon().expect("the program"));
    let url = &cluster.members[AT].url;
    let words = ["host", "mode", to, "--wait", "--endpoint", url];
    let output = command.args(words).output().expect("tenon host runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = cluster.log_end(AT);
    assert!(output.status.success(), "{to}: {output:?}; log: {log}");
    let mut words = said.split(' ');
    let took = words.by_ref().skip_while(|w| *w != "in").nth(1);
    let took = took.and_then(|ms| ms.parse().ok());
    Duration::from_millis(took.unwrap_or_else(|| panic!("a time in {said:?}")))
}

#[test]
fn the_application_notices_nothing() {
    let megabytes = setting("TENON_SWITCH_MB", 3) as usize;
    let clients = setting("TENON_SWITCH_CLIENTS", 50);
    let count = setting("TENON_SWITCH_COUNT", 6);
    let pause = Duration::from_millis(setting("TENON_SWITCH_PAUSE_MS", 100));
    let think = Duration::from_millis(setting("TENON_SWITCH_THINK_MS", 20));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("runtime");
    let schema = Schema::load().expect("schemas");
    let cluster = Cluster::found(3, FLAGS);
    let url = cluster.members[AT].url.clone();
    runtime.block_on(fill(&url, &schema, (megabytes << 20) / PIECE));

    let record = Arc::new(Record::new());
    let load = Load::start(&schema, &url, &record, clients, think);
    let load = runtime.block_on(load);
    std::thread::sleep(pause);
    for round in 0..count.div_ceil(2) {
        let role = match round % 2 {
            0 => AT,
            _ => 1,
        };
        lead(&cluster, role);
        let name = if role == AT { "leader" } else { "follower" };
        for (to, what) in [
            ("client", format!("{name} to client")),
            ("server", "client to server".to_owned()),
        ] {
            std::thread::sleep(pause);
            let began = Instant::now();
            let took = switch(&cluster, to);
            record.switched(&what, began, took);
        }
    }
    std::thread::sleep(pause);
    runtime.block_on(load.finish(&record));
    let table = record.table(megabytes, clients);
    println!("{table}");
    if let Some(path) = std::env::var_os("TENON_SWITCH_OUT") {
        let path = std::path::PathBuf::from(path);
        std::fs::write(&path, &table).expect("the table is written");
        for (at, member) in cluster.members.iter().enumerate() {
            let log = cluster.data_dir(at).with_extension("log");
            let kept = path.with_extension(format!("{}.log", member.name));
            std::fs::copy(log, kept).expect("the log is kept");
        }
    }
    let troubles = record.troubles();
    assert!(
        troubles.is_empty(),
        "{} troubles, the first: {:#?}; log: {}",
        troubles.len(),
        &troubles[..troubles.len().min(20)],
        cluster.log_end(AT)
    );
}
