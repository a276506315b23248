//! Room storage, state: one step of reading many keys. What the index knows is collected under the
//! lock; what only the engine has is fetched afterwards from the view taken with it.

use super::core::{State, fetch_cold};
use super::store::Fatal;
use crate::engine::{RecordKey, View};
use crate::mvcc::entry::Live;
use crate::mvcc::index::Interval;
use crate::mvcc::read_cache::ReadCache;
use crate::mvcc::record::decode;
use bytes::Bytes;
use tenon_proto::mvccpb::KeyValue;

/// What a step is after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// Revision to read at; `None` = as it is now.
    pub at: Option<i64>,
    /// Whether values are needed; without them the index answers alone.
    pub values: bool,
    /// Most pairs to collect.
    pub items_max: usize,
    /// Most keys to look at in this step.
    pub keys_max: usize,
    /// Whether to go on counting once enough pairs are collected.
    pub count: bool,
}

/// A pair, or where it is.
#[derive(Debug)]
pub(crate) enum Item {
    /// Without its value.
    Head(KeyValue),
    /// Its record.
    Stored(Bytes),
    /// Its record is in the engine.
    InEngine(RecordKey),
}

/// Result of a step.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Pairs in key order.
    pub items: Vec<Item>,
    /// Keys live in the part looked at.
    pub counted: i64,
    /// The last key looked at, when the interval goes on.
    pub next: Option<Box<[u8]>>,
}

/// Collects under the lock. Pairs of keys after `after`, of the whole interval without it.
pub(crate) fn collect(
    state: &State,
    interval: Interval<'_>,
    after: Option<&[u8]>,
    want: &Want,
) -> Chunk {
    let mut chunk = Chunk {
        items: Vec::new(),
        counted: 0,
        next: None,
    };
    if interval.is_point() {
        let entry = state.index.get(interval.key).filter(|_| after.is_none());
        if let Some(live) = entry.and_then(|entry| live(entry, want.at)) {
            chunk.counted = 1;
            if want.items_max > 0 {
                chunk
                    .items
                    .push(item(state, interval.key, live, want.values));
            }
        }
        return chunk;
    }
    match after {
        None => walk(state, state.index.range(interval), want, &mut chunk),
        Some(after) => walk(
            state,
            state.index.range_after(interval, after),
            want,
            &mut chunk,
        ),
    }
    chunk
}

fn live(entry: &crate::mvcc::entry::KeyEntry, at: Option<i64>) -> Option<Live> {
    match at {
        Some(at) => entry.live_at(at),
        None => entry.live(),
    }
}

fn walk<'a>(
    state: &State,
    entries: impl Iterator<Item = (&'a [u8], &'a crate::mvcc::entry::KeyEntry)>,
    want: &Want,
    chunk: &mut Chunk,
) {
    for (seen, (key, entry)) in entries.enumerate() {
        if let Some(live) = live(entry, want.at) {
            chunk.counted += 1;
            if chunk.items.len() < want.items_max {
                chunk.items.push(item(state, key, live, want.values));
            }
        }
        let enough = !want.count && chunk.items.len() >= want.items_max;
        if enough || seen + 1 >= want.keys_max {
            chunk.next = Some(key.into());
            return;
        }
    }
}

fn item(state: &State, key: &[u8], live: Live, values: bool) -> Item {
    if !values {
        return Item::Head(KeyValue {
            key: Bytes::copy_from_slice(key),
            create_revision: live.created,
            mod_revision: live.record.main,
            version: live.version,
            ..KeyValue::default()
        });
    }
    match state.recent.get(live.record) {
        Some(record) => Item::Stored(record.clone()),
        None => Item::InEngine(live.record),
    }
}

/// Makes pairs of what a step collected. `view` is the one taken with it.
pub(crate) fn resolve(
    items: Vec<Item>,
    cache: &ReadCache,
    view: &dyn View,
) -> Result<Vec<KeyValue>, Fatal> {
    let pair = |item| {
        let record = match item {
            Item::Head(pair) => return Ok(pair),
            Item::Stored(record) => record,
            Item::InEngine(key) => fetch_cold(cache, view, key)?,
        };
        decode(&record).ok_or_else(|| Fatal("a record's bytes are damaged".into()))
    };
    items.into_iter().map(pair).collect()
}
