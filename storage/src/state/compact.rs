//! Room storage, state: the sweep after a compaction. One task, its steps on the compaction lane, each
//! holding the lock for some thousand keys only, so that neither reads nor writes stop.
//!
//! A sweep walks the index once, lets go of what compaction passed and queues the records for removal
//! from the engine; the drain takes them there in batches, together with whatever else it writes. A
//! restart finds `swept < compacted` and sweeps again: nothing needs to be remembered in between.

use super::core::Inner;
use super::flush::BATCH_REMOVALS_MAX;
use super::pending::Removal;
use crate::mvcc::index::Swept;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::Lane;
use tenon_proto::ids::Revision;

/// How often a sweep looks whether older reads have ended.
const PIN_RETRY: Duration = Duration::from_millis(100);
/// Removals queued at which the sweep waits for the drain.
const REMOVALS_MAX: usize = 4 * BATCH_REMOVALS_MAX;

/// The task: sweeps whenever a compaction is ahead of the last sweep.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut done = inner.state.read().swept;
    let mut stopping = inner.stopping.subscribe();
    loop {
        let woken = pin!(inner.compact.notified());
        if *stopping.borrow_and_update() || inner.is_lost() {
            return;
        }
        let (at, by) = {
            let state = inner.state.read();
            (state.compacted, state.compacted_by)
        };
        if at <= done {
            select(woken, pin!(stopping.changed())).await;
            continue;
        }
        if !sweep(&inner, at, by).await {
            return;
        }
        done = at;
    }
}

/// Sleeps; false when the store stops meanwhile.
async fn pause(inner: &Inner, time: Duration) -> bool {
    let mut stopping = inner.stopping.subscribe();
    if *stopping.borrow_and_update() || inner.is_lost() {
        return false;
    }
    let sleep = inner.env.sleep(time);
    matches!(
        select(sleep, pin!(stopping.changed())).await,
        Either::Left(_)
    )
}

/// Sweeps the index at `at`, compacted by entry `by`. False when the store stops meanwhile.
async fn sweep(inner: &Arc<Inner>, at: i64, by: u64) -> bool {
    while inner.pins.hold_up(at, inner.env.now()) {
        let released = pin!(inner.pins.released());
        let mut stopping = inner.stopping.subscribe();
        if *stopping.borrow_and_update() {
            return false;
        }
        let retry = inner.env.sleep(PIN_RETRY);
        select(select(released, retry), pin!(stopping.changed())).await;
    }
    let mut after: Option<Box<[u8]>> = None;
    loop {
        while inner.state.read().pending.removals() > REMOVALS_MAX {
            if !pause(inner, inner.options.drain_interval).await {
                return false;
            }
        }
        let sweeper = inner.clone();
        let step = move || step(&sweeper, after.as_deref(), at, by);
        match inner.env.blocking(Lane::Compaction, step).await {
            Ok(Swept::Until(key)) => after = Some(key),
            Ok(Swept::All) => break,
            Err(_gone) => return false,
        }
        if !pause(inner, inner.options.sweep_pause).await {
            return false;
        }
    }
    inner.state.write().pending.finish_sweep(at);
    let wall_s = inner.env.clock.wall_ms() / 1000;
    inner.measures.compaction_ended(wall_s);
    inner.wake_flusher(0);
    true
}

/// One step under the lock. Blocking, short.
pub(crate) fn step(inner: &Inner, after: Option<&[u8]>, at: i64, by: u64) -> Swept {
    let (mut removed, keys) = (Vec::new(), inner.options.sweep_keys.max(1));
    let mut state = inner.state.write();
    let swept = state.index.sweep(after, keys, at, |key| removed.push(key));
    inner.measures.compacted(removed.len());
    let removals = removed.into_iter().map(|key| Removal { key, after: by });
    state.pending.push_removals(removals);
    drop(state);
    inner.wake_flusher(0);
    swept
}

impl Inner {
    /// Waits until the compaction at `revision` is removed from the engine of this member; returns at
    /// once for a lost or stopped store.
    pub(crate) async fn wait_swept(&self, revision: i64) {
        let mut swept = self.swept.subscribe();
        let mut fatal = self.fatal.subscribe();
        let mut stopping = self.stopping.subscribe();
        let done = pin!(swept.wait_for(|swept| *swept >= Revision(revision)));
        let lost = pin!(fatal.wait_for(Option::is_some));
        let stopped = pin!(stopping.wait_for(|stop| *stop));
        select(done, select(lost, stopped)).await;
    }
}
