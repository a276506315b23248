//! `bench`: latency away from the limit: puts at half of etcd's own top rate, and reads while writes saturate the
//! disk. Both servers get the same rate of puts, set by what etcd alone reached in this program's run.

use crate::Options;
use crate::cases::{self, Sample};
use crate::load;
use crate::server::{Cluster, Kind};
use std::io;

const HALF: &str = "put at half load";
const BESIDE: &str = "range l beside writes";
/// Names of the cases here.
pub const CASES: [&str; 2] = [HALF, BESIDE];
/// Case whose rate on etcd is the measure.
const MEASURE: &str = "put, 100 clients";
/// How long each case lasts, seconds.
const SECONDS: f64 = 10.0;
/// Reads per second beside the writes.
const READS: f64 = 500.0;

/// Runs the cases that are wanted; etcd runs first and sets the rate.
pub fn run(options: &Options, cluster: &Cluster, samples: &mut Vec<Sample>) -> io::Result<()> {
    if cases::wanted(options, HALF) {
        let rate = top_rate(options, cluster, samples)? / 2.0;
        let total = (rate * SECONDS * options.scale.min(1.0)) as usize;
        let mut words = puts();
        words.push(format!("--rate={rate:.0}"));
        words.push(format!("--total={total}"));
        samples.push(cases::measure(options, cluster, HALF, total, &words)?);
    }
    if cases::wanted(options, BESIDE) {
        samples.push(beside_writes(options, cluster)?);
    }
    Ok(())
}

fn puts() -> Vec<String> {
    let words = [
        "--clients=100",
        "--conns=10",
        "put",
        "--val-size=256",
        "--key-size=16",
    ];
    let mut words = words.map(str::to_owned).to_vec();
    words.push("--key-space-size=100000".to_owned());
    words
}

/// What etcd reached with 100 clients in the first round, or now if that case was left out.
fn top_rate(options: &Options, cluster: &Cluster, samples: &mut Vec<Sample>) -> io::Result<f64> {
    let known = |samples: &[Sample]| {
        let mut etcd = samples
            .iter()
            .filter(|s| s.kind == Kind::Etcd && s.case == MEASURE);
        etcd.next().map(|s| s.load.rate)
    };
    if let Some(rate) = known(samples) {
        return Ok(rate);
    }
    assert_eq!(
        cluster.kind,
        Kind::Etcd,
        "etcd runs first and sets the rate"
    );
    let mut words = puts();
    words.push("--total=40000".to_owned());
    samples.push(cases::measure(options, cluster, MEASURE, 40_000, &words)?);
    Ok(known(samples).unwrap_or(1000.0))
}

/// Reads at a fixed rate while 1000 clients put as fast as they can.
fn beside_writes(options: &Options, cluster: &Cluster) -> io::Result<Sample> {
    let reads = (READS * SECONDS * options.scale.min(1.0)) as usize;
    let writers = [
        "--clients=1000",
        "--conns=100",
        "put",
        "--val-size=256",
        "--key-size=16",
    ];
    let mut writes = writers.map(str::to_owned).to_vec();
    writes.push("--key-space-size=100000".to_owned());
    // Far more than fit into the time; they end with the reads.
    writes.push("--total=100000000".to_owned());
    let background = load::Background::start(options, &cluster.endpoints(), &writes)?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let words = [
        "--clients=20".to_owned(),
        "--conns=4".to_owned(),
        "range".to_owned(),
        "bench-range-key".to_owned(),
        "--consistency=l".to_owned(),
        format!("--rate={READS}"),
        format!("--total={reads}"),
    ];
    let mut sample = cases::measure(options, cluster, BESIDE, reads, &words)?;
    drop(background);
    // The servers worked for the writers too.
    sample.used.cpu = 0.0;
    sample.used.written = 0.0;
    sample.used.syncs = 0.0;
    Ok(sample)
}
