//! Room `sim`: the mask of a run: which of its drawn items are left out. An item is the n-th thing that a lane does:
//! the n-th fault of the nemesis, the n-th call of a worker. An item that is left out draws what it would have drawn,
//! so that the others stay what they are. An empty mask leaves a run as its seed drew it.
//!
//! A mask also keeps account of the items it was asked for: that is what there is to leave out.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

/// The lane of the nemesis' faults.
pub(crate) const FAULTS: u64 = 0;

/// Lanes of workers: the numbers of their clients.
const WORKERS: std::ops::Range<u64> = 1..300;

/// An item: its lane, and its number in it from 0.
pub(crate) type Item = (u64, u64);

/// What is left out of a run. Clones share the account of what was asked, not what is left out.
#[derive(Clone, Default)]
pub struct Mask {
    left_out: Arc<BTreeSet<Item>>,
    asked: Arc<Mutex<BTreeSet<Item>>>,
    calls: Arc<Mutex<BTreeMap<u64, u64>>>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({:?})", self.to_string())
    }
}

impl Mask {
    pub(crate) fn without(left_out: BTreeSet<Item>) -> Mask {
        Mask {
            left_out: Arc::new(left_out),
            ..Mask::default()
        }
    }

    /// Whether an item is done.
    pub(crate) fn allows(&self, lane: u64, number: u64) -> bool {
        let item = (lane, number);
        let allowed = !self.left_out.contains(&item);
        if allowed {
            self.asked.lock().insert(item);
        }
        allowed
    }

    /// Whether the next call of a worker is made. Calls of the run itself always are.
    pub(crate) fn allows_next_call(&self, client: u64) -> bool {
        if !WORKERS.contains(&client) {
            return true;
        }
        let mut calls = self.calls.lock();
        let next = calls.entry(client).or_default();
        *next += 1;
        self.allows(client, *next - 1)
    }

    /// The items that a run did so far.
    pub(crate) fn done(&self) -> BTreeSet<Item> {
        self.asked.lock().clone()
    }

    /// The same, for a run anew.
    pub(crate) fn afresh(&self) -> Mask {
        Mask::without((*self.left_out).clone())
    }

    pub(crate) fn left_out(&self) -> &BTreeSet<Item> {
        &self.left_out
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.left_out.is_empty()
    }
}

/// As `0:1-4,7;2:0`: lane 0 without items 1 to 4 and 7, lane 2 without item 0.
impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut lanes: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (lane, number) in self.left_out.iter() {
            let spans = lanes.entry(*lane).or_default();
            match spans.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => spans.push((*number, *number)),
            }
        }
        let mut text = String::new();
        for (lane, spans) in lanes {
            let separator = if text.is_empty() { "" } else { ";" };
            write!(text, "{separator}{lane}:")?;
            for (at, (first, last)) in spans.into_iter().enumerate() {
                let separator = if at == 0 { "" } else { "," };
                match first == last {
                    true => write!(text, "{separator}{first}")?,
                    false => write!(text, "{separator}{first}-{last}")?,
                }
            }
        }
        f.write_str(&text)
    }
}

/// Items of one lane in a mask's text at most.
const SPAN_MAX: u64 = 1_000_000;

impl std::str::FromStr for Mask {
    type Err = String;

    fn from_str(text: &str) -> Result<Mask, String> {
        let wrong = || format!("{text:?} is no mask, such as 0:1-4,7;2:0");
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let mut left_out = BTreeSet::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (lane, spans) = part.split_once(':').ok_or_else(wrong)?;
            let lane = number(lane)?;
            for span in spans.split(',') {
                let (first, last) = span.split_once('-').unwrap_or((span, span));
                let (first, last) = (number(first)?, number(last)?);
                if last < first || last - first > SPAN_MAX {
                    return Err(wrong());
                }
                left_out.extend((first..=last).map(|n| (lane, n)));
            }
        }
        Ok(Mask::without(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_read_as_it_is_written() {
        for text in ["", "0:1-4,7;2:0", "3:5"] {
            assert_eq!(text.parse::<Mask>().unwrap().to_string(), text);
        }
        for wrong in ["1", "x:1", "1:", "1:4-2", "1:0-99999999", "1:1;x"] {
            assert!(wrong.parse::<Mask>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mask_leaves_out_and_keeps_account() {
        let mask: Mask = "0:1-2".parse().unwrap();
        let allowed: Vec<bool> = (0..4).map(|n| mask.allows(0, n)).collect();
        assert_eq!(allowed, [true, false, false, true]);
        assert!(mask.clone().allows(1, 1));
        assert_eq!(mask.done(), BTreeSet::from([(0, 0), (0, 3), (1, 1)]));
    }
}
