//! Room storage, apply: one revision in the making. Gives changes their positions, tells leases and
//! watches.

use crate::engine::RecordKey;
use crate::mvcc::entry::{KeyEntry, Live};
use crate::mvcc::index::Interval;
use crate::mvcc::record::{Pair, decode};
use crate::state::core::{Inner, State, fetch};
use crate::state::store::Fatal;
use crate::watch::Event;
use bytes::Bytes;
use tenon_env::Plant;
use tenon_proto::etcdserverpb::PutRequest;
use tenon_proto::mvccpb::KeyValue;

/// The changes of one request. Nothing may fail between the first change and [`Writing::finish`] but
/// the disk, which ends the store.
pub(super) struct Writing<'a> {
    pub inner: &'a Inner,
    pub state: &'a mut State,
    main: i64,
    changes: u32,
    events: Vec<Event>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(inner: &'a Inner, state: &'a mut State) -> Writing<'a> {
        let main = state.revision + 1;
        Writing {
            inner,
            state,
            main,
            changes: 0,
            events: Vec::new(),
        }
    }

    /// The revision a reader inside this request stands at: the new one after the first change.
    pub(super) fn revision(&self) -> i64 {
        if self.changes > 0 {
            self.main
        } else {
            self.main - 1
        }
    }

    fn next_key(&mut self, tombstone: bool) -> RecordKey {
        let key = RecordKey {
            main: self.main,
            sub: self.changes,
            tombstone,
        };
        self.changes += 1;
        key
    }

    /// Puts a pair whose request passed its checks; answers the previous pair when `request` asks for
    /// it.
    pub(super) fn put(&mut self, request: &PutRequest) -> Result<Option<KeyValue>, Fatal> {
        let record = self.next_key(false);
        let state = &mut *self.state;
        let mut entry = state.index.get_mut(&request.key);
        let live = entry.as_ref().and_then(|entry| entry.live());
        let former_lease = entry.as_ref().map_or(0, |entry| entry.lease());
        let before = match live {
            Some(Live { record, .. }) if request.prev_kv || request.ignore_value => {
                let cache = &self.inner.read_cache;
                Some(pair(&fetch(&state.recent, cache, &*state.view, record)?)?)
            }
            _ => None,
        };
        let value = match &before {
            Some(before) if request.ignore_value => &before.value,
            _ => &request.value,
        };
        let lease = if request.ignore_lease {
            former_lease
        } else {
            request.lease
        };
        self.inner.measures.put(request.key.len() + value.len());
        let (created, version) = live.map_or((record.main, 1), |l| (l.created, l.version + 1));
        let bytes = state.writer.put(&Pair {
            key: &request.key,
            created,
            modified: record.main,
            version,
            value,
            lease,
        });
        match &mut entry {
            Some(entry) => entry.put(record, lease),
            None => state
                .index
                .insert(&request.key, KeyEntry::created(record, lease)),
        }
        if former_lease != lease {
            attach(self.inner, &request.key, lease);
        }
        self.events.push(Event::put(pair(&bytes)?));
        state.push_record(record, bytes);
        Ok(before.filter(|_| request.prev_kv))
    }

    /// Deletes every pair of an interval, in key order; answers how many, and the pairs when asked.
    pub(super) fn delete_range(
        &mut self,
        interval: Interval<'_>,
        with_pairs: bool,
    ) -> Result<(i64, Vec<KeyValue>), Fatal> {
        let live = |(key, entry): (&[u8], &KeyEntry)| {
            entry
                .live()
                .map(|live| (Bytes::copy_from_slice(key), live.record))
        };
        self.inner.measures.deleted();
        let found: Vec<_> = self.state.index.range(interval).filter_map(live).collect();
        let mut pairs = Vec::new();
        if with_pairs {
            for (_, record) in &found {
                let State { recent, view, .. } = &*self.state;
                pairs.push(pair(&fetch(
                    recent,
                    &self.inner.read_cache,
                    &**view,
                    *record,
                )?)?);
            }
        }
        for (key, _) in &found {
            self.delete(key)?;
        }
        Ok((found.len() as i64, pairs))
    }

    /// Deletes one live key.
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Fatal> {
        let record = self.next_key(true);
        let state = &mut *self.state;
        let entry = state
            .index
            .get_mut(key)
            .expect("only live keys are deleted");
        let lease = entry.lease();
        entry.delete(record);
        if lease != 0 {
            self.inner.lessor.detach(key);
        }
        let bytes = state.writer.tombstone(key);
        let key = bytes.slice(bytes.len() - key.len()..);
        self.events.push(Event::delete(key, record.main));
        state.push_record(record, bytes);
        Ok(())
    }

    /// Closes the revision, if anything changed, and tells the watches; answers the store's revision.
    pub(super) fn finish(self) -> i64 {
        if self.changes > 0 {
            self.state.revision = self.main;
            let mut events = self.events;
            match self.inner.env.plant {
                Plant::ReuseRevision if self.main % 16 == 0 => self.state.revision -= 1,
                Plant::DropWatchEvent if self.main % 16 == 0 => drop(events.pop()),
                _ => {}
            }
            self.inner.watches.publish(self.main, events);
        }
        self.state.revision
    }
}

/// The pair of a record's bytes, which are ours: anything else is damage.
pub(super) fn pair(record: &Bytes) -> Result<KeyValue, Fatal> {
    decode(record).ok_or_else(|| Fatal("a record's bytes are damaged".into()))
}

/// Attaches a key to its new lease, or to none. The key is copied: its own bytes hold up much more.
fn attach(inner: &Inner, key: &Bytes, lease: i64) {
    if lease == 0 {
        inner.lessor.detach(key);
    } else {
        inner.lessor.attach(&Bytes::copy_from_slice(key), lease);
    }
}
