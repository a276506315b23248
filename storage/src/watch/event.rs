//! Room storage, watches: one change of one key, shared by every watcher that matches it. Holds
//! bytes; looks nothing up by itself.

use crate::watch::{History, Lost};
use std::sync::OnceLock;
use tenon_proto::mvccpb::event::EventType;
use tenon_proto::mvccpb::{self, KeyValue};

/// One change of one key at one revision. Watchers share it through an `Arc`.
///
/// - A put carries the whole pair as stored; a delete carries key and `mod_revision` only.
/// - `kv.mod_revision` is the main revision of the change.
#[derive(Debug)]
pub struct Event {
    kind: EventType,
    kv: KeyValue,
    prev: OnceLock<Option<KeyValue>>,
}

impl Event {
    /// A put of `kv` (all fields set).
    pub fn put(kv: KeyValue) -> Event {
        let prev = OnceLock::new();
        if kv.create_revision == kv.mod_revision {
            let _ = prev.set(None);
        }
        Event {
            kind: EventType::Put,
            kv,
            prev,
        }
    }

    /// The deletion of `key` at main revision `revision`.
    pub fn delete(key: bytes::Bytes, revision: i64) -> Event {
        let kv = KeyValue {
            key,
            mod_revision: revision,
            ..KeyValue::default()
        };
        Event {
            kind: EventType::Delete,
            kv,
            prev: OnceLock::new(),
        }
    }

    /// The same event with its previous pair (the one at `mod_revision - 1`) already known, for
    /// callers that hold it anyway; saves a look-up at delivery.
    pub fn with_prev(self, prev: Option<KeyValue>) -> Event {
        let known = OnceLock::new();
        let _ = known.set(prev);
        Event {
            prev: known,
            ..self
        }
    }

    /// Put or delete.
    pub fn kind(&self) -> EventType {
        self.kind
    }

    /// The pair after the change.
    pub fn kv(&self) -> &KeyValue {
        &self.kv
    }

    /// Main revision of the change.
    pub fn revision(&self) -> i64 {
        self.kv.mod_revision
    }

    /// The pair before the change; `None` for a creation and when compaction has passed it. Looked up
    /// once and then remembered for all watchers.
    ///
    /// # Errors
    /// [`Lost`] when it has to be looked up and cannot be.
    pub fn prev(&self, history: &dyn History) -> Result<Option<&KeyValue>, Lost> {
        if let Some(known) = self.prev.get() {
            return Ok(known.as_ref());
        }
        let found = history.pair_at(&self.kv.key, self.kv.mod_revision - 1)?;
        Ok(self.prev.get_or_init(|| found).as_ref())
    }

    /// Rough size in bytes, for bounds on memory.
    pub fn weight(&self) -> usize {
        self.kv.key.len() + self.kv.value.len() + 64
    }

    /// The event as sent. Clones share the pair's bytes.
    ///
    /// # Errors
    /// As [`Event::prev`].
    pub fn to_wire(&self, prev_kv: bool, history: &dyn History) -> Result<mvccpb::Event, Lost> {
        let prev = match prev_kv {
            true => self.prev(history)?.cloned(),
            false => None,
        };
        Ok(mvccpb::Event {
            r#type: self.kind as i32,
            kv: Some(self.kv.clone()),
            prev_kv: prev,
        })
    }
}
