//! Room storage, MVCC: an ordered map from keys to entries that wastes little. Pure data.
//!
//! A B-tree of single keys spends half of its nodes on air when keys come in order, and follows a pointer
//! for every comparison on the way down. Here blocks of up to 128 keys stand in a small B-tree by a lower
//! bound: half the comparisons, entries side by side for scans, and room reserved a few keys at a time.

use super::entry::KeyEntry;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most keys of a block; beyond it splits in two.
const KEYS_MAX: usize = 128;
/// Keys of a block built from sorted input: leaves a little room.
const KEYS_BUILT: usize = 120;
/// A block that falls below joins its neighbour when both fit well.
const KEYS_MIN: usize = 32;
/// Room is reserved for so many keys at once.
const RESERVE: usize = 16;

/// Keys in order with their entries, at equal places.
#[derive(Debug, Default)]
struct Block {
    keys: Vec<Box<[u8]>>,
    entries: Vec<KeyEntry>,
}

/// The map.
///
/// - A block's bound is at or below its first key and above the last key of the block before.
/// - The first bound is the empty key; its block may be empty, no other.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: BTreeMap<Box<[u8]>, Block>,
    len: usize,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks {
            blocks: BTreeMap::from([(Box::default(), Block::default())]),
            len: 0,
        }
    }
}

