//! Room storage, watches: what the hub knows, changed only under its lock: who watches, how far each
//! watcher is, and what the newest revisions changed. Calls nothing that could take the store's lock.

use super::answer::{Answer, Batch, Say};
use super::history::HistoryLimits;
use super::hub::Step;
use super::index::Index;
use super::recent::Recent;
use super::stream::{Item, Queue, Watcher};
use super::{Event, WatchOptions};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::WatchCreateRequest;
use tenon_proto::etcdserverpb::watch_create_request::FilterType;
use tenon_proto::key_range::KeyRange;

/// Where a watcher stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// In the index: gets events as they happen.
    Synced,
    /// Its next revision; a mark waits in its stream's queue.
    Behind { next: i64 },
    /// Cancelled because of compaction; the id stays taken until the client cancels it too.
    Compacted,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) watcher: Arc<Watcher>,
    pub(super) stand: Stand,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) queue: Arc<Queue>,
    pub(super) watchers: BTreeMap<i64, Entry>,
    pub(super) next_id: i64,
}

#[derive(Debug)]
pub(super) struct State {
    /// Newest published revision.
    pub(super) current: i64,
    /// Newest compaction; -1 before any.
    pub(super) compacted: i64,
    pub(super) index: Index,
    pub(super) recent: Recent,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) next_stream: u64,
    pub(super) next_serial: u64,
    pub(super) behind: usize,
    pub(super) watchers: usize,
    pub(super) events: u64,
}

impl Entry {
    /// Up to date and started: it may be told that it has seen everything up to `current`.
    pub(super) fn is_current(&self, current: i64) -> bool {
        self.stand == Stand::Synced && self.watcher.start <= current
    }
}

impl State {
    pub(super) fn new(current: i64, compacted: i64, options: &WatchOptions) -> State {
        State {
            current,
            compacted,
            index: Index::default(),
            recent: Recent::new(options.recent_revisions_max, options.recent_bytes_max),
            streams: BTreeMap::new(),
            next_stream: 0,
            next_serial: 0,
            behind: 0,
            watchers: 0,
            events: 0,
        }
    }

    pub(super) fn open_stream(&mut self, queue: Arc<Queue>) -> u64 {
        let id = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(
            id,
            Stream {
                queue,
                watchers: BTreeMap::new(),
                next_id: 0,
            },
        );
        id
    }

    pub(super) fn stream(&mut self, stream_id: u64) -> &mut Stream {
        self.streams
            .get_mut(&stream_id)
            .expect("a stream lives as long as its WatchStream")
    }

    pub(super) fn create(
        &mut self,
        stream_id: u64,
        request: &WatchCreateRequest,
    ) -> Result<(), Error> {
        let range = range_of(request);
        if range.is_empty() {
            return Err(Error::WatchRangeEmpty);
        }
        if request.start_revision < 0 {
            return Err(Error::Compacted);
        }
        let (current, compacted) = (self.current, self.compacted);
        let serial = self.next_serial;
        let stream = self.stream(stream_id);
        let id = stream
            .choose_id(request.watch_id)
            .ok_or(Error::WatchIdDuplicate)?;
        let start = request.start_revision;
        let drops = |filter: FilterType| request.filters.contains(&(filter as i32));
        let watcher = Arc::new(Watcher {
            serial,
            id,
            stream_id,
            stream: stream.queue.clone(),
            range,
            start,
            from: if start == 0 { current + 1 } else { start },
            drops_puts: drops(FilterType::Noput),
            drops_deletes: drops(FilterType::Nodelete),
            prev_kv: request.prev_kv,
            progress_notify: request.progress_notify,
            fragment: request.fragment,
            idle: AtomicBool::new(true),
        });
        stream
            .queue
            .push(Item::Answer(watcher.answer(current, Say::Created)));
        let stand = if watcher.from > current {
            Stand::Synced
        } else if watcher.from < compacted {
            let say = Say::Compacted {
                revision: compacted,
            };
            stream.queue.push(Item::Answer(watcher.answer(0, say)));
            Stand::Compacted
        } else {
            stream.queue.push(Item::Behind(watcher.clone()));
            Stand::Behind { next: watcher.from }
        };
        stream.watchers.insert(
            id,
            Entry {
                watcher: watcher.clone(),
                stand,
            },
        );
        self.next_serial += 1;
        self.watchers += usize::from(stand != Stand::Compacted);
        match stand {
            Stand::Synced => self.index.insert(&watcher),
            Stand::Behind { .. } => self.behind += 1,
            Stand::Compacted => {}
        }
        Ok(())
    }

    /// Takes a removed entry out of index and counts. A mark left in the queue finds nothing.
    pub(super) fn forget(&mut self, entry: &Entry) {
        match entry.stand {
            Stand::Synced => self.index.remove(&entry.watcher),
            Stand::Behind { .. } => self.behind -= 1,
            Stand::Compacted => return,
        }
        self.watchers -= 1;
    }

    /// The stand of exactly this watcher; `None` when it was cancelled (its id may be another's now).
    fn stand(&mut self, watcher: &Watcher) -> Option<&mut Stand> {
        let entry = self
            .streams
            .get_mut(&watcher.stream_id)?
            .watchers
            .get_mut(&watcher.id)?;
        (entry.watcher.serial == watcher.serial).then_some(&mut entry.stand)
    }

    pub(super) fn behind_at(&mut self, watcher: &Watcher) -> Option<i64> {
        match self.stand(watcher)? {
            Stand::Behind { next } => Some(*next),
            Stand::Synced | Stand::Compacted => None,
        }
    }

