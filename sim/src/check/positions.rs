//! Checker: the order of a member's positions in the log (DESIGN §5), at any moment between two turns:
//! `physically purged ≤ engine durable ≤ log flushed`, `engine durable ≤ applied ≤ committed`; nothing durable
//! goes back over a restart. A member that took a snapshot over stands ahead of its log until that is reset to
//! the snapshot, which is the next step.

use super::{Verdict, require};
use tenon_server::member::Member;

/// Positions of a member that no crash may take back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The storage engine's.
    pub engine: u64,
    /// The log's purge.
    pub purged: u64,
}

/// Looks at a running member; `before` is what an earlier look or life found.
pub fn check(member: &Member, before: &mut Durable) -> Verdict {
    let context = &member.services().context;
    let (wal, store) = (member.wal(), context.store());
    let purged = wal.log_state().0.map_or(0, |id| id.index);
    let flushed = wal.flushed().get();
    let engine = store.engine_durable().get();
    let applied = store.applied().map_or(0, |id| id.index);
    let committed = context.status().committed.get();
    let positions = format!(
        "purged {purged}, engine {engine}, flushed {flushed}, applied {applied}, committed {committed}"
    );
    let last = wal.log_state().1.map_or(0, |id| id.index);
    let resetting = purged == last && flushed < purged;
    let ahead = engine > last || resetting;
    require(purged <= engine && (engine <= flushed || ahead), || {
        positions.clone()
    })?;
    require(engine <= applied && (applied <= committed || ahead), || {
        positions.clone()
    })?;
    require(engine >= before.engine && purged >= before.purged, || {
        format!("{positions}; before: {before:?}")
    })?;
    *before = Durable { engine, purged };
    Ok(())
}
