//! Room `storage`, WAL: counters the shell exports. Atomics only; reading them disturbs nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, seconds: 0.001 · 2^k.
pub const BUCKETS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// A histogram of durations with etcd's buckets for disk latencies.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    sum_nanos: AtomicU64,
}

/// What a [`Durations`] held at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DurationsNow {
    /// Observations no longer than [`BUCKETS`]`[k]` and longer than the one before: not cumulative.
    pub buckets: [u64; BUCKETS.len()],
    /// All observations, those longer than the last bucket included.
    pub count: u64,
    /// Their sum in seconds.
    pub sum_seconds: f64,
}

impl Durations {
    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(k) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[k].fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The values now; fields may be a few observations apart.
    pub fn now(&self) -> DurationsNow {
        DurationsNow {
            buckets: std::array::from_fn(|k| self.buckets[k].load(Ordering::Relaxed)),
            count: self.count.load(Ordering::Relaxed),
            sum_seconds: self.sum_nanos.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

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
