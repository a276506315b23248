//! Room storage, state: sums over the content: HashKV for comparing members, and one over the whole
//! engine for tests.

use super::core::{Inner, State};
use super::store::Fatal;
use crate::engine::{RecordKey, Table, View};
use crate::mvcc::hash::HashKv;
use crate::mvcc::index::Interval;
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use tenon_proto::error::Error;
use tenon_proto::ids::Revision;

/// Keys looked at while the lock is held once.
const KEYS_PER_STEP: usize = 4_000;

/// Answer of [`super::Store::hash_kv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKvSum {
    /// The sum; comparable between members at the same revision and compaction.
    pub hash: u32,
    /// The revision summed up to.
    pub hash_revision: Revision,
    /// The compaction it was computed under; -1 = never compacted.
    pub compact_revision: Revision,
    /// The store's revision then.
    pub current_revision: Revision,
}

/// Records as of one moment: those of the view below `memory`, then those in memory.
struct Everything {
    view: Arc<dyn View>,
    view_end: (i64, u32),
    memory: Vec<(RecordKey, Bytes)>,
}

impl Everything {
    /// Takes the records with main at or below `revision`.
    fn take(state: &State, revision: i64) -> Everything {
        let end = State::after(revision);
        let memory = state
            .recent
            .from(state.in_view)
            .take_while(|(key, _)| key.position() < end);
        Everything {
            view: state.view.clone(),
            view_end: state.in_view.min(end),
            memory: memory.cloned().collect(),
        }
    }

    fn visit(&self, mut visit: impl FnMut(RecordKey, &[u8])) -> Result<(), Fatal> {
        self.view.scan((0, 0), self.view_end, &mut |key, value| {
            visit(key, value);
            ControlFlow::Continue(())
        })?;
        for (key, value) in &self.memory {
            visit(*key, value);
        }
        Ok(())
    }
}

/// HashKV at `revision`; 0 = now. Blocking: reads everything.
pub(crate) fn hash_kv(inner: &Inner, revision: i64) -> Result<HashKvSum, Error> {
    let (at, compacted, current, everything, pin) = {
        let state = inner.state.read();
        if revision > state.revision {
            return Err(Error::FutureRev);
        }
        if revision > 0 && revision < state.compacted {
            return Err(Error::Compacted);
        }
        let compaction = state.compacted;
        let at = if revision > 0 {
            revision
        } else {
            state.revision
        };
        // The keep set may have to be read at the compaction revision, so that is what is held.
        let pin = inner.pins.pin(compaction, inner.env.now());
        (
            at,
            state.compacted,
            state.revision,
            Everything::take(&state, at),
            pin,
        )
    };
    let (mut keep, any_live) = live_below(inner, at, compacted);
    if !any_live {
        // etcd then counts whatever is still there. Once its removal is done that is what was live at
        // the compaction; this way the sum is that one from the beginning.
        keep = live_below(inner, compacted, compacted).0;
    }
    let mut sum = HashKv::new(at, compacted, keep);
    inner
        .lose(everything.visit(|key, value| sum.record(key, value)))
        .map_err(|_| Error::Stopped)?;
    if pin.is_broken() {
        return Err(Error::Compacted);
    }
    Ok(HashKvSum {
        hash: sum.finish(),
        hash_revision: Revision(at),
        compact_revision: Revision(compacted),
        current_revision: Revision(current),
    })
}

/// The records at or below `compacted` of the pairs live at `at`, and whether any pair is live then.
fn live_below(inner: &Inner, at: i64, compacted: i64) -> (Vec<RecordKey>, bool) {
    let everything = Interval::new(b"\0", b"\0");
    let mut keep = Vec::new();
    let mut any_live = false;
    let mut after: Option<Box<[u8]>> = None;
    loop {
        let state = inner.state.read();
        let mut last: Option<&[u8]> = None;
        let mut seen = 0;
        let mut look = |key, entry: &crate::mvcc::entry::KeyEntry| {
            seen += 1;
            last = Some(key);
            if let Some(live) = entry.live_at(at) {
                any_live = true;
                if live.record.main <= compacted {
                    keep.push(live.record);
                }
            }
        };
        match &after {
            None => state
                .index
                .range(everything)
                .take(KEYS_PER_STEP)
                .for_each(|(k, e)| look(k, e)),
            Some(after) => {
                let rest = state.index.range_after(everything, after);
                rest.take(KEYS_PER_STEP).for_each(|(k, e)| look(k, e));
            }
        }
        if seen < KEYS_PER_STEP {
            return (keep, any_live);
        }
        after = last.map(Into::into);
    }
}

/// A sum over records and tables of the engine and what it has not got yet; for tests.
pub(crate) fn hash(inner: &Inner) -> Result<u32, Error> {
    let (everything, rows) = {
        let state = inner.state.read();
        let rows: Result<Vec<_>, _> = Table::ALL
            .iter()
            .map(|table| state.view.rows(*table))
            .collect();
        (Everything::take(&state, state.revision), rows)
    };
    let mut sum = 0;
    let visited = everything.visit(|key, value| {
        sum = crc32c::crc32c_append(sum, &key.to_bytes());
        sum = crc32c::crc32c_append(sum, value);
    });
    inner.lose(visited).map_err(|_| Error::Stopped)?;
    let rows = inner
        .lose(rows.map_err(Fatal::from))
        .map_err(|_| Error::Stopped)?;
    for (key, value) in rows.iter().flatten() {
        sum = crc32c::crc32c_append(sum, key);
        sum = crc32c::crc32c_append(sum, value);
    }
    Ok(sum)
}
