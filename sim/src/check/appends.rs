//! Checker: lists under a key that clients only append to, by transactions that compare the version they read:
//! every value is the one before with one element more, every acknowledged append stands in the last list once,
//! and no refused one does. It needs no cause and no revision, so it would notice what the others take for
//! granted.

use super::model::is_put;
use super::timeline::Timeline;
use super::{Finding, Verdict, require};
use crate::history::{Call, CallId, Outcome, Reply, Request};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What keys of lists begin with.
pub const PREFIX: &[u8] = b"list/";

/// The elements of a list: the calls that appended them.
pub fn elements(value: &[u8]) -> Option<Vec<u64>> {
    let text = std::str::from_utf8(value).ok()?;
    let (_, list) = text.split_once(';')?;
    let words = list.split(',').filter(|word| !word.is_empty());
    words.map(|word| word.parse().ok()).collect()
}

/// Checks all lists; the number of elements.
pub fn check(calls: &[Call], timeline: &Timeline) -> Result<u64, Finding> {
    let mut lists: BTreeMap<Bytes, Vec<u64>> = BTreeMap::new();
    for (revision, events) in timeline.iter() {
        for event in events.iter().filter(|e| is_put(e)) {
            let kv = event.kv.as_ref().expect("a put has a key");
            if !kv.key.starts_with(PREFIX) {
                continue;
            }
            let now = elements(&kv.value).ok_or(Finding(format!("no list: {:?}", kv.value)))?;
            let before = lists.entry(kv.key.clone()).or_default();
            require(
                now.len() == before.len() + 1 && now.starts_with(before),
                || {
                    format!(
                        "list {:?} was {before:?} and is {now:?} at {revision}",
                        kv.key
                    )
                },
            )?;
            *before = now;
        }
    }
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    for element in lists.values().flatten() {
        *times.entry(*element).or_default() += 1;
    }
    for (number, call) in calls.iter().enumerate() {
        stands(CallId(number), call, &times)?;
    }
    Ok(times.len() as u64)
}

fn stands(id: CallId, call: &Call, times: &BTreeMap<u64, u64>) -> Verdict {
    let Request::Txn(txn) = &call.request else {
        return Ok(());
    };
    if !txn.compare.iter().any(|c| c.key.starts_with(PREFIX)) {
        return Ok(());
    }
    let found = times.get(&(id.0 as u64)).copied().unwrap_or(0);
    let right = match &call.outcome {
        Outcome::Reply(Reply::Txn(response)) => found == u64::from(response.succeeded),
        Outcome::Refused(_) => found == 0,
        _ => found <= 1,
    };
    require(right, || format!("appended {found} times: {call:?}"))
}
