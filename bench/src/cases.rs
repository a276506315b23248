//! `bench`: the cases and the order in which they run.

use crate::Options;
use crate::catch_up;
use crate::half;
use crate::load::{self, Load};
use crate::probe::Counters;
use crate::server::{Cluster, Kind};
use std::io;

/// One measured case of one server in one round. A field that a case does not measure is 0.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Case name.
    pub case: String,
    /// Server.
    pub kind: Kind,
    /// Rate and latencies seen by the clients.
    pub load: Load,
    /// Requests made.
    pub requests: f64,
    /// What the servers used meanwhile.
    pub used: Counters,
    /// Seconds from start to the first linearizable read (case `start`).
    pub start: f64,
    /// Bytes on disk afterwards.
    pub disk: f64,
}

struct Case {
    name: &'static str,
    requests: usize,
    words: Vec<&'static str>,
    floor: bool,
}

const PUT: [&str; 5] = [
    "put",
    "--val-size=256",
    "--key-size=16",
    "--key-space-size=100000",
    "--total",
];

/// How many clients over how many connections.
type Crowd = [&'static str; 2];
const ONE: Crowd = ["--clients=1", "--conns=1"];
const HUNDRED: Crowd = ["--clients=100", "--conns=10"];
const THOUSAND: Crowd = ["--clients=1000", "--conns=100"];

/// A case of etcd's load tool; the floor can serve it too.
fn case(name: &'static str, requests: usize, crowd: Crowd, words: &[&'static str]) -> Case {
    Case {
        name,
        requests,
        words: [&crowd[..], words].concat(),
        floor: true,
    }
}

fn range(name: &'static str, requests: usize, crowd: Crowd, consistency: &'static str) -> Case {
    let words = ["range", "bench-range-key", consistency, "--total"];
    case(name, requests, crowd, &words)
}

fn cases() -> Vec<Case> {
    let (linearizable, serializable) = ("--consistency=l", "--consistency=s");
    vec![
        case("put, 1 client", 1500, ONE, &PUT),
        case("put, 100 clients", 40_000, HUNDRED, &PUT),
        case("put, 1000 clients", 100_000, THOUSAND, &PUT),
        case(
            "txn put, 1000 clients",
            100_000,
            THOUSAND,
            &[
                "txn-put",
                "--val-size=256",
                "--key-size=16",
                "--key-space-size=100000",
                "--total",
            ],
        ),
        range("range l, 1 client", 3000, ONE, linearizable),
        range("range l, 100 clients", 60_000, HUNDRED, linearizable),
        range("range l, 1000 clients", 100_000, THOUSAND, linearizable),
        range("range s, 100 clients", 60_000, HUNDRED, serializable),
        range("range s, 1000 clients", 100_000, THOUSAND, serializable),
        Case {
            name: "watch, 1000 watchers",
            requests: 300,
            words: vec![
                "watch",
                "--streams=10",
                "--watch-per-stream=100",
                "--watched-key-total=1",
                "--put-rate=100000",
                "--put-total",
            ],
            floor: false,
        },
        Case {
            floor: false,
            ..case(
                "lease keep-alive",
                60_000,
                HUNDRED,
                &["lease-keepalive", "--total"],
            )
        },
    ]
}

/// Runs all cases; the samples in the order they were taken.
pub fn run(options: &Options) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        for kind in [Kind::Etcd, Kind::Tenon, Kind::Floor] {
            if kind == Kind::Floor && options.floor.as_os_str() == "-" {
                continue;
            }
            eprintln!("round {} of {}: {}", round + 1, options.rounds, kind.name());
            run_cases(options, kind, &mut samples)?;
            if kind == Kind::Floor {
                continue;
            }
            if wanted(options, "million keys") {
                samples.push(million(options, kind)?);
            }
            if options.members > 1 && wanted(options, catch_up::CASE) {
                samples.push(catch_up::run(options, kind)?);
            }
        }
    }
    Ok(samples)
}

/// Whether the case of this name is to run.
pub fn wanted(options: &Options, name: &str) -> bool {
    options.only.is_empty()
        || options
            .only
            .split(',')
            .any(|part| name.contains(part.trim()))
}

fn run_cases(options: &Options, kind: Kind, samples: &mut Vec<Sample>) -> io::Result<()> {
    let list: Vec<Case> = cases()
        .into_iter()
        .filter(|c| wanted(options, c.name) && (c.floor || kind != Kind::Floor))
        .collect();
    let half = kind != Kind::Floor && half::CASES.iter().any(|name| wanted(options, name));
    if list.is_empty() && !half {
        return Ok(());
    }
    let cluster = Cluster::start(options, kind)?;
    samples.push(Sample {
        case: "idle".to_owned(),
        kind,
        load: Load::default(),
        requests: 0.0,
        used: cluster.counters(),
        start: 0.0,
        disk: cluster.disk_bytes() as f64,
    });
    for case in list {
        let requests = ((case.requests as f64 * options.scale) as usize).max(100);
        let mut words: Vec<String> = case.words.iter().map(|w| (*w).to_owned()).collect();
        words.push(requests.to_string());
        samples.push(measure(options, &cluster, case.name, requests, &words)?);
    }
    if half {
        half::run(options, &cluster, samples)?;
    }
    Ok(())
}

/// Runs the load tool once against `cluster` and adds up what the servers used meanwhile.
pub fn measure(
    options: &Options,
    cluster: &Cluster,
    name: &str,
    requests: usize,
    words: &[String],
) -> io::Result<Sample> {
    let before = cluster.counters();
    let load = load::run(options, &cluster.endpoints(), words)?;
    let used = cluster.counters().since(&before);
    eprintln!(
        "  {:<22} {:<6} {:>9.0}/s  p99 {:>8.2} ms  {:>7.1} µs CPU",
        name,
        cluster.kind.name(),
        load.rate,
        load.p99 * 1e3,
        used.cpu / requests as f64 * 1e6
    );
    Ok(Sample {
        case: name.to_owned(),
        kind: cluster.kind,
        load,
        requests: requests as f64,
        used,
        start: 0.0,
        disk: cluster.disk_bytes() as f64,
    })
}

/// Words that write `keys` different keys of 256 bytes each.
pub fn filling(keys: usize) -> Vec<String> {
    [
        "--clients=1000",
        "--conns=100",
        "put",
        "--val-size=256",
        "--key-size=16",
        "--sequential-keys",
        &format!("--key-space-size={keys}"),
        &format!("--total={keys}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn million(options: &Options, kind: Kind) -> io::Result<Sample> {
    let keys = (1_000_000.0 * options.scale) as usize;
    let mut cluster = Cluster::start(options, kind)?;
    let mut sample = measure(options, &cluster, "million keys", keys, &filling(keys))?;
    sample.start = cluster.restart()?.as_secs_f64();
    eprintln!(
        "  start {:.2} s, resident {:.0} MB",
        sample.start,
        sample.used.resident / 1e6
    );
    sample.disk = cluster.disk_bytes() as f64;
    Ok(sample)
}
