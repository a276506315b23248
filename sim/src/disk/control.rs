//! Room `sim`: a test's hand on a node's disk: faults to arm, counters to read, bytes to spoil.

use super::{CrashMode, DiskError, Op, SimDisk, content};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Arms faults on one node's disk and looks at it from outside. Works whether the node lives or not.
#[derive(Clone)]
pub struct DiskControl(pub(crate) Arc<SimDisk>);

impl DiskControl {
    /// Mutating operations so far, over all lives.
    pub fn ops(&self) -> u64 {
        self.0.state.lock().ops
    }

    /// Operations of one kind so far.
    pub fn count(&self, op: Op) -> u64 {
        self.0.state.lock().counts.get(&op).copied().unwrap_or(0)
    }

    /// Kills the node during its mutating operation number `n` (of [`DiskControl::ops`]), or during the
    /// next one when `n` has passed. Disarmed by any crash.
    pub fn crash_at(&self, n: u64, mode: CrashMode) {
        self.0.state.lock().faults.crash_at = Some((n, mode));
    }

    /// Disarms [`DiskControl::crash_at`].
    pub fn no_crash(&self) {
        self.0.state.lock().faults.crash_at = None;
    }

    /// Fails the mutating operation number `n`, once.
    pub fn fail_at(&self, n: u64, error: DiskError) {
        self.0.state.lock().faults.fail_at.insert(n, error);
    }

    /// Fails the `n`-th sync from now on (1 is the next), once; the pages it should have written are lost.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn fail_sync(&self, n: u64) {
        assert!(n > 0, "the next sync is number 1");
        self.0.state.lock().faults.fail_sync_in = Some(n);
    }

    /// Has the `n`-th write from now on (1 is the next) reach another page of its file than the right one, once.
    /// Reads see it only after the next power cut, as from a device with a cache above it.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn misdirect(&self, n: u64) {
        assert!(n > 0, "the next write is number 1");
        self.0.state.lock().faults.misdirect_in = Some(n);
    }

    /// How often durable bytes were spoiled: bits that rotted, writes that went astray.
    pub fn damaged(&self) -> u64 {
        self.0.state.lock().damaged
    }

    /// Lets each read, write and sync fail with EIO in so many of a million cases.
    pub fn errors_ppm(&self, read: u32, write: u32, sync: u32) {
        let faults = &mut self.0.state.lock().faults;
        (
            faults.read_errors_ppm,
            faults.write_errors_ppm,
            faults.sync_errors_ppm,
        ) = (read, write, sync);
    }

    /// Bounds the disk to so many bytes (in pages of 4 KiB), or lifts the bound.
    pub fn capacity(&self, bytes: Option<u64>) {
        self.0.state.lock().faults.capacity_pages = bytes.map(|b| b / content::PAGE);
        self.0.tell(match bytes {
            Some(bytes) => format!("full at {bytes} bytes"),
            None => "room again".to_owned(),
        });
    }

    /// Bytes in use, in whole pages, reserved room included.
    pub fn used(&self) -> u64 {
        self.0
            .state
            .lock()
            .tree
            .files()
            .map(content::Content::pages)
            .sum::<u64>()
            * content::PAGE
    }

    /// Sets the speed: 100 is usual, 1000 ten times as slow.
    pub fn slow(&self, percent: u64) {
        self.0.state.lock().faults.slow_percent = percent;
        if percent > 100 {
            self.0.tell(format!("slow: {percent} % of its usual times"));
        }
    }

    /// Lets every sync claim success and do nothing: a disk on which no promise can be kept, to prove that a
    /// test would notice.
    pub fn lie(&self, lies: bool) {
        self.0.state.lock().faults.lies = lies;
        if lies {
            self.0.tell("lies: syncs do nothing".to_owned());
        }
    }

    /// Disarms every fault: crash, errors, capacity, slowness.
    pub fn heal(&self) {
        let before = std::mem::take(&mut self.0.state.lock().faults);
        if before != super::Faults::default() {
            self.0.tell("whole again".to_owned());
        }
    }

    /// Names, lengths and whether they are folders, as the node would see them now.
    pub fn list(&self, path: &Path) -> io::Result<Vec<(String, bool, u64)>> {
        self.0.state.lock().tree.list(path)
    }

    /// The bytes of a file as the node would read them now.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.0.state.lock();
        let ino = state.tree.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        let file = state.tree.file(ino)?;
        let mut bytes = vec![0; file.len() as usize];
        file.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Flips bit `bit` (0..8) of byte `at`, on the disk and in what reads see. False beyond the file's end.
    pub fn rot(&self, path: &Path, at: u64, bit: u8) -> io::Result<bool> {
        let mut state = self.0.state.lock();
        let ino = state.tree.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        let rotted = state.tree.file(ino)?.rot(at, bit);
        state.damaged += u64::from(rotted);
        if rotted {
            self.0
                .tell(format!("rot of {} at byte {at}", path.display()));
        }
        Ok(rotted)
    }
}
