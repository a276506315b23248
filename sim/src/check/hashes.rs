//! Checker: the hash of the history up to a revision, over the same compaction, is the same whenever it is
//! asked for, before and after every crash.

use super::{Verdict, require};
use crate::history::{Call, Reply};
use std::collections::BTreeMap;

/// Checks all hashes of a history; how many were compared with an earlier one.
pub fn check(calls: &[Call]) -> Result<u64, super::Finding> {
    let mut known: BTreeMap<(i64, i64), u32> = BTreeMap::new();
    let mut compared = 0;
    for call in calls {
        let Some(Reply::HashKv(r)) = call.reply() else {
            continue;
        };
        let at = (r.hash_revision, r.compact_revision);
        if let Some(held) = known.insert(at, r.hash) {
            compared += 1;
            differ(at, held, r.hash)?;
        }
    }
    Ok(compared)
}

fn differ((revision, compaction): (i64, i64), held: u32, now: u32) -> Verdict {
    require(held == now, || {
        format!("the hash at {revision} (compacted {compaction}) was {held} and is now {now}")
    })
}
