//! Room `server/shell`: metrics of the write-ahead log.

use super::text::{Kind, Page};
use tenon_storage::wal::Wal;

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
        page.histogram(name, &[], &durations.now());
    }
    page.single(
        "etcd_disk_wal_write_bytes_total",
        Kind::Gauge,
        "Bytes written to the log.",
        metrics.bytes_written(),
    );
}
