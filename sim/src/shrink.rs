//! Room `sim`: shrinking: a failing run is run again without some of its faults and calls, until nothing more can be
//! left out. Delta debugging: halves first, then smaller parts; whole lanes before items.
//!
//! It knows items and a question (does the run without these still fail the same way?) and nothing of what they are.

use crate::mask::{FAULTS, Item};
use std::collections::BTreeSet;

/// What a run without some items did.
pub(crate) enum Ran {
    /// It failed as before; these items it still did.
    Fails(BTreeSet<Item>),
    /// It held, or failed in another way.
    Holds,
    /// The time for trying is over.
    Enough,
}

/// A search under way.
struct Search<'a> {
    /// Runs without these items.
    runs: &'a mut dyn FnMut(&BTreeSet<Item>) -> Ran,
    left_out: BTreeSet<Item>,
    /// What the smallest failing run so far did.
    done: BTreeSet<Item>,
    enough: bool,
}

/// The largest set of items found that can be left out while the run still fails. `done` is what the failing run
/// did without `left_out`.
pub(crate) fn shrink(
    left_out: BTreeSet<Item>,
    done: BTreeSet<Item>,
    runs: &mut dyn FnMut(&BTreeSet<Item>) -> Ran,
) -> BTreeSet<Item> {
    let mut search = Search {
        runs,
        left_out,
        done,
        enough: false,
    };
    search.whole_lanes();
    loop {
        let before = search.done.len();
        let (faults, calls): (Vec<Item>, Vec<Item>) =
            search.done.iter().partition(|(lane, _)| *lane == FAULTS);
        search.parts(faults);
        search.parts(calls);
        if search.enough || search.done.len() >= before {
            return search.left_out;
        }
    }
}

impl Search<'_> {
    /// Tries to leave out these too; whether that went well.
    fn without(&mut self, more: &[Item]) -> bool {
        if self.enough || more.is_empty() {
            return false;
        }
        let mut left_out = self.left_out.clone();
        left_out.extend(more);
        match (self.runs)(&left_out) {
            // A run without these may live longer and do more; that is no smaller one.
            Ran::Fails(done) if done.len() < self.done.len() => {
                (self.left_out, self.done) = (left_out, done);
                true
            }
            Ran::Fails(_) | Ran::Holds => false,
            Ran::Enough => {
                self.enough = true;
                false
            }
        }
    }

    fn whole_lanes(&mut self) {
        let lanes: BTreeSet<u64> = self.done.iter().map(|(lane, _)| *lane).collect();
        for lane in lanes {
            let items: Vec<Item> = self.done.iter().filter(|i| i.0 == lane).copied().collect();
            self.without(&items);
        }
    }

    /// Leaves out parts of `items`, halves first.
    fn parts(&mut self, items: Vec<Item>) {
        let mut size = items.len().div_ceil(2);
        let mut left = items;
        while size > 0 && !self.enough {
            let mut kept = Vec::new();
            for part in left.chunks(size) {
                if !self.without(part) {
                    kept.extend_from_slice(part);
                }
            }
            left = kept;
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> BTreeSet<Item> {
        let faults = (0..20).map(|n| (FAULTS, n));
        faults
            .chain((0..100).map(|n| (1, n)))
            .chain((0..100).map(|n| (2, n)))
            .collect()
    }

    /// Shrinks a run that fails when all of `needed` are done; what is left, and the number of runs.
    fn left(needed: &[Item], most: usize) -> (BTreeSet<Item>, usize) {
        let mut runs = 0;
        let mut run = |left_out: &BTreeSet<Item>| {
            runs += 1;
            if runs > most {
                return Ran::Enough;
            }
            let done: BTreeSet<Item> = items().difference(left_out).copied().collect();
            match needed.iter().all(|item| done.contains(item)) {
                true => Ran::Fails(done),
                false => Ran::Holds,
            }
        };
        let left_out = shrink(BTreeSet::new(), items(), &mut run);
        (items().difference(&left_out).copied().collect(), runs)
    }

    #[test]
    fn what_is_needed_is_left() {
        for needed in [
            &[][..],
            &[(1, 17)],
            &[(0, 3), (0, 4), (2, 99)],
            &[(1, 0), (2, 50)],
        ] {
            let (left, runs) = left(needed, usize::MAX);
            assert_eq!(left, needed.iter().copied().collect(), "{needed:?}");
            assert!(runs < 120, "{runs} runs for {needed:?}");
        }
    }

    #[test]
    fn a_search_that_is_ended_keeps_what_it_has() {
        let (left, runs) = left(&[(1, 17)], 4);
        assert!(left.contains(&(1, 17)) && left.len() < items().len());
        assert_eq!(runs, 5);
    }
}