impl Block {
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.keys.binary_search_by(|known| (**known).cmp(key))
    }

    /// Place of the first key at or above (`inclusive`) or above `key`.
    fn place(&self, key: &[u8], inclusive: bool) -> usize {
        match self.find(key) {
            Ok(at) if inclusive => at,
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    fn insert(&mut self, at: usize, key: Box<[u8]>, entry: KeyEntry) {
        if self.keys.len() == self.keys.capacity() {
            self.keys.reserve_exact(RESERVE);
            self.entries.reserve_exact(RESERVE);
        }
        self.keys.insert(at, key);
        self.entries.insert(at, entry);
    }

    fn split_off(&mut self, at: usize) -> Block {
        let block = Block {
            keys: self.keys.split_off(at),
            entries: self.entries.split_off(at),
        };
        self.keys.shrink_to(self.keys.len() + RESERVE);
        self.entries.shrink_to(self.entries.len() + RESERVE);
        block
    }

    fn append(&mut self, mut other: Block) {
        self.keys.append(&mut other.keys);
        self.entries.append(&mut other.entries);
    }

    fn iter_from(&self, at: usize) -> impl Iterator<Item = (&[u8], &KeyEntry)> {
        let keys = self.keys[at..].iter().map(|key| &**key);
        keys.zip(&self.entries[at..])
    }

    /// Drops the entries that `empty` says, in order.
    fn sweep(&mut self, mut empty: impl FnMut(&mut KeyEntry) -> bool) -> usize {
        let before = self.keys.len();
        let gone: Vec<bool> = self.entries.iter_mut().map(&mut empty).collect();
        if gone.contains(&true) {
            let mut at = gone.iter();
            self.keys
                .retain(|_| !at.next().expect("as many keys as entries"));
            let mut at = gone.iter();
            self.entries
                .retain(|_| !at.next().expect("as many entries"));
            self.keys.shrink_to(self.keys.len() + RESERVE);
            self.entries.shrink_to(self.entries.len() + RESERVE);
        }
        before - self.keys.len()
    }
}

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bound of the block that holds, or would hold, `key`.
    fn bound_of(&self, key: &[u8]) -> &[u8] {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (bound, _) = self
            .blocks
            .range::<[u8], _>(upto)
            .next_back()
            .expect("the empty bound");
        bound
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&KeyEntry> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (_, block) = self.blocks.range::<[u8], _>(upto).next_back()?;
        block.find(key).ok().map(|at| &block.entries[at])
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut KeyEntry> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (_, block) = self.blocks.range_mut::<[u8], _>(upto).next_back()?;
        block.find(key).ok().map(|at| &mut block.entries[at])
    }

    /// Adds an absent key.
    pub(super) fn insert(&mut self, key: Box<[u8]>, entry: KeyEntry) {
        let upto = (Bound::Unbounded, Bound::Included(&*key));
        let (_, block) = self
            .blocks
            .range_mut::<[u8], _>(upto)
            .next_back()
            .expect("the empty bound");
        let at = block.find(&key).expect_err("only absent keys are inserted");
        self.len += 1;
        if block.keys.len() < KEYS_MAX {
            block.insert(at, key, entry);
            return;
        }
        // Keys that come in order leave full blocks behind.
        let cut = if at == KEYS_MAX {
            KEYS_MAX
        } else {
            KEYS_MAX / 2
        };
        let mut upper = block.split_off(cut);
        match at.checked_sub(cut) {
            Some(at) => upper.insert(at, key, entry),
            None => block.insert(at, key, entry),
        }
        self.blocks.insert(upper.keys[0].clone(), upper);
    }

    /// Adds absent keys, ascending; dense when the map is empty.
    pub(super) fn extend_sorted(&mut self, entries: Vec<(Box<[u8]>, KeyEntry)>) {
        if self.len > 0 {
            entries
                .into_iter()
                .for_each(|(key, entry)| self.insert(key, entry));
            return;
        }
        self.len = entries.len();
        let mut left = entries.into_iter().peekable();
        let mut bound = Box::default();
        while left.peek().is_some() {
            let (keys, entries) = left.by_ref().take(KEYS_BUILT).unzip();
            let mut block = Block { keys, entries };
            block.keys.shrink_to_fit();
            block.entries.shrink_to_fit();
            self.blocks.insert(std::mem::take(&mut bound), block);
            bound = left
                .peek()
                .map_or_else(Box::default, |(key, _)| key.clone());
        }
    }

    /// Everything from `key` on (`inclusive`) or after it, ascending.
    pub(super) fn iter_from(
        &self,
        key: &[u8],
        inclusive: bool,
    ) -> impl Iterator<Item = (&[u8], &KeyEntry)> {
        let from = (Bound::Included(self.bound_of(key)), Bound::Unbounded);
        let mut blocks = self.blocks.range::<[u8], _>(from).map(|(_, block)| block);
        let first = blocks.next().expect("the block of the key");
        let rest = blocks.flat_map(|block| block.iter_from(0));
        first.iter_from(first.place(key, inclusive)).chain(rest)
    }

    /// Shows the entries of whole blocks to `empty`, from the block that holds the key after `after` on,
    /// until at least `keys_max` were seen; those it says true to are dropped. Answers the last key
    /// seen, `None` at the end.
    pub(super) fn sweep(
        &mut self,
        after: Option<&[u8]>,
        keys_max: usize,
        mut empty: impl FnMut(&mut KeyEntry) -> bool,
    ) -> Option<Box<[u8]>> {
        let first: Box<[u8]> = self.bound_of(after.unwrap_or_default()).into();
        let (mut seen, mut last, mut thin) = (0, None, Vec::new());
        let mut blocks = self
            .blocks
            .range_mut::<[u8], _>((Bound::Included(&*first), Bound::Unbounded));
        for (bound, block) in blocks.by_ref() {
            // A block that `after` ends was seen before.
            if after.is_some_and(|after| block.keys.last().is_none_or(|key| **key <= *after)) {
                continue;
            }
            seen += block.keys.len();
            last = block.keys.last().cloned();
            self.len -= block.sweep(&mut empty);
            if block.keys.len() < KEYS_MIN {
                thin.push(bound.clone());
            }
            if seen >= keys_max {
                break;
            }
        }
        let goes_on = blocks.next().is_some();
        for bound in thin {
            self.join(&bound);
        }
        last.filter(|_| goes_on)
    }

    /// Joins a thin block to the one before it, when both fit.
    fn join(&mut self, bound: &[u8]) {
        if bound.is_empty() {
            return;
        }
        let thin = self.blocks[bound].keys.len();
        let before = (Bound::Unbounded, Bound::Excluded(bound));
        let (_, block) = self
            .blocks
            .range_mut::<[u8], _>(before)
            .next_back()
            .expect("the empty bound");
        if thin == 0 || block.keys.len() + thin <= KEYS_MAX - KEYS_MIN {
            let joined = self.blocks.remove(bound).expect("it was just there");
            let (_, block) = self
                .blocks
                .range_mut::<[u8], _>(before)
                .next_back()
                .expect("as above");
            block.append(joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RecordKey;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn entry(main: i64) -> KeyEntry {
        let record = RecordKey {
            main,
            sub: 0,
            tombstone: false,
        };
        KeyEntry::created(record, 0)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        /// Keys in order from here on.
        Run(u16, u16),
        Sweep(u16, u8),
        Read(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u16>().prop_map(|n| Step::Insert(n % 2000)),
            2 => (any::<u16>(), 0u16..300).prop_map(|(n, run)| Step::Run(n % 2000, run)),
            1 => (any::<u16>(), 1u8..4).prop_map(|(n, keep)| Step::Sweep(n % 2000, keep)),
            1 => any::<u16>().prop_map(|n| Step::Read(n % 2000)),
        ]
    }

    fn key(n: u16) -> Box<[u8]> {
        n.to_be_bytes().into()
    }

    fn check(blocks: &Blocks) {
        let mut below: Option<&[u8]> = None;
        for (bound, block) in &blocks.blocks {
            assert!(below.is_none_or(|last| last < &**bound));
            assert!(block.keys.is_empty() == (bound.is_empty() && block.keys.is_empty()));
            assert!(block.keys.first().is_none_or(|first| bound <= first));
            assert!(block.keys.len() <= KEYS_MAX && block.keys.is_sorted());
            below = block.keys.last().map(|key| &**key).or(Some(bound));
        }
    }

    fn run(steps: Vec<Step>) {
        let (mut blocks, mut model) = (Blocks::default(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Insert(n) => insert(&mut blocks, &mut model, n),
                Step::Run(n, run) => (n..n + run).for_each(|n| insert(&mut blocks, &mut model, n)),
                Step::Sweep(from, keep) => {
                    let mut after = Some(key(from));
                    model.retain(|k, e| *k <= key(from) || e.modified() % 4 < i64::from(keep));
                    while let Some(last) = after {
                        // Whole blocks are shown, so keys at or below `from` are shown too.
                        after = blocks.sweep(Some(&last), 200, |entry| {
                            entry.modified() > i64::from(from)
                                && entry.modified() % 4 >= i64::from(keep)
                        });
                        check(&blocks);
                    }
                }
                Step::Read(n) => {
                    assert_eq!(blocks.get(&key(n)), model.get(&key(n)));
                    for inclusive in [true, false] {
                        let start = key(n);
                        let got = blocks.iter_from(&start, inclusive);
                        let from = if inclusive { n } else { n + 1 };
                        let want = model.range(key(from)..).map(|(k, e)| (&**k, e));
                        assert!(got.eq(want));
                    }
                }
            }
        }
        check(&blocks);
        assert_eq!(blocks.len(), model.len());
        assert!(
            blocks
                .iter_from(&[], true)
                .eq(model.iter().map(|(k, e)| (&**k, e)))
        );
        let mut built = Blocks::default();
        built.extend_sorted(model.iter().map(|(k, e)| (k.clone(), e.clone())).collect());
        check(&built);
        assert!(
            built
                .iter_from(&[], true)
                .eq(model.iter().map(|(k, e)| (&**k, e)))
        );
    }

    fn insert(blocks: &mut Blocks, model: &mut BTreeMap<Box<[u8]>, KeyEntry>, n: u16) {
        match blocks.get_mut(&key(n)) {
            Some(found) => assert_eq!(Some(&*found), model.get(&key(n))),
            None => {
                blocks.insert(key(n), entry(i64::from(n)));
                assert_eq!(model.insert(key(n), entry(i64::from(n))), None);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200,
            rng_seed: RngSeed::Fixed(3),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn blocks_are_a_sorted_map(steps in proptest::collection::vec(step(), 1..60)) {
            run(steps);
        }
    }

    #[test]
    fn keys_in_order_leave_full_blocks() {
        let mut blocks = Blocks::default();
        for n in 0..10_000 {
            blocks.insert(key(n), entry(i64::from(n)));
        }
        assert_eq!(blocks.blocks.len(), 10_000_usize.div_ceil(KEYS_MAX));
        let room: usize = blocks
            .blocks
            .values()
            .map(|block| block.entries.capacity())
            .sum();
        assert!(room <= 10_000 + RESERVE, "{room}");
    }
}
