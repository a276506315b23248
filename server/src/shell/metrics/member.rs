//! Room `server/shell`: the member's own metrics: raft, state, disk, watches, leases.

use super::durations;
use super::text::{Kind, Page};
use crate::service::{Context, Services};
use crate::shell::flags::value::Gate;
use crate::shell::http::HealthCounts;
use crate::version::{CLUSTER_VERSION, ETCD_VERSION};
use std::sync::atomic::Ordering;

/// Writes all families of the member.
pub fn write(page: &mut Page, services: &Services) {
    let context = &services.context;
    operations(page, context);
    watches_and_leases(page, services);
    raft(page, context);
    state(page, context);
    durations::write(page, context);
    identity(page, context);
}

/// Writes the counts of health checks, which a host without a member has too.
pub fn health(page: &mut Page, health: &HealthCounts) {
    let help = "Health requests answered true.";
    let count = health.success.load(Ordering::Relaxed);
    page.single("etcd_server_health_success", Kind::Counter, help, count);
    let help = "Health requests answered false.";
    let count = health.failure.load(Ordering::Relaxed);
    page.single("etcd_server_health_failures", Kind::Counter, help, count);
}

/// Writes which feature gates are on.
pub fn gates(page: &mut Page, gates: &[Gate]) {
    let name = "etcd_server_feature_enabled";
    page.family(name, Kind::Gauge, "Whether a feature is on.");
    for gate in gates {
        let labels = [("name", gate.name), ("stage", gate.stage)];
        page.sample(name, &labels, u8::from(gate.enabled));
    }
}

fn raft(page: &mut Page, context: &Context) {
    let (status, counters) = (context.status(), context.counters());
    let mut gauge = |name, help, value: u64| page.single(name, Kind::Gauge, help, value);
    let known = u64::from(status.leader.is_some());
    gauge(
        "etcd_server_has_leader",
        "Whether a leader is known.",
        known,
    );
    let leads = u64::from(status.is_leader);
    gauge("etcd_server_is_leader", "Whether this member leads.", leads);
    let learns = u64::from(status.is_learner);
    gauge(
        "etcd_server_is_learner",
        "Whether this member only learns.",
        learns,
    );
    let committed = status.committed.get();
    gauge(
        "etcd_server_proposals_committed_total",
        "Committed log index.",
        committed,
    );
    let applied = status.applied.get();
    gauge(
        "etcd_server_proposals_applied_total",
        "Applied log index.",
        applied,
    );
    let pending = counters.pending.load(Ordering::Relaxed);
    let pending = u64::try_from(pending).unwrap_or(0);
    gauge(
        "etcd_server_proposals_pending",
        "Commands waiting for their answer.",
        pending,
    );
    let mut counter = |name, help, value: u64| page.single(name, Kind::Counter, help, value);
    let changes = counters.leader_changes.load(Ordering::Relaxed);
    counter(
        "etcd_server_leader_changes_seen_total",
        "Changes of leader seen.",
        changes,
    );
    let failed = counters.failed.load(Ordering::Relaxed);
    counter(
        "etcd_server_proposals_failed_total",
        "Commands that failed.",
        failed,
    );
    let slow = counters.reads_slow.load(Ordering::Relaxed);
    counter(
        "etcd_server_slow_read_indexes_total",
        "Slow linearizable reads.",
        slow,
    );
    let failed = counters.reads_failed.load(Ordering::Relaxed);
    counter(
        "etcd_server_read_indexes_failed_total",
        "Failed linearizable reads.",
        failed,
    );
    let promoted = counters.promotions.load(Ordering::Relaxed);
    counter(
        "etcd_server_learner_promote_successes",
        "Learners promoted.",
        promoted,
    );
}

fn state(page: &mut Page, context: &Context) {
    let (store, size) = (context.store(), context.store().size());
    let mut gauge = |name, help, value: i64| page.single(name, Kind::Gauge, help, value);
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let quota = context.config().quota.shown();
    gauge("etcd_server_quota_backend_bytes", "Space limit.", quota);
    let allocated = signed(size.allocated);
    gauge(
        "etcd_mvcc_db_total_size_in_bytes",
        "Bytes on disk.",
        allocated,
    );
    let in_use = signed(size.in_use);
    gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "Bytes in use.",
        in_use,
    );
    let revision = store.revision().get();
    gauge(
        "etcd_debugging_mvcc_current_revision",
        "Revision of the state.",
        revision,
    );
    let compacted = store.compact_revision().get();
    gauge(
        "etcd_debugging_mvcc_compact_revision",
        "Revision of the last compaction.",
        compacted,
    );
}

