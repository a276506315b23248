//! Room storage, watches: the newest revisions' events, kept for a while in memory, so that a watcher
//! that is only a little behind catches up without reading the store, and without a gap between reading
//! and going live: both happen under the hub's lock.

use super::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// The newest published revisions without a gap, up to bounds in number and bytes.
#[derive(Debug)]
pub(super) struct Recent {
    revisions: VecDeque<(i64, Arc<[Arc<Event>]>)>,
    bytes: usize,
    bytes_max: usize,
    revisions_max: usize,
}

impl Recent {
    pub(super) fn new(revisions_max: usize, bytes_max: usize) -> Recent {
        Recent {
            revisions: VecDeque::new(),
            bytes: 0,
            bytes_max,
            revisions_max,
        }
    }

    pub(super) fn push(&mut self, revision: i64, events: Arc<[Arc<Event>]>) {
        self.bytes += weight(&events);
        self.revisions.push_back((revision, events));
        while self.bytes > self.bytes_max || self.revisions.len() > self.revisions_max {
            let Some((_, oldest)) = self.revisions.pop_front() else {
                break;
            };
            self.bytes -= weight(&oldest);
        }
    }

    pub(super) fn clear(&mut self) {
        self.revisions.clear();
        self.bytes = 0;
    }

    /// True when every revision from `from` to the newest published one is here.
    pub(super) fn reaches_back_to(&self, from: i64) -> bool {
        self.revisions
            .front()
            .is_some_and(|(oldest, _)| *oldest <= from)
    }

    /// Revisions from `from` on, ascending.
    pub(super) fn since(&self, from: i64) -> impl Iterator<Item = &(i64, Arc<[Arc<Event>]>)> {
        let oldest = self.revisions.front().map_or(from, |(oldest, _)| *oldest);
        let skip = usize::try_from(from - oldest).unwrap_or(0);
        self.revisions.iter().skip(skip)
    }
}

fn weight(events: &[Arc<Event>]) -> usize {
    events.iter().map(|event| event.weight()).sum()
}
