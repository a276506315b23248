//! Room storage, watches: intervals of keys that answer "which of you hold this key?" in O(log n + hits).
//! A pure data structure; it knows intervals and numbered values, not watchers.
//!
//! A treap ordered by (start, end) in which every node knows the furthest end below it. Priorities come
//! from a counter put through a mixing function, so that equal histories build equal trees.

use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Where an interval ends: before a key, or nowhere (`None`). `None` is the furthest.
type End = Option<Bytes>;

const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    start: Bytes,
    end: End,
    /// Furthest end in this subtree.
    furthest: End,
    priority: u64,
    left: u32,
    right: u32,
    values: BTreeMap<u64, T>,
}

/// Values filed under intervals; several may share one interval.
#[derive(Debug)]
pub(super) struct IntervalMap<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    root: u32,
    made: u64,
}

impl<T> Default for IntervalMap<T> {
    fn default() -> IntervalMap<T> {
        IntervalMap {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NIL,
            made: 0,
        }
    }
}

impl<T> IntervalMap<T> {
    /// Files `value` as number `serial` under `start <= key < end`.
    pub(super) fn insert(&mut self, start: &Bytes, end: &End, serial: u64, value: T) {
        if let Some(at) = self.find(start, end) {
            self.node_mut(at).values.insert(serial, value);
            return;
        }
        let fresh = self.make(start, end, serial, value);
        let (less, more) = self.split(self.root, start, end);
        let less = self.merge(less, fresh);
        self.root = self.merge(less, more);
    }

    /// Removes number `serial` from the interval; true when it was there.
    pub(super) fn remove(&mut self, start: &Bytes, end: &End, serial: u64) -> bool {
        let Some(at) = self.find(start, end) else {
            return false;
        };
        let node = self.node_mut(at);
        let found = node.values.remove(&serial).is_some();
        if node.values.is_empty() {
            self.root = self.unlink(self.root, start, end);
            let node = self.node_mut(at);
            (node.start, node.end, node.furthest) = (Bytes::new(), None, None);
            self.free.push(at);
        }
        found
    }

    /// Calls `hit` for every value whose interval holds `key`, in the order of the intervals.
    pub(super) fn each_holding<'a>(&'a self, key: &[u8], hit: &mut dyn FnMut(&'a T)) {
        self.visit(self.root, key, hit);
    }

    fn visit<'a>(&'a self, at: u32, key: &[u8], hit: &mut dyn FnMut(&'a T)) {
        if at == NIL {
            return;
        }
        let node = self.node(at);
        if !is_before(key, &node.furthest) {
            return;
        }
        self.visit(node.left, key, hit);
        if node.start <= key {
            if is_before(key, &node.end) {
                node.values.values().for_each(&mut *hit);
            }
            self.visit(node.right, key, hit);
        }
    }

    fn node(&self, at: u32) -> &Node<T> {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node<T> {
        &mut self.nodes[at as usize]
    }

    fn make(&mut self, start: &Bytes, end: &End, serial: u64, value: T) -> u32 {
        self.made += 1;
        let node = Node {
            start: start.clone(),
            end: end.clone(),
            furthest: end.clone(),
            priority: mix(self.made),
            left: NIL,
            right: NIL,
            values: BTreeMap::from([(serial, value)]),
        };
        if let Some(at) = self.free.pop() {
            *self.node_mut(at) = node;
            return at;
        }
        let at = u32::try_from(self.nodes.len()).expect("fewer than 2^32 intervals");
        self.nodes.push(node);
        at
    }

    fn find(&self, start: &Bytes, end: &End) -> Option<u32> {
        let mut at = self.root;
        while at != NIL {
            let node = self.node(at);
            at = match order(start, end, node) {
                Ordering::Equal => return Some(at),
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
            };
        }
        None
    }

    /// Parts a subtree into what is below and what is above (start, end).
    fn split(&mut self, at: u32, start: &Bytes, end: &End) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let node = self.node(at);
        if order(start, end, node) == Ordering::Greater {
            let (less, more) = self.split(node.right, start, end);
            self.node_mut(at).right = less;
            self.refresh(at);
            (at, more)
        } else {
            let (less, more) = self.split(node.left, start, end);
            self.node_mut(at).left = more;
            self.refresh(at);
            (less, at)
        }
    }

