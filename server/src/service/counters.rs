//! Room `server/service`: what only services count and time, for the metrics. Atomics only; nothing is decided by
//! them.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;
use tenon_storage::measures::{OPERATIONS, SCAN_BOUNDS};
use tenon_storage::{Durations, DurationsNow, MEMORY_BOUNDS};

/// Bounds of a defragmentation, seconds: 0.1 · 2^k.
const DEFRAGMENT_BOUNDS: &[f64] = &[
    0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6,
];

/// Kinds of requests that are timed and go round the log.
const READS: [&str; 1] = ["Range"];

/// How long requests took, by kind and outcome.
#[derive(Debug)]
pub struct Requests {
    /// Kind, failures, successes.
    rows: Vec<(&'static str, [Durations; 2])>,
}

impl Default for Requests {
    fn default() -> Requests {
        let kinds = OPERATIONS.iter().chain(&READS);
        Requests {
            rows: kinds.map(|kind| (*kind, Default::default())).collect(),
        }
    }
}

impl Requests {
    /// Adds one request.
    ///
    /// # Panics
    /// When the kind is none of [`OPERATIONS`] and not `Range`.
    pub fn observe(&self, kind: &str, success: bool, took: Duration) {
        let row = self.rows.iter().find(|(known, _)| *known == kind);
        let (_, outcomes) = row.expect("a kind that is timed");
        outcomes[usize::from(success)].observe(took);
    }

    /// Kind, whether it succeeded, and times, of what happened.
    pub fn now(&self) -> Vec<(&'static str, bool, DurationsNow)> {
        let mut all = Vec::new();
        for (kind, outcomes) in &self.rows {
            for (success, took) in [false, true].into_iter().zip(outcomes) {
                let took = took.now();
                if took.count() > 0 {
                    all.push((*kind, success, took));
                }
            }
        }
        all
    }
}

/// Counts that only services know.
#[derive(Debug)]
pub struct Counters {
    /// Ranges that this member answered, those in transactions included.
    pub ranges: AtomicU64,
    /// Transactions that only read.
    pub read_txns: AtomicU64,
    /// Commands waiting for their answer.
    pub pending: AtomicI64,
    /// Commands that failed for other reasons than their content.
    pub failed: AtomicU64,
    /// Linearizable reads that failed.
    pub reads_failed: AtomicU64,
    /// Linearizable reads that were slow or timed out.
    pub reads_slow: AtomicU64,
    /// Leaders that came after another one or after none.
    pub leader_changes: AtomicU64,
    /// Learners that became voters because this member was asked, or by itself as the leader.
    pub promotions: AtomicU64,
    /// How long requests took.
    pub requests: Requests,
    /// How long reading ranges from the state took: those that failed, those that did not.
    pub range_reads: [Durations; 2],
    /// How long defragmentations took.
    pub defragmentations: Durations,
    /// How long snapshots for clients took, those that were sent whole.
    pub snapshots: Durations,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            ranges: AtomicU64::new(0),
            read_txns: AtomicU64::new(0),
            pending: AtomicI64::new(0),
            failed: AtomicU64::new(0),
            reads_failed: AtomicU64::new(0),
            reads_slow: AtomicU64::new(0),
            leader_changes: AtomicU64::new(0),
            promotions: AtomicU64::new(0),
            requests: Requests::default(),
            range_reads: [(); 2].map(|()| Durations::new(MEMORY_BOUNDS)),
            defragmentations: Durations::new(DEFRAGMENT_BOUNDS),
            snapshots: Durations::new(SCAN_BOUNDS),
        }
    }
}
