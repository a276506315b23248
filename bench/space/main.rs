//! `bench/space`: does the data directory level off under steady overwrites? Overwrites a fixed set of keys at
//! a fixed rate, compacts to one minute of retention every `--every` seconds by a physical Compact, and
//! prints the size of data and log over time and the puts' p99 during compaction and outside it.
//!
//! It only looks; the verdict line at the end compares with the acceptance of issue 3.
#![allow(
    clippy::disallowed_methods,
    reason = "a load program with real clocks, files and tasks"
)]

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenon_proto::etcdserverpb::kv_client::KvClient;
use tenon_proto::etcdserverpb::{CompactionRequest, PutRequest};
use tonic::transport::Channel;

/// Steady overwrites against one member that this program starts.
#[derive(Parser, Debug, Clone)]
struct Options {
    /// Tenon's release binary.
    #[arg(long, default_value = "target/release/tenon")]
    tenon: PathBuf,
    /// Data directory; removed first.
    #[arg(long, default_value = "bench/out/space")]
    data: PathBuf,
    /// Puts per second.
    #[arg(long, default_value_t = 2000)]
    rate: u64,
    /// Different keys.
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Value bytes.
    #[arg(long, default_value_t = 256)]
    value: usize,
    /// Seconds of the whole run.
    #[arg(long, default_value_t = 360)]
    seconds: u64,
    /// Seconds of history kept.
    #[arg(long, default_value_t = 60)]
    retention: u64,
    /// Seconds between compactions.
    #[arg(long, default_value_t = 20)]
    every: u64,
    /// Seconds after which the size may no longer grow.
    #[arg(long, default_value_t = 180)]
    settle: u64,
}

const PORT: u16 = 24400;

/// (seconds since start, latency) of each put.
type Puts = Arc<Mutex<Vec<Put>>>;

type Put = (f64, f64);

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("space: {e}");
            ExitCode::FAILURE
        }
    }
}

struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Failure = Box<dyn std::error::Error>;

