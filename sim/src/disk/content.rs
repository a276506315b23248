//! Room `sim`: what a file holds: the bytes that reads see, the bytes that would survive a power cut, and the
//! operations between them in their order.
//!
//! - `durable` plus all of `pending`, applied in order, equals `live` unless a sync has failed.
//! - A page that is absent is zero; preallocated room costs no memory.

use super::CrashMode;
use crate::rng::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const PAGE: u64 = 4096;

type Page = Arc<[u8; PAGE as usize]>;

/// Bytes by page.
#[derive(Clone, Debug, Default)]
struct Image {
    pages: BTreeMap<u64, Page>,
    len: u64,
}

#[derive(Clone, Debug)]
enum Pending {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    live: Image,
    durable: Image,
    pending: Vec<Pending>,
    /// Pages that differ between `live` and `durable` and that the next sync writes.
    dirty: BTreeSet<u64>,
    /// Pages from the start of the file that `allocate` has reserved.
    reserved: u64,
    /// Writes that the device will put in the wrong place: where they belong, where they go, their bytes.
    astray: Vec<(u64, u64, Vec<u8>)>,
}

/// The parts of `offset..offset + len` by page: page, first byte in it, length.
fn by_page(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, start) = (at / PAGE, at % PAGE);
        let n = (PAGE - start).min(end - at);
        at += n;
        Some((page, start as usize, n as usize))
    })
}

impl Image {
    fn read(&self, buf: &mut [u8], offset: u64) {
        let mut rest = buf;
        for (page, start, n) in by_page(offset, rest.len() as u64) {
            let (part, tail) = rest.split_at_mut(n);
            match self.pages.get(&page) {
                Some(held) => part.copy_from_slice(&held[start..start + n]),
                None => part.fill(0),
            }
            rest = tail;
        }
    }

