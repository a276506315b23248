//! Checker: elections. A candidate is a key under the prefix of its office; the oldest one holds it. Nobody but the
//! holder proclaims anything or issues a decree, and no earlier holder does after a later one.

use super::locks::fence;
use super::model::{Model, is_put};
use super::timeline::Timeline;
use super::{Finding, require};
use bytes::Bytes;
use std::collections::BTreeMap;
use tenon_proto::mvccpb::KeyValue;

/// What keys of candidates begin with; the office and the candidate follow.
pub const CANDIDATE: &[u8] = b"office/";
/// What keys of decrees begin with; the office follows.
pub const DECREE: &[u8] = b"decree/";

/// The end of the interval of keys that begin with `prefix`, which ends with a slash.
pub fn after(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Bytes::from(end)
}

/// The office that a key is about, and since when whoever wrote it held it by its own word; `None` for a candidate that
/// is new, and for other keys.
fn claim(kv: &KeyValue) -> Option<Result<(Bytes, i64), Finding>> {
    let (office, since) = if let Some(rest) = kv.key.strip_prefix(CANDIDATE) {
        let office = rest.iter().position(|byte| *byte == b'/')?;
        (&rest[..=office], Some(kv.create_revision))
    } else {
        (kv.key.strip_prefix(DECREE)?, fence(&kv.value))
    };
    if kv.key.starts_with(CANDIDATE) && kv.version == 1 {
        return None;
    }
    let office = Bytes::copy_from_slice(office);
    let since = since.ok_or(Finding(format!("no fence: {:?}", kv.value)));
    Some(since.map(|since| (office, since)))
}

/// Checks all elections; how many times an office changed hands.
pub fn check(timeline: &Timeline, model: &Model) -> Result<u64, Finding> {
    let mut holders: BTreeMap<Bytes, i64> = BTreeMap::new();
    let mut changes = 0;
    for (revision, events) in timeline.iter() {
        let puts = events.iter().filter(|event| is_put(event));
        for claim in puts.filter_map(|event| claim(event.kv.as_ref()?)) {
            let (office, since) = claim?;
            let prefix = [CANDIDATE, &office].concat();
            let candidates = model.range(&prefix, &after(&prefix), revision);
            let holder = candidates.iter().map(|kv| kv.create_revision).min();
            require(holder == Some(since), || {
                format!(
                    "revision {revision} was written by a candidate since {since} while {holder:?} held the office"
                )
            })?;
            let last = holders.entry(office).or_default();
            require(*last <= since, || {
                format!("revision {revision}: a holder since {since} after one since {last}")
            })?;
            changes += u64::from(*last < since);
            *last = since;
        }
    }
    Ok(changes)
}
