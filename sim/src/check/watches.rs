//! Checker: a watcher is told exactly its part of the timeline: no gap, no repeat, no event too early, each
//! revision whole.

use super::model::contains;
use super::timeline::Timeline;
use super::{Verdict, require};
use bytes::Bytes;
use tenon_proto::mvccpb::Event;

/// What one watch was told between its start and its end.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Interval as in etcd.
    pub key: Bytes,
    /// Its end.
    pub range_end: Bytes,
    /// First revision it was to be told.
    pub first: i64,
    /// Last revision it must have been told of; later ones it may.
    pub last: i64,
    /// Events in the order told, previous versions left out.
    pub events: Vec<Event>,
    /// Every word of progress: the revision up to which all was told, and how many events had been told then.
    pub progress: Vec<(i64, usize)>,
}

/// Checks one watch.
pub fn check(watched: &Watched, timeline: &Timeline) -> Verdict {
    let told_last = watched
        .events
        .last()
        .and_then(|e| e.kv.as_ref())
        .map_or(0, |kv| kv.mod_revision);
    let upto = watched.last.max(told_last);
    let inside = |event: &&Event| {
        let kv = event.kv.as_ref();
        kv.is_some_and(|kv| contains(&watched.key, &watched.range_end, &kv.key))
    };
    let expected: Vec<Event> = timeline
        .range(watched.first, upto)
        .flat_map(|(_, events)| events.iter().filter(inside))
        .map(|event| Event {
            prev_kv: None,
            ..event.clone()
        })
        .collect();
    early_progress(watched, &expected)?;
    let same = expected
        .iter()
        .zip(&watched.events)
        .take_while(|(a, b)| a == b)
        .count();
    require(
        expected.len() == same && watched.events.len() == same,
        || {
            format!(
                "a watch of {:?}..{:?} from {} to {upto} was told {} events, expected {}; they part at \
             number {same}: told {:?}, expected {:?}",
                watched.key,
                watched.range_end,
                watched.first,
                watched.events.len(),
                expected.len(),
                watched.events.get(same),
                expected.get(same)
            )
        },
    )
}

/// Progress up to a revision comes after every event up to it.
fn early_progress(watched: &Watched, expected: &[Event]) -> Verdict {
    let at = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    for (revision, told) in &watched.progress {
        let due = expected.iter().take_while(|e| at(e) <= *revision).count();
        require(due <= *told, || {
            format!(
                "a watch of {:?}..{:?} heard of progress to {revision} after {told} events, {due} were due",
                watched.key, watched.range_end
            )
        })?;
    }
    Ok(())
}
