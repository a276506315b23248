//! Room storage, MVCC: all keys in order, each with its [`KeyEntry`]. Pure data.

use super::entry::KeyEntry;
use crate::engine::RecordKey;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A key interval in etcd's words, borrowed: `end` empty = the one key; one zero byte = all keys from
/// `key` on; otherwise half open. An inverted interval is empty.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// First key.
    pub key: &'a [u8],
    /// See the type.
    pub end: &'a [u8],
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl<'a> Interval<'a> {
    /// The interval from `key` to `end`.
    pub fn new(key: &'a [u8], end: &'a [u8]) -> Interval<'a> {
        Interval { key, end }
    }

    /// Whether it names one key.
    pub fn is_point(&self) -> bool {
        self.end.is_empty()
    }

    /// Whether `key` lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.end {
            [] => key == self.key,
            [0] => key >= self.key,
            end => key >= self.key && key < end,
        }
    }

    /// Bounds for a sorted map; `None` when nothing can lie inside.
    fn bounds(&self) -> Option<Bounds<'a>> {
        let from = Bound::Included(self.key);
        match self.end {
            [] => Some((from, Bound::Included(self.key))),
            [0] => Some((from, Bound::Unbounded)),
            end if end <= self.key => None,
            end => Some((from, Bound::Excluded(end))),
        }
    }
}

/// The key index.
#[derive(Debug, Default)]
pub struct Index {
    keys: BTreeMap<Box<[u8]>, KeyEntry>,
}

/// Result of one step of [`Index::sweep`].
#[derive(Debug, PartialEq, Eq)]
pub enum Swept {
    /// Go on after this key.
    Until(Box<[u8]>),
    /// The whole index was seen.
    All,
}

impl Index {
    /// An index from entries in any order of distinct keys; builds a denser map than single inserts.
    pub fn from_entries(mut entries: Vec<(Box<[u8]>, KeyEntry)>) -> Index {
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Index {
            keys: entries.into_iter().collect(),
        }
    }

    /// Adds entries of absent keys, ascending by key.
    pub fn extend_sorted(&mut self, entries: Vec<(Box<[u8]>, KeyEntry)>) {
        if self.keys.is_empty() {
            self.keys = entries.into_iter().collect();
        } else {
            self.keys.extend(entries);
        }
    }

    /// Number of keys with any change kept, deleted ones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The entry of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&KeyEntry> {
        self.keys.get(key)
    }

    /// The entry of `key`, to change it.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut KeyEntry> {
        self.keys.get_mut(key)
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, key: &[u8], entry: KeyEntry) {
        let former = self.keys.insert(key.into(), entry);
        assert!(former.is_none(), "only absent keys are inserted");
    }

    /// Entries of an interval, ascending by key.
    pub fn range<'a>(
        &'a self,
        interval: Interval<'_>,
    ) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry)> {
        let range = interval
            .bounds()
            .map(|bounds| self.keys.range::<[u8], _>(bounds));
        range.into_iter().flatten().map(|(k, e)| (&**k, e))
    }

    /// Entries of an interval, ascending by key, to change them.
    pub fn range_mut<'a>(
        &'a mut self,
        interval: Interval<'_>,
    ) -> impl Iterator<Item = (&'a [u8], &'a mut KeyEntry)> {
        let range = interval
            .bounds()
            .map(|bounds| self.keys.range_mut::<[u8], _>(bounds));
        range.into_iter().flatten().map(|(k, e)| (&**k, e))
    }

    /// Entries of an interval after `after`, ascending by key: how a long scan goes on.
    pub fn range_after<'a>(
        &'a self,
        interval: Interval<'_>,
        after: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry)> {
        let range = interval.bounds().and_then(|(_, end)| {
            let open = match end {
                Bound::Excluded(end) => after < end,
                Bound::Included(end) => after < end,
                Bound::Unbounded => true,
            };
            open.then(|| self.keys.range::<[u8], _>((Bound::Excluded(after), end)))
        });
        range.into_iter().flatten().map(|(k, e)| (&**k, e))
    }

    /// One step of compaction at `at`: looks at up to `keys_max` keys after `after` and drops what
    /// compaction passed, handing each dropped record to `removed`.
    pub fn sweep(
        &mut self,
        after: Option<&[u8]>,
        keys_max: usize,
        at: i64,
        mut removed: impl FnMut(RecordKey),
    ) -> Swept {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut empty = Vec::new();
        let mut last = None;
        let mut seen = 0;
        for (key, entry) in self.keys.range_mut::<[u8], _>((from, Bound::Unbounded)) {
            seen += 1;
            if entry.compact(at, &mut removed) {
                empty.push(key.clone());
            }
            if seen == keys_max {
                last = Some(key.clone());
                break;
            }
        }
        for key in &empty {
            self.keys.remove(key);
        }
        last.map_or(Swept::All, Swept::Until)
    }

    /// Bytes of heap memory behind entries with more than one record, for tests of the bound.
    pub fn history_bytes(&self) -> usize {
        self.keys.values().map(KeyEntry::heap_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(main: i64) -> RecordKey {
        RecordKey {
            main,
            sub: 0,
            tombstone: false,
        }
    }

    fn names<'a>(found: impl Iterator<Item = (&'a [u8], &'a KeyEntry)>) -> Vec<&'a [u8]> {
        found.map(|(k, _)| k).collect()
    }

    #[test]
    fn intervals_are_etcds() {
        let entries = ["a", "b", "ba", "c"].iter().enumerate();
        let entries =
            entries.map(|(i, k)| (k.as_bytes().into(), KeyEntry::created(key(i as i64 + 2), 0)));
        let index = Index::from_entries(entries.collect());
        let at = |k: &'static str, e: &'static str| Interval::new(k.as_bytes(), e.as_bytes());
        assert_eq!(names(index.range(at("b", ""))), [b"b"]);
        assert_eq!(names(index.range(at("b", "c"))), [&b"b"[..], b"ba"]);
        assert_eq!(names(index.range(at("b", "\0"))), [&b"b"[..], b"ba", b"c"]);
        assert_eq!(names(index.range(at("c", "a"))).len(), 0);
        assert_eq!(names(index.range(at("a", "a"))).len(), 0);
        assert_eq!(names(index.range(at("\0", "\0"))).len(), 4);
        assert_eq!(
            names(index.range_after(at("a", "\0"), b"b")),
            [&b"ba"[..], b"c"]
        );
        assert_eq!(names(index.range_after(at("a", "c"), b"c")).len(), 0);
        assert_eq!(names(index.range_after(at("a", ""), b"a")).len(), 0);
        for (interval, inside) in [
            (at("b", ""), "b"),
            (at("a", "c"), "ba"),
            (at("b", "\0"), "z"),
        ] {
            assert!(interval.contains(inside.as_bytes()));
        }
        assert!(!at("c", "a").contains(b"b"));
    }

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<KeyEntry>(), 48);
        // Worst fill of a B-tree node is 6 of 11; the key's box is 16 bytes and one allocation.
        let worst = (size_of::<KeyEntry>() + size_of::<Box<[u8]>>()) * 11 / 6 + 16;
        assert!(worst <= 150, "{worst} bytes for each key");
    }
}
