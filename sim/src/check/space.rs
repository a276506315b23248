//! Checker: what a member keeps on its disk is bounded by the sizes it was given and by what it has to keep,
//! however long it ran.

use super::{Verdict, require};
use tenon_server::member::config::Tuning;

/// Room for the files of an empty engine, and for what it reserves ahead.
const BASE: u64 = 6 << 20;
/// The largest batch of entries that the log takes at once.
const BATCH: u64 = 1 << 20;

/// Checks a member at rest that uses `used` bytes of disk, `log` of them for its log, and whose history has
/// `records` bytes.
pub fn check(who: &str, (used, log): (u64, u64), records: u64, tuning: &Tuning) -> Verdict {
    let log_most = tuning.wal_bytes_max + 4 * tuning.wal.segment_bytes + BATCH;
    require(log <= log_most, || {
        format!("the log of {who} has {log} bytes, at most {log_most} expected")
    })?;
    // The engine keeps an old version of what changed beside the new one; an old engine may not be gone yet.
    let most = BASE + 2 * log_most + 8 * records;
    require(used <= most, || {
        format!("{who} uses {used} bytes for {records} of records, at most {most} expected")
    })
}
