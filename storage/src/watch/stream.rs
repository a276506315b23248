//! Room storage, watches: one client's stream: its watchers and the queue of what it is still to be
//! told. The queue is bounded in bytes: a watcher whose event does not fit stops getting events there
//! and leaves a mark; when the reader comes to the mark it reads on from history.

use super::answer::{Answer, Batch, Say};
use super::history::{Compacted, History, HistoryPage};
use super::hub::{Hub, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenon_env::sync::Notify;
use tenon_proto::etcdserverpb::WatchCreateRequest;
use tenon_proto::key_range::KeyRange;

/// What a queued event takes besides its bytes.
const ITEM_BYTES: usize = 64;

/// A watcher as asked for; never changes.
#[derive(Debug)]
pub(super) struct Watcher {
    /// Unique in the hub, for ever; ids of streams are used again.
    pub(super) serial: u64,
    pub(super) id: i64,
    pub(super) stream_id: u64,
    pub(super) stream: Arc<Queue>,
    pub(super) range: KeyRange,
    /// First revision asked for; 0 = from creation on.
    pub(super) start: i64,
    /// First revision wanted.
    pub(super) from: i64,
    pub(super) drops_puts: bool,
    pub(super) drops_deletes: bool,
    pub(super) prev_kv: bool,
    pub(super) progress_notify: bool,
    pub(super) fragment: bool,
    /// No events since the last progress tick.
    pub(super) idle: AtomicBool,
}

impl Watcher {
    pub(super) fn answer(&self, revision: i64, say: Say) -> Answer {
        Answer {
            watch_id: self.id,
            revision,
            say,
        }
    }

    pub(super) fn events(&self, batch: Arc<Batch>, revision: i64) -> Answer {
        let say = Say::Events {
            batch,
            prev_kv: self.prev_kv,
            fragment: self.fragment,
        };
        self.answer(revision, say)
    }
}

/// What waits for the reader.
#[derive(Debug)]
pub(super) enum Item {
    Answer(Answer),
    Live {
        watcher: Arc<Watcher>,
        batch: Arc<Batch>,
        revision: i64,
    },
    /// From here on this watcher reads history.
    Behind(Arc<Watcher>),
}

#[derive(Debug, Default)]
struct Items {
    queue: VecDeque<Item>,
    bytes: usize,
    live: usize,
    answers: usize,
}

/// The queue between the hub and a stream's reader.
#[derive(Debug)]
pub(super) struct Queue {
    items: Mutex<Items>,
    bytes_max: usize,
    live_max: usize,
    notify: Notify,
}

impl Queue {
    pub(super) fn new(bytes_max: usize, live_max: usize) -> Queue {
        Queue {
            items: Mutex::default(),
            bytes_max,
            live_max,
            notify: Notify::new(),
        }
    }

    /// Queues an answer or a mark; never refused. Answers are made by the client's own requests, which
    /// the service stops reading when they pile up ([`WatchStream::answers_pending`]); there is at
    /// most one mark for each watcher.
    pub(super) fn push(&self, item: Item) {
        self.push_locked(&mut self.items.lock(), item);
    }

    /// Queues events; on `false` they do not fit and the watcher is behind.
    pub(super) fn push_live(
        &self,
        watcher: &Arc<Watcher>,
        batch: &Arc<Batch>,
        revision: i64,
    ) -> bool {
        let mut items = self.items.lock();
        let bytes = batch.bytes + ITEM_BYTES;
        let fits = items.bytes + bytes <= self.bytes_max && items.live < self.live_max;
        if items.live > 0 && !fits {
            return false;
        }
        items.bytes += bytes;
        items.live += 1;
        let (watcher, batch) = (watcher.clone(), batch.clone());
        self.push_locked(
            &mut items,
            Item::Live {
                watcher,
                batch,
                revision,
            },
        );
        true
    }

    fn push_locked(&self, items: &mut Items, item: Item) {
        let was_empty = items.queue.is_empty();
        items.answers += usize::from(matches!(item, Item::Answer(_)));
        items.queue.push_back(item);
        if was_empty {
            self.notify.notify_one();
        }
    }

    fn pop(&self) -> Option<Item> {
        let mut items = self.items.lock();
        let item = items.queue.pop_front()?;
        match &item {
            Item::Live { batch, .. } => {
                items.bytes -= batch.bytes + ITEM_BYTES;
                items.live -= 1;
            }
            Item::Answer(_) => items.answers -= 1,
            Item::Behind(_) => {}
        }
        Some(item)
    }

    /// Drops everything; queued watchers hold this queue, so a closed one must not keep them.
    fn clear(&self) {
        *self.items.lock() = Items::default();
    }

    fn is_empty(&self) -> bool {
        self.items.lock().queue.is_empty()
    }

    pub(super) fn pending(&self) -> usize {
        self.items.lock().queue.len()
    }
}

/// One client's stream of watches. Its one owner makes requests and reads answers; dropping it
/// removes its watchers.
#[derive(Debug)]
pub struct WatchStream {
    hub: Arc<Hub>,
    id: u64,
    queue: Arc<Queue>,
}

impl WatchStream {
    pub(super) fn new(hub: Arc<Hub>, id: u64, queue: Arc<Queue>) -> WatchStream {
        WatchStream { hub, id, queue }
    }

    /// Creates a watcher, or refuses it; the answer is queued either way, and for a start in the past
    /// the history behind it.
    pub fn create(&self, request: &WatchCreateRequest) {
        self.hub.create(self.id, request);
    }

    /// Queues a refusal (created and cancelled, id -1) that was decided elsewhere: permission.
    pub fn refuse(&self, reason: String) {
        self.hub.refuse(&self.queue, reason);
    }

    /// Ends a watcher; an unknown id gets no answer.
    pub fn cancel(&self, watch_id: i64) {
        self.hub.cancel(self.id, watch_id);
    }

    /// The client asks how far the whole stream is: answered when every watcher is up to date and
    /// started, otherwise not at all.
    pub fn request_progress(&self) {
        self.hub.request_progress(self.id);
    }

    /// The progress timer ticked: watchers that asked for it, are up to date and had no event since
    /// the last tick get a progress answer under their own id.
    pub fn tick(&self) {
        self.hub.tick(self.id);
    }

    /// Answers to requests and ticks that wait, without events. The caller stops taking requests when
    /// they pile up.
    pub fn answers_pending(&self) -> usize {
        self.queue.items.lock().answers
    }

    /// The next answer, or what else to do. Takes bounded time; may read a page of history.
    pub fn next(&mut self, history: &dyn History) -> Next {
        match self.queue.pop() {
            None => Next::Empty,
            Some(Item::Answer(answer)) => Next::Answer(answer),
            Some(Item::Live {
                watcher,
                batch,
                revision,
            }) => Next::Answer(watcher.events(batch, revision)),
            Some(Item::Behind(watcher)) => self.catch_up(&watcher, history),
        }
    }

    /// Completes when [`WatchStream::next`] may have something; cancel safe.
    pub async fn readable(&self) {
        while self.queue.is_empty() {
            self.queue.notify.notified().await;
        }
    }

    fn catch_up(&self, watcher: &Arc<Watcher>, history: &dyn History) -> Next {
        let limits = self.hub.history_limits();
        let (from, to) = match self.hub.advance(watcher, None) {
            Step::Read { from, to } => (from, to),
            step => return step.into_next(),
        };
        // No lock of the hub is held here: changes and compactions go on meanwhile.
        let page: Result<HistoryPage, Compacted> =
            history.changes(&watcher.range, from, to, limits);
        if let Ok(page) = &page {
            assert!(
                page.next >= from && page.next <= to + 1,
                "history pages go forward"
            );
            if page.next == from {
                // The store is lost and the member about to stop: this watcher hears no more.
                return Next::Again;
            }
        }
        self.hub.advance(watcher, Some(page)).into_next()
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.hub.close(self.id);
        self.queue.clear();
    }
}

/// What [`WatchStream::next`] found.
#[derive(Clone, Debug)]
pub enum Next {
    /// To be sent.
    Answer(Answer),
    /// Some work was done and nothing is to be sent; call again (after letting others run).
    Again,
    /// Nothing; wait for [`WatchStream::readable`].
    Empty,
}

impl Watcher {
    pub(super) fn wants(&self, event: &super::Event) -> bool {
        use tenon_proto::mvccpb::event::EventType;
        event.revision() >= self.from
            && match event.kind() {
                EventType::Put => !self.drops_puts,
                EventType::Delete => !self.drops_deletes,
            }
    }

    /// True until the next progress tick finds no event in between.
    pub(super) fn take_idle(&self) -> bool {
        self.idle.swap(true, Ordering::Relaxed)
    }

    pub(super) fn had_events(&self) {
        self.idle.store(false, Ordering::Relaxed);
    }
}
