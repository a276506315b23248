//! Room `server/shell`: a histogram of durations that many threads may add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts and sum at one moment. There is one count more than bounds: what lies above the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Upper bounds in seconds, ascending.
    pub bounds: &'static [f64],
    /// Observations in each bucket alone.
    pub counts: Vec<u64>,
    /// Sum of all observations in seconds.
    pub sum: f64,
}

/// Bounds of gRPC latencies: Prometheus' defaults.
pub const GRPC_BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Durations by bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram {
            bounds,
            counts,
            sum_nanos: AtomicU64::new(0),
        }
    }

    /// Adds one duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What was observed so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            bounds: self.bounds,
            counts: self
                .counts
                .iter()
                .map(|c| c.load(Ordering::Relaxed))
                .collect(),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[0.01, 0.1]);
        for ms in [10, 11, 100, 101] {
            histogram.observe(Duration::from_millis(ms));
        }
        let seen = histogram.snapshot();
        assert_eq!(seen.counts, [1, 2, 1]);
        assert!((seen.sum - 0.222).abs() < 1e-9);
    }
}
