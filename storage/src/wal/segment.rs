//! Room `storage`, WAL: segment files: their names, how one comes to be and how one goes. Knows no log.
//!
//! A segment takes its name only when its header is durable, so a bad header under a segment's name is damage.
//! The next segment is made ahead of need (a spare), out of a purged one where that is possible: writing over
//! blocks the file already owns costs the file system less than taking new ones into use.

use super::error::is_no_space;
use super::frame::{Binding, SegmentHeader};
use super::metrics::WalMetrics;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::{Disk, Env, File, OpenMode, Rng};

/// A segment never gets smaller than this when the disk is nearly full.
const SEGMENT_MIN: u64 = 1 << 20;

/// File name of segment `seq`.
pub(super) fn name(seq: u64) -> String {
    format!("{seq:016x}.wal")
}

/// The number in a segment's file name, or `None` for another file.
pub(super) fn seq_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    let seq = u64::from_str_radix(digits, 16).ok()?;
    (self::name(seq) == *name).then_some(seq)
}

/// Whether a file is what an interrupted step of this module left.
pub(super) fn is_leftover(name: &str) -> bool {
    name.strip_suffix(".tmp")
        .is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
}

/// A disk step that failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The disk is full: nothing was lost, the step may be tried again.
    NoSpace(String),
    /// Anything else: final.
    Fatal(String),
}

impl Fault {
    /// Sorts the failure of a step other than a sync.
    pub(super) fn of(step: impl std::fmt::Display, error: io::Error) -> Fault {
        if is_no_space(&error) {
            Fault::NoSpace(format!("{step}: {error}"))
        } else {
            Fault::Fatal(format!("{step}: {error}"))
        }
    }

    /// A failed sync: final whatever the reason, for the pages may be gone.
    pub(super) fn of_sync(step: impl std::fmt::Display, error: io::Error) -> Fault {
        Fault::Fatal(format!("{step}: {error}"))
    }
}

/// A segment ready to take its first frame.
pub(super) struct Segment {
    pub(super) seq: u64,
    pub(super) binding: Binding,
    pub(super) file: Arc<dyn File>,
    /// Bytes reserved for it.
    pub(super) capacity: u64,
}

/// Where segments come from and go to. Its lock is held over disk steps, so it is used on lanes only.
pub(super) struct Depot {
    disk: Arc<dyn Disk>,
    rng: Arc<dyn Rng>,
    dir: PathBuf,
    segment_bytes: u64,
    metrics: Arc<WalMetrics>,
    slot: Mutex<Slot>,
}

struct Slot {
    next_seq: u64,
    spare: Option<Segment>,
    /// Whether the first frame of the segment in use is durable. No spare before that: recovery takes the
    /// last segment for a spare when it has no first frame, and allows one such segment.
    started: bool,
}

/// What stands ready for the time when the segment in use is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    /// A segment of full size.
    Full,
    /// A smaller one: the disk had no more room.
    Small,
    /// Nothing yet: the segment in use is too young.
    TooEarly,
}

impl Depot {
    pub(super) fn new(
        env: &Env,
        dir: &Path,
        segment_bytes: u64,
        next_seq: u64,
        metrics: Arc<WalMetrics>,
    ) -> Depot {
        Depot {
            disk: env.disk.clone(),
            rng: env.rng.clone(),
            dir: dir.to_owned(),
            segment_bytes,
            metrics,
            slot: Mutex::new(Slot {
                next_seq,
                spare: None,
                started: true,
            }),
        }
    }

    /// The next segment in order: the spare, or one made now.
    pub(super) fn take(&self) -> Result<Segment, Fault> {
        let mut slot = self.slot.lock();
        let segment = match slot.spare.take() {
            Some(spare) => spare,
            None => self.make(&mut slot)?,
        };
        slot.started = false;
        Ok(segment)
    }

    /// The first frame of the segment last taken is durable.
    pub(super) fn on_started(&self) {
        self.slot.lock().started = true;
    }