fn operations(page: &mut Page, context: &Context) {
    let (measures, counters) = (context.store().measures(), context.counters());
    let ranges = counters.ranges.load(Ordering::Relaxed);
    let txns = measures.txns() + counters.read_txns.load(Ordering::Relaxed);
    let families = [
        ("etcd_mvcc_put_total", "Puts.", measures.puts()),
        ("etcd_mvcc_delete_total", "Deletions.", measures.deletes()),
        ("etcd_mvcc_range_total", "Ranges.", ranges),
        ("etcd_mvcc_txn_total", "Transactions.", txns),
    ];
    for (name, help, count) in families {
        page.single(name, Kind::Counter, help, count);
    }
    let keys = context.store().key_count();
    page.single("etcd_debugging_mvcc_keys_total", Kind::Gauge, "Keys.", keys);
    let name = "etcd_disk_backend_commit_duration_seconds";
    page.family(
        name,
        Kind::Histogram,
        "How long commits of the engine took.",
    );
    page.histogram(name, &[], &measures.commits.now());
}

fn watches_and_leases(page: &mut Page, services: &Services) {
    let watches = services.context.store().watches().stats();
    let mut gauge = |name, help, value: usize| page.single(name, Kind::Gauge, help, value);
    gauge(
        "etcd_debugging_mvcc_watch_stream_total",
        "Streams of watches.",
        watches.streams,
    );
    gauge(
        "etcd_debugging_mvcc_watcher_total",
        "Watchers.",
        watches.watchers,
    );
    let slow = watches.slow_watchers;
    gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Watchers that are behind.",
        slow,
    );
    gauge(
        "etcd_debugging_mvcc_pending_events_total",
        "Answers queued.",
        watches.pending,
    );
    let events = watches.events;
    page.single(
        "etcd_debugging_mvcc_events_total",
        Kind::Counter,
        "Events to watchers.",
        events,
    );
    let leases = services.lease.counters();
    let families = [
        (
            "etcd_debugging_lease_granted_total",
            "Leases granted.",
            &leases.granted,
        ),
        (
            "etcd_debugging_lease_renewed_total",
            "Leases renewed.",
            &leases.renewed,
        ),
        (
            "etcd_debugging_lease_revoked_total",
            "Leases revoked.",
            &leases.revoked,
        ),
        (
            "etcd_debugging_server_lease_expired_total",
            "Leases that expired.",
            &leases.expired,
        ),
    ];
    for (name, help, count) in families {
        page.single(name, Kind::Counter, help, count.load(Ordering::Relaxed));
    }
}

fn identity(page: &mut Page, context: &Context) {
    let id = context.member().to_string();
    page.family("etcd_server_id", Kind::Gauge, "This member's id.");
    page.sample("etcd_server_id", &[("server_id", &id)], 1);
    page.family("etcd_server_version", Kind::Gauge, "This member's version.");
    page.sample(
        "etcd_server_version",
        &[("server_version", ETCD_VERSION)],
        1,
    );
    page.family(
        "etcd_cluster_version",
        Kind::Gauge,
        "The cluster's version.",
    );
    let version = CLUSTER_VERSION.trim_end_matches(".0");
    page.sample("etcd_cluster_version", &[("cluster_version", version)], 1);
    let name = "etcd_network_known_peers";
    page.family(name, Kind::Gauge, "Members known.");
    for member in context.store().members() {
        let remote = member.id.to_string();
        page.sample(name, &[("Local", &id), ("Remote", &remote)], 1);
    }
    let name = "etcd_debugging_server_alarms";
    let alarms = context.store().alarms();
    if !alarms.is_empty() {
        page.family(name, Kind::Gauge, "Raised alarms.");
    }
    for row in alarms {
        let alarm = tenon_proto::etcdserverpb::AlarmType::try_from(row.alarm);
        let alarm = alarm.map_or("UNKNOWN", |a| a.as_str_name());
        let member = format!("{:x}", row.member_id);
        page.sample(name, &[("alarm_type", alarm), ("server_id", &member)], 1);
    }
}
