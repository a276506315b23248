//! Room `storage`: durations by bucket, as the shell exports them. Atomics only; reading them disturbs nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds of etcd's disk latencies, seconds: 0.001 · 2^k.
pub const DISK_BOUNDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// Bounds of what is done in memory, seconds: 0.0001 · 2^k.
pub const MEMORY_BOUNDS: &[f64] = &[
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
];

/// A histogram of durations.
#[derive(Debug)]
pub struct Durations {
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    sum_nanos: AtomicU64,
}

/// What a [`Durations`] held at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct DurationsNow {
    /// Upper bounds of the buckets in seconds, ascending.
    pub bounds: &'static [f64],
    /// Observations no longer than their bound and longer than the one before: not cumulative. One count more
    /// than bounds: what lies above the last.
    pub buckets: Vec<u64>,
    /// The sum of all observations in seconds.
    pub sum_seconds: f64,
}

impl DurationsNow {
    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Default for Durations {
    fn default() -> Durations {
        Durations::new(DISK_BOUNDS)
    }
}

impl Durations {
    /// No observation yet.
    pub fn new(bounds: &'static [f64]) -> Durations {
        Durations {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_nanos: AtomicU64::new(0),
        }
    }

    /// Adds one duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The values now; fields may be a few observations apart.
    pub fn now(&self) -> DurationsNow {
        let buckets = self.buckets.iter();
        DurationsNow {
            bounds: self.bounds,
            buckets: buckets.map(|b| b.load(Ordering::Relaxed)).collect(),
            sum_seconds: self.sum_nanos.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let durations = Durations::new(&[0.01, 0.1]);
        for ms in [10, 11, 100, 101] {
            durations.observe(Duration::from_millis(ms));
        }
        let now = durations.now();
        assert_eq!((now.buckets.as_slice(), now.count()), (&[1, 2, 1][..], 4));
        assert!((now.sum_seconds - 0.222).abs() < 1e-9);
    }
}
