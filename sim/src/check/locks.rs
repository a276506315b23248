//! Checker: locks are fenced. A lock is a key that exists while it is held, attached to its holder's lease; its
//! fence is its creation revision. What a holder writes names the fence. An older holder never writes after a
//! newer one, and nobody writes without holding the lock.

use super::model::{Model, is_put};
use super::timeline::Timeline;
use super::{Finding, require};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What the keys of locks begin with.
pub const LOCK: &[u8] = b"lock/";
/// What the keys written under a lock begin with; the rest is the lock's.
pub const GUARDED: &[u8] = b"guarded/";

/// The fence named in a value written under a lock.
pub fn fence(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split_once(";fence=")?.1.parse().ok()
}

/// Checks all locks; the number of writes under one.
pub fn check(timeline: &Timeline, model: &Model) -> Result<u64, Finding> {
    let mut newest: BTreeMap<Bytes, i64> = BTreeMap::new();
    let mut writes = 0;
    for (revision, events) in timeline.iter() {
        for kv in events
            .iter()
            .filter(|e| is_put(e))
            .filter_map(|e| e.kv.as_ref())
        {
            let Some(name) = kv.key.strip_prefix(GUARDED) else {
                continue;
            };
            let fence = fence(&kv.value).ok_or(Finding(format!("no fence: {:?}", kv.value)))?;
            let lock = [LOCK, name].concat();
            let held = model.at(&lock, revision).map(|kv| kv.create_revision);
            require(held == Some(fence), || {
                format!("revision {revision} was written under fence {fence} while {held:?} held")
            })?;
            let last = newest.entry(kv.key.clone()).or_default();
            require(*last <= fence, || {
                format!("revision {revision}: fence {fence} after {last}")
            })?;
            *last = fence;
            writes += 1;
        }
    }
    Ok(writes)
}
