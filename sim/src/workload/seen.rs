//! Room `sim`, workloads: what watchers saw: the timeline that the one who watches every key makes, and the stretches
//! of those who watch parts of it.

use crate::check::Finding;
use crate::check::timeline::{Timeline, by_revision};
use crate::check::watches::Watched;
use crate::history::History;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::mvccpb::Event;

#[derive(Default)]
struct Inner {
    timeline: Timeline,
    seen_at: BTreeMap<i64, u64>,
    watched: Vec<Watched>,
    finding: Option<Finding>,
}

/// What watchers saw, shared with the run.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Inner>>);

impl Seen {
    pub(crate) fn last(&self) -> i64 {
        self.0.lock().timeline.last()
    }

    pub(crate) fn timeline(&self) -> Timeline {
        self.0.lock().timeline.clone()
    }

    /// When each revision was first seen, in nanoseconds of the world.
    pub(crate) fn seen_at(&self) -> BTreeMap<i64, u64> {
        self.0.lock().seen_at.clone()
    }

    pub(crate) fn watched(&self) -> Vec<Watched> {
        self.0.lock().watched.clone()
    }

    pub(crate) fn finding(&self) -> Option<Finding> {
        self.0.lock().finding.clone()
    }

    pub(crate) fn fail(&self, finding: Finding) {
        self.0.lock().finding.get_or_insert(finding);
    }
}

pub(crate) fn told_all(
    seen: &Seen,
    history: &History,
    answer: pb::WatchResponse,
    now: u64,
) -> Result<(), Finding> {
    let header = answer.header.as_ref().map_or(0, |h| h.revision);
    let mut inner = seen.0.lock();
    for (revision, events) in by_revision(answer.events)? {
        crate::check::require(header >= revision, || {
            format!("a header of {header} came with revision {revision}")
        })?;
        inner.timeline.add(revision, events)?;
        inner.seen_at.entry(revision).or_insert(now);
        history.saw(revision);
    }
    Ok(())
}

/// What a watcher of a part watches.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) key: Bytes,
    pub(crate) range_end: Bytes,
    /// First revision wanted; 0 for what comes after the creation.
    pub(crate) start: i64,
}

pub(crate) fn begin(part: &Part, first: i64) -> Watched {
    Watched {
        key: part.key.clone(),
        range_end: part.range_end.clone(),
        first,
        last: 0,
        events: Vec::new(),
        progress: Vec::new(),
    }
}

pub(crate) fn tell(watched: &mut Watched, events: Vec<Event>, next: &mut i64) {
    for event in events {
        let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        *next = (*next).max(revision + 1);
        watched.events.push(event);
    }
}

pub(crate) fn note(seen: &Seen, watched: Option<Watched>) {
    if let Some(watched) = watched {
        seen.0.lock().watched.push(watched);
    }
}