    /// Makes the spare unless there is one.
    pub(super) fn prepare(&self) -> Result<Prepared, Fault> {
        let mut slot = self.slot.lock();
        if slot.spare.is_none() {
            if !slot.started {
                return Ok(Prepared::TooEarly);
            }
            slot.spare = Some(self.make(&mut slot)?);
        }
        let capacity = slot.spare.as_ref().map_or(0, |s| s.capacity);
        Ok(if capacity < self.segment_bytes {
            Prepared::Small
        } else {
            Prepared::Full
        })
    }

    /// Removes a purged segment, or makes it the spare when none is at hand and no reader holds it.
    pub(super) fn retire(&self, seq: u64, file: Arc<dyn File>) -> Result<(), Fault> {
        let mut slot = self.slot.lock();
        let path = self.dir.join(name(seq));
        let whole = file.len().is_ok_and(|len| len >= self.segment_bytes);
        let idle = Arc::strong_count(&file) == 1;
        drop(file);
        self.metrics.on_segment_removed();
        if slot.spare.is_some() || !slot.started || !whole || !idle {
            return self
                .disk
                .remove_file(&path)
                .map_err(|e| Fault::of(format_args!("remove {}", path.display()), e));
        }
        let tmp = self.tmp(slot.next_seq);
        self.disk
            .rename(&path, &tmp)
            .map_err(|e| Fault::of(format_args!("rename {}", path.display()), e))?;
        let file = self.open(&tmp)?;
        slot.spare = Some(self.finish(&mut slot, file, self.segment_bytes)?);
        Ok(())
    }

    fn tmp(&self, seq: u64) -> PathBuf {
        self.dir.join(format!("{seq:016x}.tmp"))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>, Fault> {
        self.disk
            .open(path, OpenMode::Create)
            .map_err(|e| Fault::of(format_args!("open {}", path.display()), e))
    }

    fn make(&self, slot: &mut Slot) -> Result<Segment, Fault> {
        let tmp = self.tmp(slot.next_seq);
        let file = self.open(&tmp)?;
        let made = self
            .reserve(&*file)
            .map_err(|e| Fault::of(format_args!("reserve room for {}", tmp.display()), e))
            .and_then(|capacity| self.finish(slot, file, capacity));
        if let Err(Fault::NoSpace(_)) = &made {
            let _ = self.disk.remove_file(&tmp);
        }
        made
    }

    /// Reserves a whole segment or, on a disk nearly full, what there is room for. Returns the bytes reserved.
    fn reserve(&self, file: &dyn File) -> io::Result<u64> {
        let mut size = self.segment_bytes;
        loop {
            file.set_len(0)?;
            match file.allocate(size) {
                Err(e) if is_no_space(&e) && size / 4 >= SEGMENT_MIN => size /= 4,
                other => return other.map(|()| size),
            }
        }
    }

    /// Gives a file its header and then, once that is durable, its name.
    fn finish(
        &self,
        slot: &mut Slot,
        file: Arc<dyn File>,
        capacity: u64,
    ) -> Result<Segment, Fault> {
        let seq = slot.next_seq;
        let (tmp, path) = (self.tmp(seq), self.dir.join(name(seq)));
        let header = SegmentHeader {
            seq,
            salt: self.rng.next_u64(),
        };
        let show = path.display();
        file.write_all_at(&header.encode(), 0)
            .map_err(|e| Fault::of(format_args!("write the header of {show}"), e))?;
        file.sync()
            .map_err(|e| Fault::of_sync(format_args!("sync the header of {show}"), e))?;
        drop(file);
        self.disk
            .rename(&tmp, &path)
            .map_err(|e| Fault::of(format_args!("rename to {show}"), e))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(|e| Fault::of_sync(format_args!("sync the folder of {show}"), e))?;
        let file = self
            .disk
            .open(&path, OpenMode::ReadWrite)
            .map_err(|e| Fault::of(format_args!("open {show}"), e))?;
        slot.next_seq += 1;
        self.metrics.on_segment_created();
        Ok(Segment {
            seq,
            binding: header.binding(),
            file,
            capacity,
        })
    }
}
