//! Room storage, state: the drain of applied entries into the engine. One task, its blocking steps on
//! the engine's lane.
//!
//! A drain takes a consistent cut by log index, never beyond what the WAL has flushed: an engine ahead
//! of its WAL would look like a corrupt store after a power cut.
//!
//! ```text
//! physically purged ≤ engine durable (E) ≤ engine ≤ WAL-flushed,   engine ≤ applied
//! ```
//!
//! For an engine whose commits are durable E is where its content stands; for one that keeps nothing, it is
//! the newest checkpoint's position ([`super::checkpoint`]).
//!
//! When the disk refuses the engine's writes the batch waits, reads go on, and the drain is tried again
//! every second; [`super::Store::room`] then holds up whoever applies. A failed sync ends the store.

use super::core::{Inner, State};
use super::pending::Cut;
use super::rows::{self, PositionRow};
use super::store::Fatal;
use crate::engine::{Batch, Durability, EngineError};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::Lane;
use tenon_proto::ids::{LogIndex, Revision};

/// Most bytes of one batch.
const BATCH_BYTES_MAX: u64 = 32 << 20;
/// Most removals of one batch.
pub(crate) const BATCH_REMOVALS_MAX: usize = 10_000;
/// How often a stalled engine is tried again.
const STALL_RETRY: Duration = Duration::from_secs(1);

/// How a drain went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Something became durable.
    Some,
    /// There was nothing to do.
    Nothing,
}

/// The task: drains until the store stops, then once more to the end.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut stopping = inner.stopping.subscribe();
    loop {
        let stop = *stopping.borrow_and_update();
        if inner.is_lost() {
            return;
        }
        if !stop {
            wait_for_work(&inner).await;
        }
        let drainer = inner.clone();
        match inner
            .env
            .blocking(Lane::Engine, move || drain(&drainer))
            .await
        {
            Ok(Ok(Drained::Nothing)) if stop => return,
            Ok(Ok(_)) => {}
            Ok(Err(EngineError::Stalled(cause))) => {
                if !settle(&inner, cause).await {
                    return;
                }
            }
            Ok(Err(lost)) => {
                inner.give_up(lost.into());
                return;
            }
            Err(_gone) => return,
        }
    }
}

/// Waits until there is something to drain, and then until enough has gathered.
async fn wait_for_work(inner: &Inner) {
    let mut stopping = inner.stopping.subscribe();
    loop {
        let work = pin!(inner.work.notified());
        if *stopping.borrow_and_update() || has_work(inner) {
            break;
        }
        select(work, pin!(stopping.changed())).await;
    }
    let interval = inner.env.sleep(inner.options.drain_interval);
    let urgent = pin!(inner.urgent.notified());
    if *stopping.borrow_and_update() || is_urgent(inner) {
        return;
    }
    select(select(urgent, interval), pin!(stopping.changed())).await;
}

fn has_work(inner: &Inner) -> bool {
    let state = inner.state.read();
    let at = state.engine_mark.map_or(0, |mark| mark.id.index);
    state.pending.has_work(inner.flushed(), at)
}

fn is_urgent(inner: &Inner) -> bool {
    inner.state.read().undrained_bytes() >= inner.options.drain_bytes
}

/// Keeps trying a stalled commit. False when the store is lost or stopping.
async fn settle(inner: &Arc<Inner>, cause: std::io::Error) -> bool {
    tracing::error!(error = %cause, "the storage engine cannot write; reads go on, \
        writes go on until the memory for them is full");
    let mut stopping = inner.stopping.subscribe();
    loop {
        let retry = inner.env.sleep(STALL_RETRY);
        if *stopping.borrow_and_update() {
            return false;
        }
        if let Either::Right(_) = select(retry, pin!(stopping.changed())).await {
            return false;
        }
        let settler = inner.clone();
        let step = move || {
            let _gate = settler.drain_gate.lock();
            settler.engine().settle()?;
            // A snapshot taken over meanwhile leaves nothing of it.
            match settler.stalled.lock().take() {
                Some(cut) => finish(&settler, &cut),
                None => Ok(()),
            }
        };
        match inner.env.blocking(Lane::Engine, step).await {
            Ok(Ok(())) => {
                tracing::info!("the storage engine writes again");
                return true;
            }
            Ok(Err(EngineError::Stalled(_))) => {}
            Ok(Err(lost)) => {
                inner.give_up(lost.into());
                return false;
            }
            Err(_gone) => return false,
        }
    }
}

