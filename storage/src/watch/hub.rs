//! Room storage, watches: the hub's face: to `apply`, which publishes, and to the streams. What happens
//! under its lock stands in `state.rs`, the rules in `watch.rs`.

use super::answer::{Answer, Batch, Say};
use super::history::{Compacted, HistoryLimits, HistoryPage};
use super::state::{Stand, State, refused};
use super::stream::{Item, Next, Queue, WatchStream, Watcher};
use super::{Event, WatchOptions, WatchStats};
use parking_lot::Mutex;
use std::sync::Arc;
use tenon_proto::etcdserverpb::WatchCreateRequest;

/// Shared by the [`WatchHub`] and its streams.
#[derive(Debug)]
pub(super) struct Hub {
    options: WatchOptions,
    state: Mutex<State>,
}

/// Gives every watcher each matching change exactly once and in order. Clones name the same hub.
#[derive(Clone, Debug)]
pub struct WatchHub(Arc<Hub>);

impl WatchHub {
    /// A hub for a store at revision `current`, compacted at `compacted` (-1 = never).
    pub fn new(current: i64, compacted: i64, options: WatchOptions) -> WatchHub {
        let state = State::new(current, compacted, &options);
        WatchHub(Arc::new(Hub {
            options,
            state: Mutex::new(state),
        }))
    }

    /// A new stream without watchers.
    pub fn open_stream(&self) -> WatchStream {
        let queue = Arc::new(Queue::new(
            self.0.options.queue_bytes_max,
            self.0.options.queue_events_max,
        ));
        let id = self.0.state.lock().open_stream(queue.clone());
        WatchStream::new(self.0.clone(), id, queue)
    }

    /// Tells of the changes of one revision, in the order of the operations. Called by `apply` under
    /// the store's write lock, for every revision, one after the other.
    pub fn publish(&self, revision: i64, events: Vec<Event>) {
        let events: Arc<[Arc<Event>]> = events.into_iter().map(Arc::new).collect();
        let mut state = self.0.state.lock();
        assert_eq!(
            revision,
            state.current + 1,
            "revisions are published one after the other"
        );
        state.current = revision;
        state.recent.push(revision, events.clone());
        if !state.index.is_empty() {
            state.deliver(revision, &events);
        }
    }

    /// Tells that the store compacted at `revision`: a watcher that still needs revisions below it
    /// will be cancelled, and no new one may start there. Called by `apply`.
    pub fn compacted(&self, revision: i64) {
        let mut state = self.0.state.lock();
        state.compacted = state.compacted.max(revision);
    }

    /// The store's content was replaced by a snapshot at revision `current`, compacted at `compacted`:
    /// watchers go on from where they were through history, or are cancelled. Those that wait for a
    /// revision still to come go on waiting.
    pub fn restored(&self, current: i64, compacted: i64) {
        let mut state = self.0.state.lock();
        let before = state.current;
        (state.current, state.compacted) = (current, compacted);
        state.recent.clear();
        let synced: Vec<Arc<Watcher>> = state
            .streams
            .values()
            .flat_map(|stream| stream.watchers.values())
            .filter(|entry| entry.stand == Stand::Synced)
            .map(|entry| entry.watcher.clone())
            .collect();
        for watcher in synced {
            let next = watcher.from.max(before + 1);
            if next <= current {
                state.fall_behind(&watcher, next);
            }
        }
    }

    /// Newest published revision.
    pub fn revision(&self) -> i64 {
        self.0.state.lock().current
    }

    /// Counts for metrics.
    pub fn stats(&self) -> WatchStats {
        let state = self.0.state.lock();
        WatchStats {
            streams: state.streams.len(),
            watchers: state.watchers,
            slow_watchers: state.behind,
            events: state.events,
            pending: state
                .streams
                .values()
                .map(|stream| stream.queue.pending())
                .sum(),
        }
    }
}