    fn write(&mut self, data: &[u8], offset: u64) {
        let mut rest = data;
        for (page, start, n) in by_page(offset, data.len() as u64) {
            let held = self
                .pages
                .entry(page)
                .or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(held)[start..start + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    /// Cuts or grows; the pages that changed.
    fn set_len(&mut self, len: u64) -> Vec<u64> {
        let mut changed = Vec::new();
        if len < self.len {
            let first_gone = len.div_ceil(PAGE);
            changed.extend(self.pages.split_off(&first_gone).into_keys());
            if !len.is_multiple_of(PAGE)
                && let Some(page) = self.pages.get_mut(&(len / PAGE))
            {
                Arc::make_mut(page)[(len % PAGE) as usize..].fill(0);
                changed.push(len / PAGE);
            }
        }
        self.len = len;
        changed
    }

    fn apply(&mut self, op: &Pending) {
        match op {
            Pending::Write { offset, data } => self.write(data, *offset),
            Pending::SetLen(len) => {
                self.set_len(*len);
            }
        }
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.live.len
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) {
        self.live.read(buf, offset);
    }

    /// As [`Content::write`], but once it reaches the device the bytes go to `wrong` and not to `offset`. Until
    /// the power is cut nobody sees it: reads are answered from memory.
    pub(super) fn write_astray(&mut self, data: &[u8], offset: u64, wrong: u64) {
        self.write(data, offset);
        let Some(Pending::Write { offset: place, .. }) = self.pending.last_mut() else {
            unreachable!("just written");
        };
        *place = wrong;
        self.astray.push((offset, wrong, data.to_vec()));
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        self.live.write(data, offset);
        self.dirty
            .extend(by_page(offset, data.len() as u64).map(|(page, _, _)| page));
        self.pending.push(Pending::Write {
            offset,
            data: data.to_vec(),
        });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let changed = self.live.set_len(len);
        self.dirty.extend(changed);
        self.reserved = self.reserved.min(len.div_ceil(PAGE));
        self.pending.push(Pending::SetLen(len));
    }

    pub(super) fn reserve(&mut self, len: u64) {
        self.reserved = self.reserved.max(len.div_ceil(PAGE));
    }

    /// Pages of the disk that the file occupies.
    pub(super) fn pages(&self) -> u64 {
        self.reserved + self.live.pages.range(self.reserved..).count() as u64
    }

    /// Pages that a write to this place would newly occupy.
    pub(super) fn pages_needed(&self, offset: u64, len: u64) -> u64 {
        by_page(offset, len)
            .filter(|(page, _, _)| *page >= self.reserved && !self.live.pages.contains_key(page))
            .count() as u64
    }

    /// Pages that reserving up to `len` would newly occupy.
    pub(super) fn pages_to_reserve(&self, len: u64) -> u64 {
        let upto = len.div_ceil(PAGE);
        if upto <= self.reserved {
            return 0;
        }
        upto - self.reserved - self.live.pages.range(self.reserved..upto).count() as u64
    }

    pub(super) fn sync(&mut self) {
        let astray = std::mem::take(&mut self.astray);
        let right = |(offset, _, data): &(u64, u64, Vec<u8>)| {
            let mut before = vec![0; data.len()];
            self.durable.read(&mut before, *offset);
            (*offset, before)
        };
        let untouched: Vec<(u64, Vec<u8>)> = astray.iter().map(right).collect();
        for page in std::mem::take(&mut self.dirty) {
            match self.live.pages.get(&page) {
                Some(held) => self.durable.pages.insert(page, held.clone()),
                None => self.durable.pages.remove(&page),
            };
        }
        self.durable.len = self.live.len;
        self.pending.clear();
        for (offset, before) in untouched {
            self.durable.write(&before, offset);
        }
        for (_, wrong, data) in astray {
            self.durable.write(&data, wrong);
        }
        self.durable.set_len(self.live.len);
    }

    /// A sync that failed: what was pending will never be written, though reads still see it.
    pub(super) fn lose_pending(&mut self) {
        self.dirty.clear();
        self.pending.clear();
        self.astray.clear();
    }

    /// Decides the fate of what is pending; afterwards reads see what survived.
    pub(super) fn crash(&mut self, mode: CrashMode, rng: &mut SimRng) {
        let pending = std::mem::take(&mut self.pending);
        let unit = *rng.pick(&[512, PAGE]);
        for op in &pending {
            match mode {
                CrashMode::Kept => unreachable!("nothing is decided"),
                CrashMode::Lost => {}
                CrashMode::Torn => tear(&mut self.durable, op, unit, rng),
            }
        }
        self.dirty.clear();
        self.astray.clear();
        self.live = self.durable.clone();
        self.reserved = self.reserved.min(self.live.len.div_ceil(PAGE));
    }

    /// Flips one bit that both images share; false when there is no byte in `range`.
    pub(super) fn rot(&mut self, at: u64, bit: u8) -> bool {
        if at >= self.live.len {
            return false;
        }
        let mut byte = [0];
        for image in [&mut self.live, &mut self.durable] {
            if at < image.len {
                image.read(&mut byte, at);
                image.write(&[byte[0] ^ (1 << (bit % 8))], at);
            }
        }
        true
    }
}

/// One operation at a power cut: kept whole, dropped whole, or kept in some of its sectors only.
fn tear(durable: &mut Image, op: &Pending, unit: u64, rng: &mut SimRng) {
    match (rng.below(3), op) {
        (0, op) => durable.apply(op),
        (1, Pending::SetLen(_)) => {}
        (_, Pending::SetLen(len)) => {
            durable.set_len(*len);
        }
        (fate, Pending::Write { offset, data }) => {
            let end = offset + data.len() as u64;
            let mut at = *offset;
            while at < end && fate == 2 {
                let next = ((at / unit + 1) * unit).min(end);
                if rng.chance(500_000) {
                    let part = &data[(at - offset) as usize..(next - offset) as usize];
                    durable.write(part, at);
                }
                at = next;
            }
            // The length may survive without the bytes.
            if end > durable.len && rng.chance(500_000) {
                durable.set_len(end);
            }
        }
    }
}
