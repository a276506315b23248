//! Checker: a lease that was not revoked ends no sooner than its time after the last renewal that was
//! answered, and its keys end with it.

use super::{Verdict, require};
use crate::history::{Call, Reply, Request};
use std::collections::BTreeMap;

/// Checks that none of the `expired` leases ended early. `seen_at` gives, for each revision, when the first
/// watcher saw it, in nanoseconds of the world; `slack_percent` is by how much clocks may run fast.
pub fn check(
    calls: &[Call],
    expired: &BTreeMap<i64, i64>,
    seen_at: &BTreeMap<i64, u64>,
    slack_percent: u64,
) -> Verdict {
    let mut promised: BTreeMap<i64, u64> = BTreeMap::new();
    for call in calls {
        let (lease, ttl) = match (&call.request, call.reply()) {
            (Request::Grant(lease, _), Some(Reply::Grant(r))) => (*lease, r.ttl),
            (Request::KeepAlive(lease), Some(Reply::KeepAlive(r))) if r.ttl > 0 => (*lease, r.ttl),
            _ => continue,
        };
        let lasts = ttl as u64 * 1_000_000_000 * (100 - slack_percent) / 100;
        let until = call.invoked + lasts;
        let held = promised.entry(lease).or_default();
        *held = until.max(*held);
    }
    for (lease, revision) in expired {
        let Some(until) = promised.get(lease) else {
            continue;
        };
        let Some(seen) = seen_at.get(revision) else {
            continue;
        };
        require(seen >= until, || {
            format!(
                "lease {lease} ended at {seen} ns (revision {revision}), promised until {until} ns"
            )
        })?;
    }
    Ok(())
}
