//! Room storage, state: past changes, for watches. What a page of history needs is taken under the lock
//! (the check against compaction, the records in memory, a view of the engine); reading and matching
//! happen after it.

use super::core::{Inner, State, fetch};
use super::store::Fatal;
use crate::engine::{RecordKey, View};
use crate::mvcc::record::{decode, decode_head};
use crate::watch::{Compacted, Event, History, HistoryLimits, HistoryPage, Lost};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;

/// Builds a page from records in order.
struct Page<'a> {
    range: &'a KeyRange,
    limits: HistoryLimits,
    events: Vec<Arc<Event>>,
    /// Main revision of the newest record looked at.
    main: i64,
    scanned: usize,
    matched_revisions: usize,
    matched_bytes: usize,
    last_matched: i64,
    /// The first revision beyond the page, once a limit was reached.
    next: Option<i64>,
}

impl Page<'_> {
    /// Looks at a record; breaks at the first revision beyond the limits.
    fn add(
        &mut self,
        key: RecordKey,
        value: &[u8],
        owned: impl FnOnce() -> Bytes,
    ) -> Result<ControlFlow<()>, Fatal> {
        let damaged = || Fatal(format!("record {}/{} is damaged", key.main, key.sub));
        if key.main != self.main {
            let full = self.scanned >= self.limits.scanned_records_max
                || self.matched_revisions >= self.limits.matched_revisions_max
                || self.matched_bytes >= self.limits.matched_bytes_max;
            if full && self.scanned > 0 {
                self.next = Some(key.main);
                return Ok(ControlFlow::Break(()));
            }
            self.main = key.main;
        }
        self.scanned += 1;
        let head = decode_head(value).ok_or_else(damaged)?;
        if !self.range.contains(head.key) {
            return Ok(ControlFlow::Continue(()));
        }
        let event = event(key, &owned()).ok_or_else(damaged)?;
        if self.last_matched != key.main {
            self.matched_revisions += 1;
            self.last_matched = key.main;
        }
        self.matched_bytes += event.weight();
        self.events.push(Arc::new(event));
        Ok(ControlFlow::Continue(()))
    }
}

fn event(key: RecordKey, record: &Bytes) -> Option<Event> {
    let pair = decode(record)?;
    Some(if key.tombstone {
        Event::delete(pair.key, key.main)
    } else {
        Event::put(pair)
    })
}

/// What the lock gives for one page.
struct Taken {
    /// Positions to read; `None` = all of the engine up to the first in memory.
    view: Arc<dyn View>,
    /// Records of the engine end here.
    engine_end: (i64, u32),
    memory: Vec<(RecordKey, Bytes)>,
}

fn take(state: &State, from: i64, to: i64, records_max: usize) -> Taken {
    let start = (from, 0);
    let first = state.recent.first().unwrap_or(state.in_view);
    // One revision is taken whole even when it has more records than the limit.
    let mut taken = 0;
    let mut last = 0;
    let memory = state.recent.from(start).take_while(|(key, _)| {
        taken += 1;
        let goes_on = key.main <= to && (taken <= records_max || key.main == last);
        last = key.main;
        goes_on
    });
    Taken {
        view: state.view.clone(),
        engine_end: first.max(start),
        memory: memory.cloned().collect(),
    }
}

