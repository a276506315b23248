//! Room `server/shell`: metrics of what members say to each other.

use super::text::{Kind, Page};
use crate::service::Context;
use tenon_raft::{ROUND_TRIP_BOUNDS, Traffic};
use tenon_storage::DurationsNow;

/// Writes the families; those by peer are empty on a member that stands alone.
pub fn write(page: &mut Page, context: &Context) {
    let own = context.member();
    let traffic = context.raft().traffic();
    let peers: Vec<(String, Traffic)> = traffic
        .into_iter()
        .filter(|(id, _)| *id != own)
        .map(|(id, traffic)| (id.to_string(), traffic))
        .collect();
    type Count = fn(&Traffic) -> u64;
    let families: [(&str, &str, &str, Count); 3] = [
        (
            "etcd_network_peer_sent_bytes_total",
            "To",
            "Bytes to a peer.",
            |t| t.sent_bytes,
        ),
        (
            "etcd_network_peer_received_bytes_total",
            "From",
            "Bytes from a peer.",
            |t| t.received_bytes,
        ),
        (
            "etcd_network_peer_sent_failures_total",
            "To",
            "Streams to a peer that failed.",
            |t| t.sent_failures,
        ),
    ];
    for (name, label, help, count) in families {
        page.family(name, Kind::Counter, help);
        for (peer, traffic) in &peers {
            page.sample(name, &[(label, peer)], count(traffic));
        }
    }
    let name = "etcd_network_peer_round_trip_time_seconds";
    let help = "How long peers took to answer heartbeats.";
    page.family(name, Kind::Histogram, help);
    for (peer, traffic) in &peers {
        let times = DurationsNow {
            bounds: &ROUND_TRIP_BOUNDS,
            buckets: traffic.round_trips.to_vec(),
            sum_seconds: traffic.round_trip_sum.as_secs_f64(),
        };
        page.histogram(name, &[("To", peer)], &times);
    }
    let late: u64 = peers.iter().map(|(_, t)| t.late_heartbeats).sum();
    page.single(
        "etcd_server_heartbeat_send_failures_total",
        Kind::Counter,
        "Heartbeats answered late or not at all.",
        late,
    );
}