/// What a watcher that is behind does next.
pub(super) enum Step {
    /// Send this.
    Send(Answer),
    /// Nothing now.
    Nothing,
    /// Read history in these bounds and come back with the page.
    Read { from: i64, to: i64 },
}

impl Step {
    pub(super) fn into_next(self) -> Next {
        match self {
            Step::Send(answer) => Next::Answer(answer),
            Step::Nothing | Step::Read { .. } => Next::Again,
        }
    }
}

impl Hub {
    pub(super) fn history_limits(&self) -> HistoryLimits {
        HistoryLimits {
            matched_revisions_max: self.options.batch_revisions_max,
            matched_bytes_max: self.options.batch_bytes_max,
            scanned_records_max: self.options.scan_records_max,
        }
    }

    pub(super) fn create(&self, stream_id: u64, request: &WatchCreateRequest) {
        let mut state = self.state.lock();
        if let Err(reason) = state.create(stream_id, request) {
            let refused = refused(state.current, reason.cancel_reason());
            state.stream(stream_id).queue.push(Item::Answer(refused));
        }
    }

    pub(super) fn refuse(&self, queue: &Queue, reason: String) {
        let current = self.state.lock().current;
        queue.push(Item::Answer(refused(current, reason)));
    }

    pub(super) fn cancel(&self, stream_id: u64, watch_id: i64) {
        let mut state = self.state.lock();
        let Some(entry) = state.stream(stream_id).watchers.remove(&watch_id) else {
            return;
        };
        state.forget(&entry);
        let answer = entry.watcher.answer(state.current, Say::Canceled);
        entry.watcher.stream.push(Item::Answer(answer));
    }

    pub(super) fn close(&self, stream_id: u64) {
        let mut state = self.state.lock();
        let Some(stream) = state.streams.remove(&stream_id) else {
            return;
        };
        for entry in stream.watchers.values() {
            state.forget(entry);
        }
    }

    pub(super) fn request_progress(&self, stream_id: u64) {
        let mut state = self.state.lock();
        let current = state.current;
        let stream = state.stream(stream_id);
        if stream.watchers.is_empty() || !stream.watchers.values().all(|e| e.is_current(current)) {
            return;
        }
        let progress = Answer {
            watch_id: -1,
            revision: current,
            say: Say::Progress,
        };
        stream.queue.push(Item::Answer(progress));
    }

    pub(super) fn tick(&self, stream_id: u64) {
        let mut state = self.state.lock();
        let current = state.current;
        let stream = state.stream(stream_id);
        for entry in stream
            .watchers
            .values()
            .filter(|entry| entry.watcher.progress_notify)
        {
            if entry.watcher.take_idle() && entry.is_current(current) {
                let progress = entry.watcher.answer(current, Say::Progress);
                stream.queue.push(Item::Answer(progress));
            }
        }
    }

    /// One step of a watcher that is behind: with the page it read, or first from memory.
    pub(super) fn advance(
        &self,
        watcher: &Arc<Watcher>,
        page: Option<Result<HistoryPage, Compacted>>,
    ) -> Step {
        let mut state = self.state.lock();
        let Some(mut next) = state.behind_at(watcher) else {
            return Step::Nothing;
        };
        let mut events = Vec::new();
        match page {
            None if !state.is_recent(next) => {
                return Step::Read {
                    from: next,
                    to: state.current,
                };
            }
            None => {}
            Some(Err(compacted)) => return state.cancel_compacted(watcher, compacted.revision),
            Some(Ok(page)) => {
                next = page.next;
                events = page.events;
                events.retain(|event| watcher.wants(event));
            }
        }
        if state.is_recent(next) {
            next = state.take_recent(watcher, next, &mut events, &self.history_limits());
        }
        state.moved_to(watcher, next);
        if events.is_empty() {
            return Step::Nothing;
        }
        watcher.had_events();
        state.events += events.len() as u64;
        Step::Send(watcher.events(Batch::new(events), state.current))
    }
}
