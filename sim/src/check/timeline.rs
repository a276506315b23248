//! Checker: revisions are gap-free, and a revision once seen keeps its content, over every crash.

use super::{Finding, Verdict, require};
use std::collections::BTreeMap;
use tenon_proto::mvccpb::Event;

/// The changes of every revision, as the first watcher to see them was told.
#[derive(Clone, Debug)]
pub struct Timeline {
    revisions: BTreeMap<i64, Vec<Event>>,
    last: i64,
}

impl Default for Timeline {
    fn default() -> Timeline {
        // An empty store stands at revision 1.
        Timeline {
            revisions: BTreeMap::new(),
            last: 1,
        }
    }
}

impl Timeline {
    /// Adds a whole revision as a watcher of all keys was told it.
    pub fn add(&mut self, revision: i64, events: Vec<Event>) -> Verdict {
        if let Some(held) = self.revisions.get(&revision) {
            return require(*held == events, || {
                format!("revision {revision} was {held:?} and is now {events:?}")
            });
        }
        require(revision == self.last + 1, || {
            format!("revision {revision} follows {}", self.last)
        })?;
        require(!events.is_empty(), || {
            format!("revision {revision} changed nothing")
        })?;
        self.last = revision;
        self.revisions.insert(revision, events);
        Ok(())
    }

    /// The newest revision seen.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// The changes of a revision.
    pub fn of(&self, revision: i64) -> Option<&[Event]> {
        self.revisions.get(&revision).map(Vec::as_slice)
    }

    /// All revisions in order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &[Event])> {
        self.revisions.iter().map(|(r, e)| (*r, e.as_slice()))
    }

    /// The revisions from `first` to `last` in order; none when `last` is before `first`.
    pub fn range(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, &[Event])> {
        let from = self.revisions.range(first..);
        from.take_while(move |(r, _)| **r <= last)
            .map(|(r, e)| (*r, e.as_slice()))
    }
}

/// Splits a response's events into whole revisions, which must be in order.
pub fn by_revision(events: Vec<Event>) -> Result<Vec<(i64, Vec<Event>)>, Finding> {
    let mut parts: Vec<(i64, Vec<Event>)> = Vec::new();
    for event in events {
        let Some(kv) = &event.kv else {
            return Err(Finding(format!("an event without a key: {event:?}")));
        };
        let revision = kv.mod_revision;
        match parts.last_mut() {
            Some((last, events)) if *last == revision => events.push(event),
            Some((last, _)) if *last > revision => {
                return Err(Finding(format!(
                    "revision {revision} was told after {last}"
                )));
            }
            _ => parts.push((revision, vec![event])),
        }
    }
    Ok(parts)
}
