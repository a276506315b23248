//! Room `sim`: what goes wrong on a disk, and how long its operations take.

use super::CrashMode;
use crate::rng::SimRng;
use std::collections::BTreeMap;
use std::io;

/// An error a disk can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// The device failed (EIO). At a sync: what was pending is lost though reads still see it.
    Io,
    /// No space left (ENOSPC).
    Full,
}

impl DiskError {
    pub(super) fn error(self) -> io::Error {
        let errno = match self {
            DiskError::Io => 5,
            DiskError::Full => 28,
        };
        io::Error::from_raw_os_error(errno)
    }
}

/// A kind of operation, for counters and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A new file.
    Create,
    /// New folders.
    Folders,
    /// Bytes written.
    Write,
    /// Length set.
    SetLen,
    /// Room reserved.
    Allocate,
    /// A file's data synced.
    Sync,
    /// A name moved.
    Rename,
    /// A file or folder removed.
    Remove,
    /// A folder's names synced.
    SyncDir,
}

/// Faults that are armed, and the disk's speed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) crash_at: Option<(u64, CrashMode)>,
    pub(super) fail_at: BTreeMap<u64, DiskError>,
    /// The n-th sync of a file from now on, counted down.
    pub(super) fail_sync_in: Option<u64>,
    /// The n-th write from now on, counted down, goes to the wrong place.
    pub(super) misdirect_in: Option<u64>,
    /// Chances in a million for each operation.
    pub(super) read_errors_ppm: u32,
    pub(super) write_errors_ppm: u32,
    pub(super) sync_errors_ppm: u32,
    pub(super) capacity_pages: Option<u64>,
    /// Times as slow as usual, in percent.
    pub(super) slow_percent: u64,
    /// Syncs claim success and do nothing.
    pub(super) lies: bool,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            crash_at: None,
            fail_at: BTreeMap::new(),
            fail_sync_in: None,
            misdirect_in: None,
            read_errors_ppm: 0,
            write_errors_ppm: 0,
            sync_errors_ppm: 0,
            capacity_pages: None,
            slow_percent: 100,
            lies: false,
        }
    }
}

impl Faults {
    /// The error of the mutating operation number `n`, if it has one.
    pub(super) fn of(&mut self, n: u64, op: Op, rng: &mut SimRng) -> Option<DiskError> {
        if let Some(error) = self.fail_at.remove(&n) {
            return Some(error);
        }
        let is_sync = matches!(op, Op::Sync | Op::SyncDir);
        if is_sync && let Some(left) = &mut self.fail_sync_in {
            *left -= 1;
            if *left == 0 {
                self.fail_sync_in = None;
                return Some(DiskError::Io);
            }
        }
        let ppm = if is_sync {
            self.sync_errors_ppm
        } else {
            self.write_errors_ppm
        };
        rng.chance(ppm).then_some(DiskError::Io)
    }

    /// Whether the write that happens now goes to the wrong place.
    pub(super) fn goes_astray(&mut self) -> bool {
        let Some(left) = &mut self.misdirect_in else {
            return false;
        };
        *left -= 1;
        let now = *left == 0;
        if now {
            self.misdirect_in = None;
        }
        now
    }

    pub(super) fn cost(&self, op: Option<Op>, bytes: u64, rng: &mut SimRng) -> u64 {
        let base = match op {
            None => rng.between(1_000, 10_000) + bytes / 4,
            Some(Op::Write) => rng.between(2_000, 20_000) + bytes / 2,
            Some(Op::Sync | Op::SyncDir) if rng.chance(10_000) => {
                rng.between(5_000_000, 30_000_000)
            }
            Some(Op::Sync | Op::SyncDir) => rng.between(100_000, 2_000_000),
            Some(_) => rng.between(5_000, 40_000),
        };
        base.saturating_mul(self.slow_percent) / 100
    }
}