/// One drain. Blocking; called from the engine's lane only.
pub(crate) fn drain(inner: &Inner) -> Result<Drained, EngineError> {
    if inner.is_lost() {
        return Ok(Drained::Nothing);
    }
    let _gate = inner.drain_gate.lock();
    let flushed = inner.flushed();
    let (cut, batch) = {
        let state = inner.state.read();
        let at = state.engine_mark;
        let Some(cut) = state
            .pending
            .cut(flushed, at, BATCH_BYTES_MAX, BATCH_REMOVALS_MAX)
        else {
            return Ok(Drained::Nothing);
        };
        check_order(&state, &cut, flushed);
        (cut, batch_of(&state, &cut))
    };
    let began = inner.env.now();
    let committed = inner.engine().commit(&batch);
    inner.measures.commits.observe(inner.env.now() - began);
    match committed {
        Ok(()) => {}
        Err(stalled @ EngineError::Stalled(_)) => {
            *inner.stalled.lock() = Some(cut);
            return Err(stalled);
        }
        Err(other) => return Err(other),
    }
    finish(inner, &cut)?;
    Ok(Drained::Some)
}

/// The order of positions, asserted at every batch.
fn check_order(state: &State, cut: &Cut, flushed: u64) {
    let to = cut.mark.id.index;
    let from = state.engine_mark.map_or(0, |mark| mark.id.index);
    let applied = state.applied.map_or(0, |id| id.index);
    assert!(from <= to, "the engine never goes back: at {from}, to {to}");
    assert!(
        to <= flushed || to == from,
        "engine {to} would pass the flushed WAL {flushed}"
    );
    assert!(
        to <= applied,
        "engine {to} would pass the applied index {applied}"
    );
    assert!(
        cut.mark.compacted <= cut.mark.revision,
        "compaction is never ahead"
    );
}

fn batch_of(state: &State, cut: &Cut) -> Batch {
    let records = state
        .recent
        .undrained(State::after(cut.mark.revision))
        .cloned()
        .collect();
    let removed = state.pending.removals_of(cut).collect();
    let swept = cut.swept.unwrap_or(-1).max(state.swept);
    let position = rows::position(&PositionRow {
        applied: Some(cut.mark.id),
        revision: cut.mark.revision,
        compacted_next: cut.mark.compacted + 1,
        swept_next: swept + 1,
    });
    let rows = state
        .pending
        .rows_of(cut)
        .cloned()
        .chain([position])
        .collect();
    Batch {
        records,
        removed,
        rows,
    }
}

/// After a commit: the memory learns what the engine has.
fn finish(inner: &Inner, cut: &Cut) -> Result<(), EngineError> {
    let view = inner.engine().view()?;
    let (gone, old_view) = {
        let mut state = inner.state.write();
        state.in_view = State::after(cut.mark.revision);
        let end = state.in_view;
        let gone = state.recent.drain(end);
        state.pending.drop_cut(cut);
        state.engine_mark = Some(cut.mark);
        if let Some(swept) = cut.swept {
            state.swept = swept.max(state.swept);
        }
        (gone, std::mem::replace(&mut state.view, view))
    };
    drop(gone);
    drop(old_view);
    match inner.engine().durability() {
        Durability::Commit => {
            inner.durable.send_replace(LogIndex(cut.mark.id.index));
        }
        Durability::Checkpoint => inner.checkpoint.count(cut.bytes),
    }
    if let Some(swept) = cut.swept {
        inner
            .swept
            .send_modify(|known| *known = Revision(swept).max(*known));
    }
    inner.drained.notify_waiters();
    Ok(())
}

impl Inner {
    /// Wakes the flusher after something was applied or flushed.
    pub(crate) fn wake_flusher(&self, undrained: usize) {
        self.work.notify_one();
        if undrained >= self.options.drain_bytes {
            self.urgent.notify_one();
        }
    }

    /// Waits while more is undrained than the options allow; returns at once for a lost store.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let drained = pin!(self.drained.notified());
            let undrained = self.state.read().undrained_bytes();
            if undrained <= self.options.undrained_bytes_max || self.is_lost() {
                return;
            }
            self.wake_flusher(undrained);
            drained.await;
        }
    }

    /// Waits until what is applied now is in the engine; returns at once for a lost or stopped store.
    pub(crate) async fn wait_drained(&self) {
        let target = self.state.read().applied.map_or(0, |id| id.index);
        let mut stopping = self.stopping.subscribe();
        loop {
            let drained = pin!(self.drained.notified());
            let at = self
                .state
                .read()
                .engine_mark
                .map_or(0, |mark| mark.id.index);
            if at >= target || self.is_lost() || *stopping.borrow_and_update() {
                return;
            }
            self.work.notify_one();
            self.urgent.notify_one();
            select(drained, pin!(stopping.changed())).await;
        }
    }

    /// Turns an engine's error on the read path into the end of the store.
    pub(crate) fn lose<T>(&self, result: Result<T, Fatal>) -> Result<T, Fatal> {
        // A store that is being shut down has closed its engine on purpose.
        let stopping = *self.stopping.borrow();
        result.map_err(|reason| {
            if stopping {
                reason
            } else {
                self.give_up(reason)
            }
        })
    }
}
