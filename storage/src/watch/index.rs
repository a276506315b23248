//! Room storage, watches: which synced watchers match a key. Exact keys in a map, intervals in a treap.

use super::interval::IntervalMap;
use super::stream::Watcher;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Watchers that get events as they happen.
#[derive(Debug, Default)]
pub(super) struct Index {
    keys: BTreeMap<Bytes, BTreeMap<u64, Arc<Watcher>>>,
    intervals: IntervalMap<Arc<Watcher>>,
    len: usize,
}

impl Index {
    pub(super) fn insert(&mut self, watcher: &Arc<Watcher>) {
        self.len += 1;
        let range = &watcher.range;
        if range.is_single() {
            let same_key = self.keys.entry(range.key().clone()).or_default();
            same_key.insert(watcher.serial, watcher.clone());
        } else {
            let end = end_of(watcher);
            self.intervals
                .insert(range.key(), &end, watcher.serial, watcher.clone());
        }
    }

    pub(super) fn remove(&mut self, watcher: &Watcher) {
        let range = &watcher.range;
        let found = if range.is_single() {
            match self.keys.get_mut(range.key()) {
                Some(same_key) => {
                    let found = same_key.remove(&watcher.serial).is_some();
                    if same_key.is_empty() {
                        self.keys.remove(range.key());
                    }
                    found
                }
                None => false,
            }
        } else {
            self.intervals
                .remove(range.key(), &end_of(watcher), watcher.serial)
        };
        assert!(found, "a synced watcher is in the index");
        self.len -= 1;
    }

    /// Calls `hit` for every watcher whose range holds `key`.
    pub(super) fn each_matching<'a>(&'a self, key: &[u8], hit: &mut dyn FnMut(&'a Arc<Watcher>)) {
        if let Some(same_key) = self.keys.get(key) {
            same_key.values().for_each(&mut *hit);
        }
        self.intervals.each_holding(key, hit);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn end_of(watcher: &Watcher) -> Option<Bytes> {
    (!watcher.range.is_open()).then(|| watcher.range.range_end())
}
