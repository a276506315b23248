//! Room `server/shell`: metrics of how long things took, and of what compactions and puts amount to.

use super::text::{Kind, Page};
use crate::service::Context;
use tenon_storage::DurationsNow;

/// Writes the families.
pub fn write(page: &mut Page, context: &Context) {
    applies(page, context);
    requests(page, context);
    scans(page, context);
    amounts(page, context);
}

fn outcome(success: bool) -> &'static str {
    if success { "true" } else { "false" }
}

fn applies(page: &mut Page, context: &Context) {
    let measures = context.store().measures();
    let name = "etcd_server_apply_duration_seconds";
    page.family(name, Kind::Histogram, "How long commands took to apply.");
    for row in measures.applies() {
        let labels = [
            ("op", row.operation),
            ("success", outcome(row.success)),
            ("version", "v3"),
        ];
        page.histogram(name, &labels, &row.took);
    }
    page.single(
        "etcd_server_slow_apply_total",
        Kind::Counter,
        "Applies and reads that took longer than the warning limit.",
        measures.slow(),
    );
}

fn requests(page: &mut Page, context: &Context) {
    let counters = context.counters();
    let name = "etcd_server_request_duration_seconds";
    page.family(name, Kind::Histogram, "How long requests took.");
    for (kind, success, took) in counters.requests.now() {
        let labels = [("success", outcome(success)), ("type", kind)];
        page.histogram(name, &labels, &took);
    }
    let name = "etcd_server_range_duration_seconds";
    let help = "How long ranges took to read from the state.";
    page.family(name, Kind::Histogram, help);
    for (success, took) in [false, true].into_iter().zip(&counters.range_reads) {
        let took = took.now();
        if took.count() > 0 {
            page.histogram(name, &[("success", outcome(success))], &took);
        }
    }
}

fn scans(page: &mut Page, context: &Context) {
    let (measures, counters) = (context.store().measures(), context.counters());
    let families: [(&str, &str, DurationsNow); 4] = [
        (
            "etcd_disk_backend_defrag_duration_seconds",
            "How long defragmentations took.",
            counters.defragmentations.now(),
        ),
        (
            "etcd_disk_backend_snapshot_duration_seconds",
            "How long snapshots for clients took.",
            counters.snapshots.now(),
        ),
        (
            "etcd_mvcc_hash_duration_seconds",
            "How long sums over everything took.",
            measures.hashes.now(),
        ),
        (
            "etcd_mvcc_hash_rev_duration_seconds",
            "How long sums over the keys up to a revision took.",
            measures.hashes_of_revisions.now(),
        ),
    ];
    for (name, help, took) in families {
        page.family(name, Kind::Histogram, help);
        page.histogram(name, &[], &took);
    }
}

fn amounts(page: &mut Page, context: &Context) {
    let measures = context.store().measures();
    page.single(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        Kind::Gauge,
        "Bytes of keys and values put.",
        measures.put_bytes(),
    );
    page.single(
        "etcd_debugging_mvcc_db_compaction_keys_total",
        Kind::Counter,
        "Revisions that compactions removed.",
        measures.compacted_records(),
    );
    page.single(
        "etcd_debugging_mvcc_db_compaction_last",
        Kind::Gauge,
        "When the last compaction ended, in seconds since the Unix epoch.",
        measures.compacted_last_s(),
    );
}