fn start(options: &Options) -> Result<Server, Failure> {
    let _ = std::fs::remove_dir_all(&options.data);
    let url = format!("http://127.0.0.1:{PORT}");
    let peer = format!("http://127.0.0.1:{}", PORT + 1);
    let child = Command::new(&options.tenon)
        .args(["serve", "--data-dir", &options.data.display().to_string()])
        .args([
            "--listen-client-urls",
            &url,
            "--advertise-client-urls",
            &url,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args([
            "--initial-cluster",
            &format!("default={peer}"),
            "--log-level",
            "error",
        ])
        .stdin(Stdio::null())
        .spawn()?;
    Ok(Server(child))
}

async fn connect() -> Result<KvClient<Channel>, Failure> {
    for _ in 0..200 {
        if let Ok(channel) = Channel::from_shared(format!("http://127.0.0.1:{PORT}"))?
            .connect()
            .await
        {
            return Ok(KvClient::new(channel));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("the server does not answer".into())
}

async fn run(options: &Options) -> Result<bool, Failure> {
    let _server = start(options)?;
    let client = connect().await?;
    let begin = Instant::now();
    let puts: Puts = Arc::default();
    let revisions: Arc<Mutex<Vec<(f64, i64)>>> = Arc::default();
    for worker in 0..options.workers() {
        let (client, puts) = (client.clone(), puts.clone());
        tokio::spawn(overwrite(
            options.clone(),
            worker,
            client,
            begin,
            puts,
            revisions.clone(),
        ));
    }
    let mut windows: Vec<(f64, f64)> = Vec::new();
    let mut sizes: Vec<(f64, u64, u64)> = Vec::new();
    let end = begin + Duration::from_secs(options.seconds);
    let mut compactor = client.clone();
    let mut next_compaction = options.retention + options.every;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = begin.elapsed().as_secs_f64();
        sizes.push((
            now,
            bytes(&options.data),
            bytes(&options.data.join("member/wal")),
        ));
        if now as u64 >= next_compaction {
            next_compaction += options.every;
            if let Some(revision) = revision_at(&revisions, now - options.retention as f64) {
                compactor
                    .compact(CompactionRequest {
                        revision,
                        physical: true,
                    })
                    .await?;
                windows.push((now, begin.elapsed().as_secs_f64()));
            }
        }
    }
    Ok(report(
        options,
        &sizes,
        &windows,
        &puts.lock().expect("puts"),
    ))
}

impl Options {
    fn workers(&self) -> u64 {
        50
    }
}

/// Revision that was current `at` seconds after the start.
fn revision_at(revisions: &Mutex<Vec<(f64, i64)>>, at: f64) -> Option<i64> {
    let list = revisions.lock().expect("revisions");
    list.iter().rev().find(|(t, _)| *t <= at).map(|(_, r)| *r)
}

async fn overwrite(
    options: Options,
    worker: u64,
    mut client: KvClient<Channel>,
    begin: Instant,
    puts: Puts,
    revisions: Arc<Mutex<Vec<(f64, i64)>>>,
) {
    let period = Duration::from_secs_f64(options.workers() as f64 / options.rate as f64);
    let mut due = begin + period.mul_f64(worker as f64 / options.workers() as f64);
    let mut n = worker;
    loop {
        tokio::time::sleep_until(due.into()).await;
        due += period;
        n = (n + options.workers()) % options.keys;
        let request = PutRequest {
            key: format!("space/{n:012}").into_bytes().into(),
            value: vec![b'v'; options.value].into(),
            ..Default::default()
        };
        let sent = Instant::now();
        match client.put(request).await {
            Ok(answer) => {
                let now = begin.elapsed().as_secs_f64();
                puts.lock()
                    .expect("puts")
                    .push((now, sent.elapsed().as_secs_f64()));
                if worker == 0
                    && let Some(header) = answer.into_inner().header
                {
                    revisions
                        .lock()
                        .expect("revisions")
                        .push((now, header.revision));
                }
            }
            Err(e) => eprintln!("put failed: {e}"),
        }
    }
}

fn p99(mut latencies: Vec<f64>) -> f64 {
    latencies.sort_by(f64::total_cmp);
    latencies
        .get(latencies.len() * 99 / 100)
        .copied()
        .unwrap_or(0.0)
        * 1e3
}

fn report(
    options: &Options,
    sizes: &[(f64, u64, u64)],
    windows: &[(f64, f64)],
    puts: &[Put],
) -> bool {
    println!("| second | data MB | log MB |\n|---:|---:|---:|");
    for (t, data, wal) in sizes.iter().step_by(20) {
        println!(
            "| {t:.0} | {:.1} | {:.1} |",
            *data as f64 / 1e6,
            *wal as f64 / 1e6
        );
    }
    let settled = sizes
        .iter()
        .find(|(t, ..)| *t >= options.settle as f64)
        .map_or(0, |(_, d, _)| *d);
    let later = sizes
        .iter()
        .filter(|(t, ..)| *t >= options.settle as f64)
        .map(|(_, d, _)| *d)
        .max()
        .unwrap_or(0);
    let log = sizes.iter().map(|(_, _, w)| *w).max().unwrap_or(0);
    let within = |t: f64| {
        windows
            .iter()
            .any(|(from, to)| t >= *from && t <= *to + 0.05)
    };
    let (during, rest): (Vec<&Put>, Vec<&Put>) = puts.iter().partition(|(t, _)| within(*t));
    let (during_p99, rest_p99) = (
        p99(during.iter().map(|p| p.1).collect()),
        p99(rest.iter().map(|p| p.1).collect()),
    );
    let growth = later as f64 / settled.max(1) as f64;
    println!(
        "\n{} puts at {}/s; {} compactions, {:.2} s in all ({} puts meanwhile)\n\
         data at second {}: {:.1} MB, largest later {:.1} MB: factor {growth:.3} (allowed 1.2)\n\
         largest log: {:.1} MB (allowed 268)\n\
         p99 of puts during compaction {during_p99:.2} ms, else {rest_p99:.2} ms: factor {:.2} (allowed 2)",
        puts.len(),
        options.rate,
        windows.len(),
        windows.iter().map(|(a, b)| b - a).sum::<f64>(),
        during.len(),
        options.settle,
        settled as f64 / 1e6,
        later as f64 / 1e6,
        log as f64 / 1e6,
        during_p99 / rest_p99.max(1e-9)
    );
    growth <= 1.2 && log <= 256 << 20 && during_p99 <= 2.0 * rest_p99
}

/// Bytes of all files below `dir`.
fn bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => bytes(&e.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}
