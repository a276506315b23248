//! Room `raft`: what went to a peer and came from it, counted for the metrics. Counts only.

use std::time::Duration;

/// Upper bounds of [`Traffic::round_trips`] in seconds: 0.0001 · 2^k.
pub const ROUND_TRIP_BOUNDS: [f64; 16] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768,
];

/// What a member exchanged with one peer since its start. Snapshots are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of messages sent.
    pub sent_bytes: u64,
    /// Bytes of messages that arrived.
    pub received_bytes: u64,
    /// Streams to it that could not be opened or broke.
    pub sent_failures: u64,
    /// Heartbeats by how long their answers took, the last count above all bounds.
    pub round_trips: [u64; ROUND_TRIP_BOUNDS.len() + 1],
    /// The sum of those times.
    pub round_trip_sum: Duration,
    /// Heartbeats that were answered after more than a heartbeat's interval, or not at all.
    pub late_heartbeats: u64,
}

impl Traffic {
    pub(super) fn answered(&mut self, took: Duration, interval: Duration) {
        let seconds = took.as_secs_f64();
        self.round_trips[ROUND_TRIP_BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.round_trip_sum += took;
        self.late_heartbeats += u64::from(took > interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_their_time() {
        let mut traffic = Traffic::default();
        let interval = Duration::from_millis(100);
        for ms in [1, 100, 101, 9000] {
            traffic.answered(Duration::from_millis(ms), interval);
        }
        assert_eq!((traffic.round_trips[4], traffic.round_trips[16]), (1, 1));
        assert_eq!(traffic.round_trips.iter().sum::<u64>(), 4);
        assert_eq!(traffic.late_heartbeats, 2);
        assert_eq!(traffic.round_trip_sum, Duration::from_millis(9202));
    }
}
