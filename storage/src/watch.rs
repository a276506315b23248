//! Room storage, watches: the pure hub that gives every watcher each matching change exactly once and in
//! order. May use proto and `env::sync`; no tasks, no sockets, no clock, no engine.
//!
//! `apply` calls [`WatchHub::publish`] for every revision under the store's write lock. A client's stream
//! ([`WatchStream`]) has a queue; its one reader takes [`Answer`]s out with [`WatchStream::next`] and waits
//! with [`WatchStream::readable`]. Lock order: store, hub, queue; the hub never calls into the store.
//!
//! A watcher is in one of three stands:
//!
//! ```text
//!            start > current                        its queue is full
//! create ──────────────────────► synced ─────────────────────────────► behind
//!    │                             ▲                                     │ ▲
//!    │ start ≤ current             └── read all up to the newest ────────┘ │ a page of history at each
//!    ├──────────────────────────────────────────────────────────────► ─────┘ mark in the queue
//!    │ start < compaction                        needs compacted revisions │
//!    └──────────────────────────────► compacted ◄──────────────────────────┘
//! ```
//!
//! - **Synced** watchers are in the index; a published revision is matched against it (a map for keys, a
//!   treap for intervals) and queued, one item for each watcher, all sharing one `Arc` of events.
//! - **Behind**: the watcher is not in the index. A mark stands in its stream's queue behind all it was
//!   given, so that what the reader reads from history at the mark follows in order. Exactly one mark for
//!   each watcher that is behind. Marks take turns with other items: nobody starves.
//! - The step from behind to synced happens under the hub's lock, from the memory of the newest revisions
//!   (`recent.rs`): no change falls between reading and going live. What the reader read without the lock
//!   counts only up to the revision the page says.
//! - **Compacted**: told so, with header revision 0; the id stays taken, and holds up stream-wide
//!   progress, until the client cancels it.
//!
//! A slow reader costs at most its queue's bound plus one batch; then its watchers fall behind, and
//! compaction may overtake them, which they are told.
//!
//! What this does not do: timers (the service calls [`WatchStream::tick`]), permission, the header's other
//! fields.

mod answer;
mod event;
mod fragment;
mod history;
mod hub;
mod index;
mod interval;
mod recent;
mod state;
mod stream;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Batch, Say};
pub use event::Event;
pub use fragment::fragments;
pub use history::{Compacted, History, HistoryLimits, HistoryPage, Lost};
pub use hub::WatchHub;
pub use stream::{Next, WatchStream};

/// Bounds of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Queued events of one stream, bytes; one response of any size always fits.
    pub queue_bytes_max: usize,
    /// Queued live responses of one stream. A reader that lags by more gets many revisions in one
    /// response instead, which costs both sides less.
    pub queue_events_max: usize,
    /// Newest revisions kept in memory for watchers that are a little behind: how many.
    pub recent_revisions_max: usize,
    /// And how many bytes.
    pub recent_bytes_max: usize,
    /// Revisions of history in one response.
    pub batch_revisions_max: usize,
    /// Bytes of history in one response; one revision of any size always fits.
    pub batch_bytes_max: usize,
    /// Records looked at in one step of reading history.
    pub scan_records_max: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            queue_bytes_max: 4 << 20,
            queue_events_max: 1024,
            recent_revisions_max: 1024,
            recent_bytes_max: 4 << 20,
            batch_revisions_max: 1000,
            batch_bytes_max: 8 << 20,
            scan_records_max: 10_000,
        }
    }
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchStats {
    /// Open streams.
    pub streams: usize,
    /// Watchers, without those that compaction cancelled.
    pub watchers: usize,
    /// Watchers that are behind.
    pub slow_watchers: usize,
    /// Events given to watchers since the start.
    pub events: u64,
    /// Answers waiting in queues.
    pub pending: usize,
}
