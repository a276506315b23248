//! Room storage, MVCC: all keys in order, each with its [`KeyEntry`]. Pure data.

use super::blocks::Blocks;
use super::entry::KeyEntry;
use crate::engine::RecordKey;

/// A key interval in etcd's words, borrowed: `end` empty = the one key; one zero byte = all keys from
/// `key` on; otherwise half open. An inverted interval is empty.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// First key.
    pub key: &'a [u8],
    /// See the type.
    pub end: &'a [u8],
}

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

    /// Whether a key at or above the interval's start lies before its end.
    fn reaches(&self, key: &[u8]) -> bool {
        match self.end {
            [] => key == self.key,
            [0] => true,
            end => key < end,
        }
    }
}

/// The key index.
#[derive(Debug, Default)]
pub struct Index {
    keys: Blocks,
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
    /// Adds entries of absent keys, ascending by key; the first ones stand dense.
    pub fn extend_sorted(&mut self, entries: Vec<(Box<[u8]>, KeyEntry)>) {
        self.keys.extend_sorted(entries);
    }

    /// Number of keys with any change kept, deleted ones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.len() == 0
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
        self.keys.insert(key.into(), entry);
    }

    /// Entries of an interval, ascending by key.
    pub fn range<'a>(
        &'a self,
        interval: Interval<'a>,
    ) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry)> {
        let from = self.keys.iter_from(interval.key, true);
        from.take_while(move |(key, _)| interval.reaches(key))
    }

    /// Entries of an interval after `after`, which lies in it, ascending by key: how a long scan goes
    /// on.
    pub fn range_after<'a>(
        &'a self,
        interval: Interval<'a>,
        after: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry)> {
        let from = self.keys.iter_from(after, false);
        from.take_while(move |(key, _)| interval.reaches(key))
    }

    /// One step of compaction at `at`: looks at about `keys_max` keys after `after` and drops what
    /// compaction passed, handing each dropped record to `removed`.
    pub fn sweep(
        &mut self,
        after: Option<&[u8]>,
        keys_max: usize,
        at: i64,
        mut removed: impl FnMut(RecordKey),
    ) -> Swept {
        let last = self
            .keys
            .sweep(after, keys_max, |entry| entry.compact(at, &mut removed));
        last.map_or(Swept::All, Swept::Until)
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
        let mut index = Index::default();
        index.extend_sorted(entries.collect());
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
        // Beside the key's bytes: its box with one allocation, the entry, and a block half empty.
        let worst = (size_of::<KeyEntry>() + size_of::<Box<[u8]>>()) * 2 + 16;
        assert!(worst <= 150, "{worst} bytes for each key");
    }
}
