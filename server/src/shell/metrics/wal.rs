//! Room `server/shell`: metrics of the write-ahead log.

use super::histogram::Snapshot;
use super::text::{Kind, Page};
use tenon_storage::wal::{BUCKETS, DurationsNow, Wal};

/// Writes the log's families.
pub fn write(page: &mut Page, wal: &Wal) {
    let metrics = wal.metrics();
    let families = [
        (
            "etcd_disk_wal_fsync_duration_seconds",
            "How long syncs of the log took.",
            &metrics.fsync,
        ),
        (
            "etcd_disk_wal_write_duration_seconds",
            "How long writes took.",
            &metrics.write,
        ),
    ];
    for (name, help, durations) in families {
        page.family(name, Kind::Histogram, help);
        page.histogram(name, &[], &snapshot(&durations.now()));
    }
    page.single(
        "etcd_disk_wal_write_bytes_total",
        Kind::Gauge,
        "Bytes written to the log.",
        metrics.bytes_written(),
    );
}

/// Disk latencies as a histogram.
pub(super) fn snapshot(now: &DurationsNow) -> Snapshot {
    let mut counts = now.buckets.to_vec();
    let within: u64 = counts.iter().sum();
    counts.push(now.count.saturating_sub(within));
    Snapshot {
        bounds: &BUCKETS,
        counts,
        sum: now.sum_seconds,
    }
}
