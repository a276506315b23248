//! Room storage, state: what the store counts and times for the metrics of the shell. Atomics only; nothing
//! here decides anything.

use crate::durations::{Durations, DurationsNow, MEMORY_BOUNDS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenon_proto::command::command::Body;
use tenon_proto::error::Error;

/// What applies are counted by: etcd's name for a kind of command (`op`).
pub const OPERATIONS: [&str; 10] = [
    "Put",
    "DeleteRange",
    "Txn",
    "Compaction",
    "LeaseGrant",
    "LeaseRevoke",
    "LeaseCheckpoint",
    "Alarm",
    "ClusterMemberAttrSet",
    "ClusterVersionSet",
];

/// How commands of one kind and outcome were applied.
#[derive(Clone, Debug)]
pub struct AppliesNow {
    /// Kind, as in [`OPERATIONS`].
    pub operation: &'static str,
    /// Whether they did what they were asked.
    pub success: bool,
    /// How long they took.
    pub took: DurationsNow,
}

/// Counts and times since the start.
#[derive(Debug)]
pub struct Measures {
    /// By kind, the failed ones first.
    applies: Vec<[Durations; 2]>,
    slow: AtomicU64,
    warn_after: Duration,
    /// How long commits of the engine took.
    pub commits: Durations,
    /// How long sums over all records took.
    pub hashes: Durations,
    /// How long sums over the records up to a revision took.
    pub hashes_of_revisions: Durations,
    puts: AtomicU64,
    put_bytes: AtomicU64,
    deletes: AtomicU64,
    txns: AtomicU64,
    compacted_records: AtomicU64,
    compacted_last_s: AtomicU64,
}

/// Bounds of what reads every record, seconds: 0.01 · 2^k.
pub const SCAN_BOUNDS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
];

impl Measures {
    /// Nothing measured yet; applies that take longer than `warn_after` are logged and counted.
    pub(crate) fn new(warn_after: Duration) -> Measures {
        let pair = || [(); 2].map(|()| Durations::new(MEMORY_BOUNDS));
        Measures {
            applies: OPERATIONS.iter().map(|_| pair()).collect(),
            slow: AtomicU64::new(0),
            warn_after,
            commits: Durations::default(),
            hashes: Durations::new(SCAN_BOUNDS),
            hashes_of_revisions: Durations::new(SCAN_BOUNDS),
            puts: AtomicU64::new(0),
            put_bytes: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            txns: AtomicU64::new(0),
            compacted_records: AtomicU64::new(0),
            compacted_last_s: AtomicU64::new(0),
        }
    }

    /// Notes one applied command. Kinds that etcd does not put through its log are not counted.
    pub(crate) fn applied(&self, body: Option<&Body>, refused: Option<&Error>, took: Duration) {
        let Some(operation) = body.and_then(operation) else {
            return;
        };
        let success = refused.is_none_or(|error| *error == Error::Compacted);
        self.applies[operation][usize::from(success)].observe(took);
        if success && matches!(body, Some(Body::Txn(_))) {
            self.txns.fetch_add(1, Ordering::Relaxed);
        }
        self.took(OPERATIONS[operation], took);
    }

    /// Notes one pair that was put, of this size in bytes.
    pub(crate) fn put(&self, bytes: usize) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes one deletion, of an interval or of a lease's key.
    pub(crate) fn deleted(&self) {
        self.deletes.fetch_add(1, Ordering::Relaxed);
    }

    /// Logs and counts what took too long: an apply, or a read.
    pub fn took(&self, operation: &'static str, took: Duration) {
        if took > self.warn_after {
            self.slow.fetch_add(1, Ordering::Relaxed);
            let expected = self.warn_after;
            tracing::warn!(operation, ?took, ?expected, "apply request took too long");
        }
    }

    /// Notes records that a compaction lets go.
    pub(crate) fn compacted(&self, records: usize) {
        self.compacted_records
            .fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Notes the end of a compaction, in seconds since the Unix epoch.
    pub(crate) fn compaction_ended(&self, wall_s: u64) {
        self.compacted_last_s.store(wall_s, Ordering::Relaxed);
    }

    /// Applies and reads that took too long.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Pairs put, those in transactions included.
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }

    /// Deletions, those in transactions included.
    pub fn deletes(&self) -> u64 {
        self.deletes.load(Ordering::Relaxed)
    }

    /// Transactions that wrote or might have.
    pub fn txns(&self) -> u64 {
        self.txns.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values put.
    pub fn put_bytes(&self) -> u64 {
        self.put_bytes.load(Ordering::Relaxed)
    }

    /// Records that compactions let go.
    pub fn compacted_records(&self) -> u64 {
        self.compacted_records.load(Ordering::Relaxed)
    }

    /// When the last compaction ended, in seconds since the Unix epoch; 0 before any.
    pub fn compacted_last_s(&self) -> u64 {
        self.compacted_last_s.load(Ordering::Relaxed)
    }

    /// Applies by kind and outcome, those that happened.
    pub fn applies(&self) -> Vec<AppliesNow> {
        let mut all = Vec::new();
        for (operation, outcomes) in OPERATIONS.iter().zip(&self.applies) {
            for (success, took) in [false, true].into_iter().zip(outcomes) {
                let took = took.now();
                if took.count() > 0 {
                    all.push(AppliesNow {
                        operation,
                        success,
                        took,
                    });
                }
            }
        }
        all
    }
}

/// The place of a command's kind in [`OPERATIONS`].
fn operation(body: &Body) -> Option<usize> {
    Some(match body {
        Body::Put(_) => 0,
        Body::DeleteRange(_) => 1,
        Body::Txn(_) => 2,
        Body::Compact(_) => 3,
        Body::LeaseGrant(_) => 4,
        Body::LeaseRevoke(_) | Body::LeaseExpire(_) => 5,
        Body::LeaseCheckpoint(_) => 6,
        Body::Alarm(_) => 7,
        Body::Publish(_) => 8,
        Body::ClusterVersion(_) => 9,
        Body::MemberUpdate(_) | Body::MemberBirth(_) => return None,
    })
}

/// etcd's name for a command's kind, where it has one.
pub fn operation_name(body: &Body) -> Option<&'static str> {
    operation(body).map(|place| OPERATIONS[place])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::etcdserverpb::{CompactionRequest, PutRequest};

    #[test]
    fn applies_are_counted_by_kind_and_outcome() {
        let measures = Measures::new(Duration::from_millis(100));
        let put = Body::Put(PutRequest {
            key: "ab".into(),
            ..PutRequest::default()
        });
        let compact = Body::Compact(CompactionRequest::default());
        let (quick, slow) = (Duration::from_micros(10), Duration::from_millis(101));
        measures.applied(Some(&put), None, quick);
        measures.applied(Some(&put), Some(&Error::NoSpace), slow);
        measures.applied(Some(&compact), Some(&Error::Compacted), quick);
        measures.applied(None, None, slow);
        let seen = measures.applies();
        let seen: Vec<_> = seen
            .iter()
            .map(|a| (a.operation, a.success, a.took.count()))
            .collect();
        let expected = [("Put", false, 1), ("Put", true, 1), ("Compaction", true, 1)];
        assert_eq!(seen, expected);
        assert_eq!(measures.slow(), 1);
    }
}