    /// Joins two subtrees, all of `less` below all of `more`.
    fn merge(&mut self, less: u32, more: u32) -> u32 {
        if less == NIL || more == NIL {
            return if less == NIL { more } else { less };
        }
        if self.node(less).priority > self.node(more).priority {
            let joined = self.merge(self.node(less).right, more);
            self.node_mut(less).right = joined;
            self.refresh(less);
            less
        } else {
            let joined = self.merge(less, self.node(more).left);
            self.node_mut(more).left = joined;
            self.refresh(more);
            more
        }
    }

    /// Takes the node (start, end) out of a subtree; answers the subtree's new top.
    fn unlink(&mut self, at: u32, start: &Bytes, end: &End) -> u32 {
        let node = self.node(at);
        let (left, right) = (node.left, node.right);
        match order(start, end, node) {
            Ordering::Equal => return self.merge(left, right),
            Ordering::Less => {
                let top = self.unlink(left, start, end);
                self.node_mut(at).left = top;
            }
            Ordering::Greater => {
                let top = self.unlink(right, start, end);
                self.node_mut(at).right = top;
            }
        }
        self.refresh(at);
        at
    }

    fn refresh(&mut self, at: u32) {
        let node = self.node(at);
        let mut furthest = &node.end;
        for child in [node.left, node.right] {
            if child != NIL && cmp_end(&self.node(child).furthest, furthest) == Ordering::Greater {
                furthest = &self.node(child).furthest;
            }
        }
        let furthest = furthest.clone();
        self.node_mut(at).furthest = furthest;
    }
}

fn order<T>(start: &Bytes, end: &End, node: &Node<T>) -> Ordering {
    start.cmp(&node.start).then_with(|| cmp_end(end, &node.end))
}

fn cmp_end(a: &End, b: &End) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}

fn is_before(key: &[u8], end: &End) -> bool {
    end.as_ref().is_none_or(|end| key < end.as_ref())
}

/// Spreads a counter over 64 bits.
fn mix(count: u64) -> u64 {
    let mut z = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(n: u8) -> Bytes {
        Bytes::copy_from_slice(&[n])
    }

    fn depth<T>(map: &IntervalMap<T>, at: u32) -> usize {
        if at == NIL {
            return 0;
        }
        let node = map.node(at);
        1 + depth(map, node.left).max(depth(map, node.right))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_flat_list(
            ops in proptest::collection::vec(
                (any::<bool>(), 0..12u8, proptest::option::of(0..12u8), 0..4u64), 1..80),
        ) {
            let mut map = IntervalMap::default();
            let mut list: Vec<(u8, Option<u8>, u64)> = Vec::new();
            for (add, start, end, serial) in ops {
                let item = (start, end, serial);
                let held = list.contains(&item);
                if add && !held {
                    list.push(item);
                    map.insert(&key(start), &end.map(key), serial, item);
                } else if !add {
                    list.retain(|other| *other != item);
                    prop_assert_eq!(map.remove(&key(start), &end.map(key), serial), held);
                }
                for probe in 0..12u8 {
                    let mut got = Vec::new();
                    map.each_holding(&[probe], &mut |item| got.push(*item));
                    let mut want: Vec<_> = list.iter().copied()
                        .filter(|(s, e, _)| *s <= probe && e.is_none_or(|e| probe < e))
                        .collect();
                    want.sort_by_key(|(s, e, n)| (*s, e.is_none(), *e, *n));
                    prop_assert_eq!(got, want);
                }
            }
            prop_assert!(map.nodes.len() - map.free.len() <= list.len());
        }
    }

    #[test]
    fn sorted_input_stays_shallow() {
        let mut map = IntervalMap::default();
        for n in 0..10_000u32 {
            let start = Bytes::copy_from_slice(&n.to_be_bytes());
            let end = Some(Bytes::copy_from_slice(&(n + 1).to_be_bytes()));
            map.insert(&start, &end, 0, n);
        }
        assert!(depth(&map, map.root) < 50, "{}", depth(&map, map.root));
        let mut hits = Vec::new();
        map.each_holding(&77u32.to_be_bytes(), &mut |n| hits.push(*n));
        assert_eq!(hits, vec![77]);
    }
}
