//! Room proto: the interval of keys that `key` and `range_end` of a request mean. Pure arithmetic on
//! bytes; it knows no store.

use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Bound;

/// What `range_end` says about where an interval ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum End {
    /// Right after the start: just that key.
    Key,
    /// Before this key.
    Before(Bytes),
    /// Nowhere: every key from the start on.
    Open,
}

/// An interval of keys, compared as unsigned bytes.
///
/// - `range_end` empty: just `key`. One zero byte: every key ≥ `key`. Else: `key ≤ k < range_end`,
///   which is empty, not an error, when `range_end ≤ key`.
/// - Key and end of one zero byte: every key, since no key is empty.
/// - Equality is that of the wire form: `a` and `[a, a\0)` hold the same key and are not equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    start: Bytes,
    end: End,
}

impl KeyRange {
    /// The interval that a request's `key` and `range_end` mean.
    pub fn new(key: impl Into<Bytes>, range_end: impl Into<Bytes>) -> KeyRange {
        let range_end = range_end.into();
        let end = match range_end.as_ref() {
            [] => End::Key,
            [0] => End::Open,
            _ => End::Before(range_end),
        };
        KeyRange {
            start: key.into(),
            end,
        }
    }

    /// Just this key.
    pub fn single(key: impl Into<Bytes>) -> KeyRange {
        KeyRange {
            start: key.into(),
            end: End::Key,
        }
    }

    /// Every key that begins with `prefix`; every key when it is empty.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let prefix = prefix.into();
        if prefix.is_empty() {
            KeyRange::all()
        } else {
            KeyRange::new(prefix.clone(), prefix_end(&prefix))
        }
    }

    /// Every key ≥ `key`.
    pub fn from_key(key: impl Into<Bytes>) -> KeyRange {
        KeyRange {
            start: key.into(),
            end: End::Open,
        }
    }

    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange::from_key(Bytes::from_static(b"\0"))
    }

    /// First key of the interval, as on the wire.
    pub fn key(&self) -> &Bytes {
        &self.start
    }

    /// End of the interval, as on the wire.
    pub fn range_end(&self) -> Bytes {
        match &self.end {
            End::Key => Bytes::new(),
            End::Before(end) => end.clone(),
            End::Open => Bytes::from_static(b"\0"),
        }
    }

    /// Whether it was written as one key. Such an interval always holds exactly that key.
    pub fn is_single(&self) -> bool {
        self.end == End::Key
    }

    /// Whether it ends nowhere.
    pub fn is_open(&self) -> bool {
        self.end == End::Open
    }

    /// Whether no key lies in it.
    pub fn is_empty(&self) -> bool {
        !self.starts_before_end_of(self)
    }

    /// Whether `key` lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Key => self.start == key,
            End::Before(end) => self.start <= key && key < end,
            End::Open => self.start <= key,
        }
    }

    /// Whether some key lies in both.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.starts_before_end_of(self)
            && other.starts_before_end_of(other)
            && self.starts_before_end_of(other)
            && other.starts_before_end_of(self)
    }

    /// Whether every key of `other` lies in this one; true for an empty `other`.
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.is_empty() || (self.start <= other.start && self.cmp_end(other) != Ordering::Less)
    }

    /// The interval as bounds for an ordered map. An empty interval gives two equal bounds, of which
    /// the upper excludes, because ordered maps panic on a start above its end.
    pub fn bounds(&self) -> (Bound<Bytes>, Bound<Bytes>) {
        let start = Bound::Included(self.start.clone());
        let end = match &self.end {
            End::Key => Bound::Included(self.start.clone()),
            End::Before(end) if end > &self.start => Bound::Excluded(end.clone()),
            End::Before(_) => Bound::Excluded(self.start.clone()),
            End::Open => Bound::Unbounded,
        };
        (start, end)
    }

    /// Whether this interval's start lies below the other's end.
    fn starts_before_end_of(&self, other: &KeyRange) -> bool {
        match &other.end {
            End::Key => self.start <= other.start,
            End::Before(end) => self.start < end,
            End::Open => true,
        }
    }

    /// Orders the places where two intervals end. One key ends where the next possible key, itself
    /// and a zero byte, begins.
    fn cmp_end(&self, other: &KeyRange) -> Ordering {
        match (&self.end, &other.end) {
            (End::Open, End::Open) => Ordering::Equal,
            (End::Open, _) => Ordering::Greater,
            (_, End::Open) => Ordering::Less,
            (End::Before(a), End::Before(b)) => a.cmp(b),
            (End::Key, End::Key) => self.start.cmp(&other.start),
            (End::Key, End::Before(end)) => cmp_successor(&self.start, end),
            (End::Before(end), End::Key) => cmp_successor(&other.start, end).reverse(),
        }
    }
}

/// Compares the smallest key above `key` with `end`.
fn cmp_successor(key: &[u8], end: &[u8]) -> Ordering {
    match end.strip_prefix(key) {
        Some([0]) => Ordering::Equal,
        _ if end > key => Ordering::Less,
        _ => Ordering::Greater,
    }
}

/// The `range_end` that together with `prefix` as key means every key beginning with `prefix`: the
/// prefix with its last byte below 255 raised and the rest cut off; open when there is none.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|byte| *byte < u8::MAX) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end.into()
        }
        None => Bytes::from_static(b"\0"),
    }
}

#[cfg(test)]
#[path = "key_range_tests.rs"]
mod tests;
