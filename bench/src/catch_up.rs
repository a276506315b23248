//! `bench`: how long a member with an empty disk takes to get everything: three members, a million keys, the last
//! member is removed and comes back as a new one.

use crate::Options;
use crate::cases::{self, Sample};
use crate::server::{Cluster, Kind};
use std::io;

/// The case's name; its column `start s` is the time from start to the first linearizable read of the new member,
/// which then has applied everything.
pub const CASE: &str = "catch-up of an emptied member";

/// One measurement.
pub fn run(options: &Options, kind: Kind) -> io::Result<Sample> {
    let keys = (1_000_000.0 * options.scale) as usize;
    let mut cluster = Cluster::start(options, kind)?;
    let mut sample = cases::measure(options, &cluster, CASE, keys, &cases::filling(keys))?;
    // etcd 3.7.3 sometimes never lets the new member catch up on this machine; then the round has no time.
    match cluster.replace_last(options) {
        Ok(took) => {
            sample.start = took.as_secs_f64();
            eprintln!("  caught up in {:.2} s", sample.start);
        }
        Err(error) => eprintln!("  did not catch up: {error}"),
    }
    sample.used = cluster.counters();
    sample.used.cpu = 0.0;
    sample.used.written = 0.0;
    sample.used.syncs = 0.0;
    sample.disk = cluster.disk_bytes() as f64;
    Ok(sample)
}
