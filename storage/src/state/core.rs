//! Room storage, state: what the parts of the store share. One lock guards the memory; the engine and
//! the caches have their own. Lock order: state, then leases or watches, then caches and pins.

use super::alarms::Alarms;
use super::checkpoint::Rhythm;
use super::measures::Measures;
use super::members::Members;
use super::pending::{Cut, Mark, Pending};
use super::pins::Pins;
use super::store::{Fatal, StoreOptions};
use crate::engine::{Engine, EngineError, RECORD_COST, RecordKey, RowChange, View};
use crate::lease::Lessor;
use crate::mvcc::index::Index;
use crate::mvcc::read_cache::ReadCache;
use crate::mvcc::recent::Recent;
use crate::mvcc::record::Writer;
use crate::watch::WatchHub;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tenon_env::sync::{Notify, watch};
use tenon_env::{Env, Plant};
use tenon_proto::ids::{LogIndex, Revision};
use tenon_proto::log::{LogId, Membership};

/// Everything behind a [`super::Store`].
pub(crate) struct Inner {
    pub env: Env,
    pub options: StoreOptions,
    pub state: RwLock<State>,
    /// The data folder of this member's state.
    pub dir: PathBuf,
    /// Replaced when a snapshot is taken over.
    pub engine: RwLock<Arc<dyn Engine>>,
    /// Held by whoever changes the engine: a drain, or the taking over of a snapshot.
    pub drain_gate: Mutex<()>,
    pub read_cache: ReadCache,
    pub lessor: Lessor,
    pub watches: WatchHub,
    pub pins: Arc<Pins>,
    /// Index the WAL is flushed to.
    pub wal_flushed: AtomicU64,
    /// The engine's durable position: that of its content, or of the newest checkpoint.
    pub durable: watch::Sender<LogIndex>,
    /// The newest compaction whose records are all removed; -1 = none.
    pub swept: watch::Sender<Revision>,
    pub fatal: watch::Sender<Option<Fatal>>,
    /// Set when the tasks are to end.
    pub stopping: watch::Sender<bool>,
    /// The cut of a commit that waits for the disk.
    pub stalled: Mutex<Option<Cut>>,
    /// When the next checkpoint is due.
    pub checkpoint: Rhythm,
    /// Counts and times.
    pub measures: Measures,
    /// Wakes the flusher.
    pub work: Notify,
    /// Wakes the flusher before its interval is over.
    pub urgent: Notify,
    /// Wakes the compactor.
    pub compact: Notify,
    /// Wakes those that wait for room.
    pub drained: Notify,
}

/// The memory of the state machine.
///
/// - `recent` holds every record at or above `in_view`; the engine's `view` every one below it.
/// - `engine_mark ≤ applied`, and only marks at or below the flushed WAL are drained.
/// - `swept ≤ compacted ≤ revision`.
pub(crate) struct State {
    pub index: Index,
    pub recent: Recent,
    pub writer: Writer,
    pub revision: i64,
    /// -1 before any compaction.
    pub compacted: i64,
    /// The entry that brought `compacted`.
    pub compacted_by: u64,
    /// The newest compaction whose records are all removed, durably; -1 = none.
    pub swept: i64,
    pub applied: Option<LogId>,
    pub membership_id: Option<LogId>,
    pub membership: Membership,
    pub members: Members,
    pub alarms: Alarms,
    pub cluster_version: String,
    pub pending: Pending,
    /// The engine as of its newest commit.
    pub view: Arc<dyn View>,
    /// Records below this position are in `view`.
    pub in_view: (i64, u32),
    /// Where the engine's content stands. Durable there is [`Inner::durable`], which may be behind.
    pub engine_mark: Option<Mark>,
    /// Bytes of records ever loaded or appended; what was removed the engine counts.
    pub record_bytes: u64,
}

impl State {
    /// Adds the next record of the entry being applied.
    pub(crate) fn push_record(&mut self, key: RecordKey, value: Bytes) {
        self.record_bytes += value.len() as u64 + RECORD_COST;
        self.pending.count_record(value.len());
        self.recent.push(key, value);
    }

    /// Queues a row of the entry being applied.
    pub(crate) fn push_row(&mut self, row: RowChange) {
        self.pending.push_row(row);
    }

    /// Bytes applied and not yet in the engine.
    pub(crate) fn undrained_bytes(&self) -> usize {
        self.recent.undrained_bytes() + self.pending.row_bytes()
    }

    /// The position after every record of `revision`.
    pub(crate) fn after(revision: i64) -> (i64, u32) {
        (revision + 1, 0)
    }
}

/// A record's bytes from memory, the read cache or the engine. What the
/// engine gave goes into the read cache.
pub(crate) fn fetch(
    recent: &Recent,
    cache: &ReadCache,
    view: &dyn View,
    key: RecordKey,
) -> Result<Bytes, Fatal> {
    if let Some(value) = recent.get(key) {
        return Ok(value.clone());
    }
    fetch_cold(cache, view, key)
}

/// The same for a record that is known to have left the memory.
pub(crate) fn fetch_cold(
    cache: &ReadCache,
    view: &dyn View,
    key: RecordKey,
) -> Result<Bytes, Fatal> {
    if let Some(value) = cache.get(key) {
        return Ok(value);
    }
    match view.record(key)? {
        Some(value) => {
            cache.put(key, &value);
            Ok(value)
        }
        None => Err(Fatal(format!(
            "record {}/{} is in the index and not in the engine",
            key.main, key.sub
        ))),
    }
}

impl From<EngineError> for Fatal {
    fn from(error: EngineError) -> Fatal {
        Fatal(error.to_string())
    }
}

impl Inner {
    /// The engine.
    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        self.engine.read().clone()
    }

    /// Records why this store gives up; the first reason stays. Wakes everyone who waits.
    pub(crate) fn give_up(&self, reason: Fatal) -> Fatal {
        self.fatal.send_if_modified(|fatal| {
            let first = fatal.is_none();
            if first {
                tracing::error!(%reason, "storage gives up");
                *fatal = Some(reason.clone());
            }
            first
        });
        self.drained.notify_waiters();
        reason
    }

    /// Whether the store gave up.
    pub(crate) fn is_lost(&self) -> bool {
        self.fatal.borrow().is_some()
    }

    /// Index the WAL is flushed to.
    pub(crate) fn flushed(&self) -> u64 {
        match self.env.plant {
            Plant::DrainPastLog => u64::MAX,
            _ => self.wal_flushed.load(Ordering::Acquire),
        }
    }
}