impl Inner {
    fn page(
        &self,
        taken: &Taken,
        range: &KeyRange,
        from: i64,
        to: i64,
        limits: HistoryLimits,
    ) -> Result<HistoryPage, Fatal> {
        let mut page = Page {
            range,
            limits,
            events: Vec::new(),
            main: 0,
            scanned: 0,
            matched_revisions: 0,
            matched_bytes: 0,
            last_matched: 0,
            next: None,
        };
        let end = taken.engine_end.min(State::after(to));
        let mut lost = None;
        taken
            .view
            .scan((from, 0), end, &mut |key, value| match page
                .add(key, value, || Bytes::copy_from_slice(value))
            {
                Ok(flow) => flow,
                Err(fatal) => {
                    lost = Some(fatal);
                    ControlFlow::Break(())
                }
            })?;
        if let Some(fatal) = lost {
            return Err(fatal);
        }
        let mut memory_end = to + 1;
        if page.next.is_none() {
            for (key, value) in &taken.memory {
                if page.add(*key, value, || value.clone())?.is_break() {
                    break;
                }
            }
            // What was taken may end before `to`: then the page ends with its last revision.
            if taken.memory.len() >= limits.scanned_records_max
                && let Some((key, _)) = taken.memory.last()
            {
                memory_end = memory_end.min(key.main + 1);
            }
        }
        Ok(HistoryPage {
            events: page.events,
            next: page.next.unwrap_or(memory_end),
        })
    }

    /// A page for one key: its positions come from the index.
    fn single(
        &self,
        state: &State,
        key: &[u8],
        (from, to): (i64, i64),
        limits: HistoryLimits,
    ) -> (Vec<RecordKey>, i64) {
        let mut positions = Vec::new();
        if let Some(entry) = state.index.get(key) {
            entry.changes_between(from, to, |record| positions.push(record));
        }
        let max = limits
            .matched_revisions_max
            .min(limits.scanned_records_max)
            .max(1);
        let next = match positions.get(max) {
            Some(beyond) => {
                let next = beyond.main;
                positions.retain(|record| record.main < next);
                next
            }
            None => to + 1,
        };
        (positions, next)
    }
}

impl History for Inner {
    fn changes(
        &self,
        range: &KeyRange,
        from: i64,
        to: i64,
        limits: HistoryLimits,
    ) -> Result<HistoryPage, Compacted> {
        let state = self.state.read();
        if from < state.compacted {
            return Err(Compacted {
                revision: state.compacted,
            });
        }
        let page = if range.is_single() {
            let (positions, next) = self.single(&state, range.key(), (from, to), limits);
            let mut sources = Vec::with_capacity(positions.len());
            for key in positions {
                sources.push((key, state.recent.get(key).cloned()));
            }
            let view = state.view.clone();
            drop(state);
            self.page_of(sources, &*view, limits, next)
        } else {
            let taken = take(&state, from, to, limits.scanned_records_max);
            drop(state);
            self.page(&taken, range, from, to, limits)
        };
        // A lost store stops the member; until then its watchers get nothing more.
        Ok(self.lose(page).unwrap_or(HistoryPage {
            events: Vec::new(),
            next: from,
        }))
    }

    fn pair_at(&self, key: &[u8], at: i64) -> Result<Option<KeyValue>, Lost> {
        let state = self.state.read();
        if at < 1 || at < state.compacted {
            return Ok(None);
        }
        let Some(live) = state.index.get(key).and_then(|entry| entry.live_at(at)) else {
            return Ok(None);
        };
        let record = fetch(&state.recent, &self.read_cache, &*state.view, live.record);
        match self.lose(record) {
            Ok(record) => Ok(decode(&record)),
            Err(_) => Err(Lost),
        }
    }
}

impl Inner {
    fn page_of(
        &self,
        sources: Vec<(RecordKey, Option<Bytes>)>,
        view: &dyn View,
        limits: HistoryLimits,
        next: i64,
    ) -> Result<HistoryPage, Fatal> {
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut bytes = 0;
        for (key, memory) in sources {
            let new_revision = events.last().is_none_or(|last| last.revision() != key.main);
            if bytes >= limits.matched_bytes_max && new_revision {
                return Ok(HistoryPage {
                    events,
                    next: key.main,
                });
            }
            let missing = || Fatal(format!("record {}/{} is missing", key.main, key.sub));
            let record = match memory {
                Some(record) => record,
                None => view.record(key)?.ok_or_else(missing)?,
            };
            let event = event(key, &record).ok_or_else(missing)?;
            bytes += event.weight();
            events.push(Arc::new(event));
        }
        Ok(HistoryPage { events, next })
    }
}
