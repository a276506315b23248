//! Room `storage`, WAL: counters the shell exports. Atomics only; reading them disturbs nobody.

use crate::durations::Durations;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of one log.
#[derive(Debug, Default)]
pub struct WalMetrics {
    /// Durations of `fdatasync` (`etcd_disk_wal_fsync_duration_seconds`).
    pub fsync: Durations,
    /// Durations of writes (`etcd_disk_wal_write_duration_seconds`).
    pub write: Durations,
    bytes_written: AtomicU64,
    entries_written: AtomicU64,
    segments_created: AtomicU64,
    segments_removed: AtomicU64,
    stalls: AtomicU64,
}

impl WalMetrics {
    /// Bytes of frames written (`etcd_disk_wal_write_bytes_total`).
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Log entries written.
    pub fn entries_written(&self) -> u64 {
        self.entries_written.load(Ordering::Relaxed)
    }

    /// Segments created, recycled ones included.
    pub fn segments_created(&self) -> u64 {
        self.segments_created.load(Ordering::Relaxed)
    }

    /// Segments removed or recycled after a purge.
    pub fn segments_removed(&self) -> u64 {
        self.segments_removed.load(Ordering::Relaxed)
    }

    /// Times a write had to wait because the disk was full.
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    pub(super) fn on_write(&self, bytes: usize, took: Duration) {
        self.bytes_written
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.write.observe(took);
    }

    pub(super) fn on_entries(&self, count: usize) {
        self.entries_written
            .fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn on_segment_created(&self) {
        self.segments_created.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_segment_removed(&self) {
        self.segments_removed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_stall(&self) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }
}
