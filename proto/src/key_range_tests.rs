//! Room proto: key ranges against a naive model: sets of keys from a small universe.
//!
//! Keys and ends have up to two bytes out of {0, 1, 255}; the universe has every key of up to three.
//! Where two intervals differ at all, they differ at a start, at an end, or at the successor of a
//! single key, so three bytes show every difference.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn universe() -> Vec<Vec<u8>> {
    let mut keys = vec![vec![]];
    let mut from = 0;
    for _ in 0..3 {
        let to = keys.len();
        for i in from..to {
            for byte in [0, 1, 255] {
                let mut key = keys[i].clone();
                key.push(byte);
                keys.push(key);
            }
        }
        from = to;
    }
    keys
}

fn in_interval(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    if end.is_empty() {
        key == start
    } else if end == [0] {
        key >= start
    } else {
        key >= start && key < end
    }
}

fn short() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255]), 0..=2)
}

fn set(range: &KeyRange) -> BTreeSet<Vec<u8>> {
    let (start, end) = (range.key().clone(), range.range_end());
    universe()
        .into_iter()
        .filter(|key| in_interval(key, &start, &end))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_interval_is_its_set(key in short(), end in short()) {
        let range = KeyRange::new(key.clone(), end.clone());
        prop_assert_eq!(range.key(), &key);
        prop_assert_eq!(range.range_end(), &end);
        let keys = set(&range);
        prop_assert_eq!(range.is_empty(), keys.is_empty());
        let map: BTreeMap<Bytes, ()> = universe().into_iter().map(|k| (k.into(), ())).collect();
        let by_bounds: BTreeSet<Vec<u8>> =
            map.range(range.bounds()).map(|(k, ())| k.to_vec()).collect();
        prop_assert_eq!(&by_bounds, &keys);
        for key in universe() {
            prop_assert_eq!(range.contains(&key), keys.contains(&key));
        }
    }

    #[test]
    fn two_intervals_relate_as_their_sets(a in short(), b in short(), c in short(), d in short()) {
        let (x, y) = (KeyRange::new(a, b), KeyRange::new(c, d));
        let (keys_x, keys_y) = (set(&x), set(&y));
        prop_assert_eq!(x.overlaps(&y), !keys_x.is_disjoint(&keys_y), "{:?} {:?}", x, y);
        prop_assert_eq!(x.covers(&y), keys_x.is_superset(&keys_y), "{:?} {:?}", x, y);
    }

    #[test]
    fn a_prefix_holds_what_begins_with_it(prefix in short(), key in prop::collection::vec(any::<u8>(), 1..5)) {
        let range = KeyRange::prefix(prefix.clone());
        prop_assert_eq!(range.contains(&key), key.starts_with(&prefix));
        for key in universe().into_iter().filter(|key| !key.is_empty()) {
            prop_assert_eq!(range.contains(&key), key.starts_with(&prefix));
        }
    }
}

#[test]
fn the_rules_as_etcd_states_them() {
    let range = |key: &'static [u8], end: &'static [u8]| KeyRange::new(key, end);
    assert!(range(b"a", b"").is_single() && range(b"a", b"").contains(b"a"));
    assert!(!range(b"a", b"").contains(b"a\0"));
    assert!(range(b"a", b"\0").is_open() && range(b"a", b"\0").contains(b"\xff\xff"));
    assert_eq!(range(b"\0", b"\0"), KeyRange::all());
    assert_eq!(KeyRange::prefix(""), KeyRange::all());
    assert!(range(b"b", b"a").is_empty() && range(b"b", b"b").is_empty());
    assert!(range(b"a", b"a\0").covers(&KeyRange::single("a")));
    assert!(KeyRange::single("a").covers(&range(b"a", b"a\0")));
    assert_ne!(KeyRange::single("a"), range(b"a", b"a\0"));
    assert_eq!(prefix_end(b"a"), "b");
    assert_eq!(prefix_end(b"a\xff\xff"), "b");
    assert_eq!(prefix_end(b"\xff\xff"), b"\0".as_slice());
    assert_eq!(prefix_end(b""), b"\0".as_slice());
}
