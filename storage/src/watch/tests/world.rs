//! Room storage, watches: a small world of keys for the tests: every change kept, a hub that is told, and
//! writes that fall between the hub's reading and its locking.

use super::super::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;
use tenon_proto::mvccpb::event::EventType;

/// One write of the world.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// One revision: puts (Some) and deletes (None).
    Txn(Vec<(u8, Option<u8>)>),
    /// Compaction at current minus this.
    Compact(i64),
    /// As many single puts that nobody is told of, then a snapshot's `restored`.
    Snapshot(u8),
}

#[derive(Default)]
pub(super) struct Past {
    pub(super) current: i64,
    pub(super) compacted: i64,
    pub(super) changes: Vec<(EventType, KeyValue)>,
}

/// Keys of one byte, every change kept, and a hub that is told.
pub(super) struct World {
    pub(super) past: Mutex<Past>,
    pub(super) hub: WatchHub,
    /// Nothing can be looked up any more.
    pub(super) lost: Mutex<bool>,
    /// Writes that happen while a page of history is read: before, after, before, after.
    pub(super) ambush: Mutex<VecDeque<Write>>,
}

pub(super) fn key(k: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'a' + k])
}

impl Past {
    pub(super) fn pair_at(&self, key: &[u8], at: i64) -> Option<KeyValue> {
        let before = self.changes.iter().rev();
        let (kind, kv) = before
            .clone()
            .find(|(_, kv)| kv.key == key && kv.mod_revision <= at)?;
        (*kind == EventType::Put).then(|| kv.clone())
    }

    fn write(&mut self, changes: &[(u8, Option<u8>)]) -> Vec<Event> {
        let revision = self.current + 1;
        let mut events = Vec::new();
        for (k, value) in changes {
            let old = self.pair_at(&key(*k), revision);
            let (kind, kv) = match value {
                Some(value) => {
                    let kv = KeyValue {
                        key: key(*k),
                        create_revision: old.as_ref().map_or(revision, |o| o.create_revision),
                        mod_revision: revision,
                        version: old.as_ref().map_or(1, |o| o.version + 1),
                        value: Bytes::from(vec![*value; usize::from(*value)]),
                        lease: 0,
                    };
                    (EventType::Put, kv)
                }
                None if old.is_none() => continue,
                None => {
                    let kv = KeyValue {
                        key: key(*k),
                        mod_revision: revision,
                        ..KeyValue::default()
                    };
                    (EventType::Delete, kv)
                }
            };
            events.push(match kind {
                EventType::Put => Event::put(kv.clone()),
                EventType::Delete => Event::delete(kv.key.clone(), revision),
            });
            self.changes.push((kind, kv));
        }
        if !events.is_empty() {
            self.current = revision;
        }
        events
    }
}

impl World {
    pub(super) fn new(options: WatchOptions) -> World {
        let past = Past {
            current: 1,
            compacted: -1,
            changes: Vec::new(),
        };
        let hub = WatchHub::new(1, -1, options);
        World {
            past: Mutex::new(past),
            hub,
            ambush: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    pub(super) fn apply(&self, write: &Write) {
        let mut past = self.past.lock();
        match write {
            Write::Txn(changes) => {
                let events = past.write(changes);
                if !events.is_empty() {
                    self.hub.publish(past.current, events);
                }
            }
            Write::Compact(back) => {
                let at = past.current - back;
                if at > past.compacted {
                    past.compacted = at;
                    self.hub.compacted(at);
                }
            }
            Write::Snapshot(puts) => {
                for k in 0..*puts {
                    past.write(&[(k % 5, Some(k))]);
                }
                self.hub.restored(past.current, past.compacted);
            }
        }
    }

    pub(super) fn put(&self, k: u8, value: u8) {
        self.apply(&Write::Txn(vec![(k, Some(value))]));
    }

    pub(super) fn delete(&self, k: u8) {
        self.apply(&Write::Txn(vec![(k, None)]));
    }

    fn ambushed(&self) {
        let write = self.ambush.lock().pop_front();
        if let Some(write) = write {
            self.apply(&write);
        }
    }

    /// Everything a stream has to say now.
    pub(super) fn drain(&self, stream: &mut WatchStream) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            match stream.next(self) {
                Next::Answer(answer) => answers.push(answer),
                Next::Again => {}
                Next::Empty => return answers,
            }
        }
    }
}

impl History for World {
    fn changes(
        &self,
        range: &KeyRange,
        from: i64,
        to: i64,
        limits: HistoryLimits,
    ) -> Result<HistoryPage, Compacted> {
        self.ambushed();
        let page = {
            let past = self.past.lock();
            if from < past.compacted {
                return Err(Compacted {
                    revision: past.compacted,
                });
            }
            past.page(range, from, to, limits)
        };
        self.ambushed();
        Ok(page)
    }

    fn pair_at(&self, key: &[u8], at: i64) -> Result<Option<KeyValue>, Lost> {
        let past = self.past.lock();
        if *self.lost.lock() {
            return Err(Lost);
        }
        Ok(match at < past.compacted {
            true => None,
            false => past.pair_at(key, at),
        })
    }
}

impl Past {
    fn page(&self, range: &KeyRange, from: i64, to: i64, limits: HistoryLimits) -> HistoryPage {
        let mut page = HistoryPage {
            events: Vec::new(),
            next: to + 1,
        };
        let (mut scanned, mut revisions, mut last) = (0, 0, 0);
        let wanted = self
            .changes
            .iter()
            .filter(|(_, kv)| (from..=to).contains(&kv.mod_revision));
        for (kind, kv) in wanted {
            let full =
                scanned >= limits.scanned_records_max || revisions >= limits.matched_revisions_max;
            if full && kv.mod_revision != last {
                page.next = kv.mod_revision;
                break;
            }
            scanned += 1;
            if range.contains(&kv.key) {
                revisions += usize::from(last != kv.mod_revision);
                page.events.push(Arc::new(match kind {
                    EventType::Put => Event::put(kv.clone()),
                    EventType::Delete => Event::delete(kv.key.clone(), kv.mod_revision),
                }));
            }
            last = kv.mod_revision;
        }
        page
    }
}
