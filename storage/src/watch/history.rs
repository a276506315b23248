//! Room storage, watches: what the hub asks of MVCC. MVCC implements it; tests have a small one.

use crate::watch::Event;
use std::sync::Arc;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;

/// Where to stop reading history. Whatever is reached first ends the page, but never inside a
/// revision, and a page always gets past at least one revision.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Revisions with at least one matching change.
    pub matched_revisions_max: usize,
    /// Sum of the matching events' weights, bytes.
    pub matched_bytes_max: usize,
    /// Records looked at, matching or not: bounds the time a lock is held.
    pub scanned_records_max: usize,
}

/// A part of history.
#[derive(Debug)]
pub struct HistoryPage {
    /// Matching changes, ascending by revision, inside a revision in the order of the operations.
    /// Only whole revisions.
    pub events: Vec<Arc<Event>>,
    /// First revision not looked at; `to + 1` when the request was answered completely. Equal to
    /// `from` only when the store is lost: the watcher then gets nothing more.
    pub next: i64,
}

/// Answer when part of the asked history is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The store's compaction revision, above the asked start.
    pub revision: i64,
}

/// The store is lost or closed: nothing can be read any more, which is not the same as nothing being there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// Read access to past changes. Every method may take the store's lock, so the hub calls it holding
/// none of its own (lock order: store, then hub, then stream).
pub trait History: Send + Sync {
    /// Changes of the keys in `range` with main revision in `from..=to`, up to `limits`.
    ///
    /// `to` is at most the current revision.
    ///
    /// `Err(Compacted)` when `from` is below the compaction revision; `from` equal to it is served,
    /// and then a deletion at exactly that revision is still part of the answer. The check and the
    /// reading are one step: a page never misses a change because compaction ran meanwhile.
    fn changes(
        &self,
        range: &KeyRange,
        from: i64,
        to: i64,
        limits: HistoryLimits,
    ) -> Result<HistoryPage, Compacted>;

    /// The live pair of `key` as of revision `at`; `None` when there was none or when `at` is below
    /// the compaction revision (or below 1).
    ///
    /// # Errors
    /// [`Lost`]; no event is to be sent then that needs the pair.
    fn pair_at(&self, key: &[u8], at: i64) -> Result<Option<KeyValue>, Lost>;
}
