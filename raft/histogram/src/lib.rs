//! Room `raft`: the histogram that openraft counts its batches with, in place of the published crate of this
//! name, whose lookup tables for every precision take 26 MB of memory from each process (docs/adr/0002).
//! It has the part of that crate's interface that openraft uses. Pure; nothing of ours reads it.
//!
//! - Values fall into buckets of an eighth of their power of two: below 8 exact, above within 12.5 %.
//! - Buckets grow with the largest value seen; an unused histogram has none.

use std::fmt;
use std::marker::PhantomData;

/// Bits that tell buckets of one power of two apart.
const FINE_BITS: u32 = 3;

/// Counts of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: Vec<u64>,
    slots: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Histogram::new()
    }
}

impl<T> Histogram<T> {
    /// A histogram without values.
    pub fn new() -> Histogram<T> {
        Histogram {
            counts: Vec::new(),
            slots: PhantomData,
        }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `count` times.
    pub fn record_n(&mut self, value: u64, count: u64) {
        let bucket = bucket_of(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The lower end of the bucket below which a share `p` (0 to 1) of the values lies; 0 without values.
    pub fn percentile(&self, p: f64) -> u64 {
        let rank = (self.total() as f64 * p).ceil().max(1.0) as u64;
        let mut seen = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return lower_end(bucket);
            }
        }
        0
    }

    /// The usual percentiles.
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats {
            samples: self.total(),
            p0_1: self.percentile(0.001),
            p1: self.percentile(0.01),
            p5: self.percentile(0.05),
            p10: self.percentile(0.10),
            p50: self.percentile(0.50),
            p90: self.percentile(0.90),
            p99: self.percentile(0.99),
            p99_9: self.percentile(0.999),
        }
    }
}

fn bucket_of(value: u64) -> usize {
    let group = 1u64 << FINE_BITS;
    if value < group {
        return value as usize;
    }
    let power = u64::BITS - 1 - value.leading_zeros();
    let fine = (value >> (power - FINE_BITS)) & (group - 1);
    ((u64::from(power - FINE_BITS) + 1) * group + fine) as usize
}

fn lower_end(bucket: usize) -> u64 {
    let group = 1usize << FINE_BITS;
    if bucket < group {
        return bucket as u64;
    }
    let (power, fine) = (bucket / group - 1, bucket % group);
    ((group + fine) as u64) << power
}

/// Percentiles of a [`Histogram`], each the lower end of its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileStats {
    /// Values counted.
    pub samples: u64,
    /// 0.1 %.
    pub p0_1: u64,
    /// 1 %.
    pub p1: u64,
    /// 5 %.
    pub p5: u64,
    /// 10 %.
    pub p10: u64,
    /// Median.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PercentileStats {
            samples,
            p50,
            p90,
            p99,
            p99_9,
            ..
        } = self;
        write!(
            f,
            "{samples} values, P50 {p50}, P90 {p90}, P99 {p99}, P99.9 {p99_9}"
        )
    }
}

/// Several histograms by name, one line each.
#[derive(Debug, Clone, Default)]
pub struct AsciiChart(Vec<(String, PercentileStats)>);

impl AsciiChart {
    /// A chart of none.
    pub fn new() -> AsciiChart {
        AsciiChart::default()
    }

    /// Adds a line.
    #[must_use]
    pub fn add<T>(mut self, name: impl Into<String>, histogram: Histogram<T>) -> AsciiChart {
        self.0.push((name.into(), histogram.percentile_stats()));
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, stats)| writeln!(f, "{name}: {stats}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_hold_their_lower_end() {
        for bucket in 0..488 {
            assert_eq!(bucket_of(lower_end(bucket)), bucket, "{bucket}");
            assert!(lower_end(bucket + 1) > lower_end(bucket), "{bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), 495);
    }

    #[test]
    fn percentiles_lie_within_an_eighth() {
        let mut histogram = Histogram::<()>::new();
        (1..=1000).for_each(|v| histogram.record(v));
        let stats = histogram.percentile_stats();
        assert_eq!(stats.samples, 1000);
        for (found, wanted) in [(stats.p50, 500), (stats.p90, 900), (stats.p99, 990)] {
            assert!(
                found <= wanted && wanted - found <= wanted / 8,
                "{found} for {wanted}"
            );
        }
        assert_eq!(Histogram::<()>::new().percentile(0.5), 0);
    }
}