    /// True when all from `next` on is in memory, or nothing is missing.
    pub(super) fn is_recent(&self, next: i64) -> bool {
        next > self.current || self.recent.reaches_back_to(next)
    }

    /// Appends matching recent events within the limits; answers the new next revision.
    pub(super) fn take_recent(
        &self,
        watcher: &Watcher,
        next: i64,
        events: &mut Vec<Arc<Event>>,
        limits: &HistoryLimits,
    ) -> i64 {
        let mut bytes: usize = events.iter().map(|event| event.weight()).sum();
        let mut revisions = count_revisions(events);
        for (revision, changes) in self.recent.since(next.min(self.current + 1)) {
            if *revision < next {
                continue;
            }
            if bytes >= limits.matched_bytes_max || revisions >= limits.matched_revisions_max {
                return *revision;
            }
            let before = events.len();
            for event in changes.iter() {
                if watcher.range.contains(&event.kv().key) && watcher.wants(event) {
                    bytes += event.weight();
                    events.push(event.clone());
                }
            }
            revisions += usize::from(events.len() > before);
        }
        next.max(self.current + 1)
    }

    /// Records how far a watcher that is behind came: live from here on, or a new mark.
    pub(super) fn moved_to(&mut self, watcher: &Arc<Watcher>, next: i64) {
        let synced = next > self.current;
        let stand = self.stand(watcher).expect("checked by the caller");
        if synced {
            *stand = Stand::Synced;
            self.behind -= 1;
            self.index.insert(watcher);
        } else {
            *stand = Stand::Behind { next };
            watcher.stream.push(Item::Behind(watcher.clone()));
        }
    }

    pub(super) fn cancel_compacted(&mut self, watcher: &Watcher, revision: i64) -> Step {
        *self.stand(watcher).expect("checked by the caller") = Stand::Compacted;
        self.behind -= 1;
        self.watchers -= 1;
        Step::Send(watcher.answer(0, Say::Compacted { revision }))
    }

    /// A synced watcher could not be given revision `next`: from there on it reads history.
    pub(super) fn fall_behind(&mut self, watcher: &Arc<Watcher>, next: i64) {
        self.index.remove(watcher);
        self.behind += 1;
        *self.stand(watcher).expect("indexed watchers exist") = Stand::Behind { next };
        watcher.stream.push(Item::Behind(watcher.clone()));
    }

    /// Queues one revision's events for every matching watcher.
    pub(super) fn deliver(&mut self, revision: i64, events: &Arc<[Arc<Event>]>) {
        let mut behind = Vec::new();
        let mut sent = 0;
        let mut give = |watcher: &Arc<Watcher>, batch: &Arc<Batch>| {
            if watcher.stream.push_live(watcher, batch, revision) {
                watcher.had_events();
                sent += batch.events.len() as u64;
            } else {
                behind.push(watcher.clone());
            }
        };
        if let [event] = &events[..] {
            let batch = Batch::new(vec![event.clone()]);
            self.index.each_matching(&event.kv().key, &mut |watcher| {
                if watcher.wants(event) {
                    give(watcher, &batch);
                }
            });
        } else {
            self.each_group(events, &mut give);
        }
        self.events += sent;
        for watcher in behind {
            self.fall_behind(&watcher, revision);
        }
    }

    /// Groups a revision's events by watcher; watchers with the same events share one batch.
    fn each_group(&self, events: &[Arc<Event>], give: &mut dyn FnMut(&Arc<Watcher>, &Arc<Batch>)) {
        let mut hits: BTreeMap<u64, (&Arc<Watcher>, Vec<u32>)> = BTreeMap::new();
        for (at, event) in (0u32..).zip(events) {
            self.index.each_matching(&event.kv().key, &mut |watcher| {
                if watcher.wants(event) {
                    hits.entry(watcher.serial)
                        .or_insert((watcher, Vec::new()))
                        .1
                        .push(at);
                }
            });
        }
        let mut batches: BTreeMap<Vec<u32>, Arc<Batch>> = BTreeMap::new();
        for (watcher, which) in hits.into_values() {
            let batch = match batches.get(&which) {
                Some(batch) => batch.clone(),
                None => {
                    let chosen = which
                        .iter()
                        .map(|at| events[*at as usize].clone())
                        .collect();
                    batches.entry(which).or_insert(Batch::new(chosen)).clone()
                }
            };
            give(watcher, &batch);
        }
    }
}

impl Stream {
    /// The id for a new watcher: the asked one, or for 0 the next unused; `None` when it is taken.
    fn choose_id(&mut self, asked: i64) -> Option<i64> {
        if asked != 0 {
            return (!self.watchers.contains_key(&asked)).then_some(asked);
        }
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }
}

pub(super) fn refused(current: i64, reason: String) -> Answer {
    Answer {
        watch_id: -1,
        revision: current,
        say: Say::Refused(reason),
    }
}

/// The watched interval; an empty key means the smallest one.
fn range_of(request: &WatchCreateRequest) -> KeyRange {
    let key = if request.key.is_empty() {
        Bytes::from_static(b"\0")
    } else {
        request.key.clone()
    };
    KeyRange::new(key, request.range_end.clone())
}

fn count_revisions(events: &[Arc<Event>]) -> usize {
    let changes = events
        .windows(2)
        .filter(|pair| pair[0].revision() != pair[1].revision());
    changes.count() + usize::from(!events.is_empty())
}
