//! Room `sim`: a node's clocks over the world's time: an origin of its own, drift, jumps, and wall time apart.
//!
//! - Monotonic time never goes back: a jump is forward, a change of rate starts from the time shown.
//! - A sleep is kept in the node's own time; when the clock changes, the node's sleepers are woken and
//!   count anew.

use super::timers::{Timer, TimerKey};
use super::{Life, World};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tenon_env::{BoxFuture, Clock, Instant};

const BILLION: i128 = 1_000_000_000;

/// How a node's clocks follow the world's time.
#[derive(Clone, Debug)]
pub(crate) struct NodeTime {
    world_base: u64,
    local_base: u64,
    /// Nanoseconds gained per second of the world; negative when slow.
    drift_ppb: i64,
    /// Wall time minus world time.
    pub(crate) wall_offset_ms: i64,
    /// Goes up at every change, so that sleepers know to count anew.
    changes: u64,
}

/// Wall time at the start of the world: a fixed day, so that traces repeat.
const WALL_ORIGIN_MS: i64 = 1_750_000_000_000;

impl NodeTime {
    pub(crate) fn new(now: u64, origin: u64) -> NodeTime {
        NodeTime {
            world_base: now,
            local_base: origin,
            drift_ppb: 0,
            wall_offset_ms: 0,
            changes: 0,
        }
    }

    pub(crate) fn local(&self, now: u64) -> u64 {
        let passed = i128::from(now.saturating_sub(self.world_base));
        let local =
            i128::from(self.local_base) + passed * (BILLION + i128::from(self.drift_ppb)) / BILLION;
        u64::try_from(local).unwrap_or(u64::MAX)
    }

    /// The first moment of the world at which this clock shows at least `local`.
    fn world(&self, local: u64) -> u64 {
        let left = i128::from(local.saturating_sub(self.local_base));
        let rate = BILLION + i128::from(self.drift_ppb);
        let passed = (left * BILLION + rate - 1) / rate;
        self.world_base
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(crate) fn wall_ms(&self, now: u64) -> u64 {
        let ms = WALL_ORIGIN_MS + (now / 1_000_000) as i64 + self.wall_offset_ms;
        u64::try_from(ms).unwrap_or(0)
    }

    fn rebase(&mut self, now: u64) {
        self.local_base = self.local(now);
        self.world_base = now;
        self.changes += 1;
    }

    pub(crate) fn set_drift(&mut self, now: u64, ppb: i64) {
        assert!(
            i128::from(ppb) > -BILLION / 2,
            "a clock may not stand still or go back"
        );
        self.rebase(now);
        self.drift_ppb = ppb;
    }

    pub(crate) fn jump(&mut self, now: u64, forward: u64) {
        self.rebase(now);
        self.local_base = self.local_base.saturating_add(forward);
    }
}

/// Whoever looks at a clock so often within one turn waits for it to move, which it never does during a turn.
const LOOKS_MAX: u64 = 5_000_000;

/// The clocks of one node's life.
pub(crate) struct SimClock {
    pub(crate) world: Arc<World>,
    pub(crate) life: Life,
}

impl SimClock {
    fn read<T>(&self, f: impl FnOnce(&NodeTime, u64) -> T) -> T {
        let mut core = self.world.core.lock();
        core.looks += 1;
        assert!(
            core.looks < LOOKS_MAX,
            "busy loop: {} looked at its clock {LOOKS_MAX} times in one turn",
            self.life.node
        );
        f(&core.nodes[&self.life.node].time, core.now)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.read(|time, now| Instant(time.local(now)))
    }

    fn wall_ms(&self) -> u64 {
        self.read(NodeTime::wall_ms)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let (world, life) = (self.world.clone(), self.life);
        Box::pin(NodeSleep {
            world,
            life,
            deadline: deadline.0,
            key: None,
            changes: 0,
        })
    }
}

struct NodeSleep {
    world: Arc<World>,
    life: Life,
    deadline: u64,
    key: Option<TimerKey>,
    changes: u64,
}

impl Future for NodeSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut guard = this.world.core.lock();
        let core = &mut *guard;
        let time = &core.nodes[&this.life.node].time;
        if time.local(core.now) >= this.deadline {
            return Poll::Ready(());
        }
        let kept = time.changes == this.changes
            && this
                .key
                .is_some_and(|key| core.timers.rearm(key, cx.waker()));
        if !kept {
            let old = this.key.and_then(|key| core.timers.remove(key));
            let at = time.world(this.deadline).max(core.now + 1);
            this.changes = time.changes;
            this.key = Some(core.timers.add(at, Timer::Wake(cx.waker().clone())));
            drop(guard);
            drop(old);
        }
        Poll::Pending
    }
}

impl Drop for NodeSleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let timer = self.world.core.lock().timers.remove(key);
            drop(timer);
        }
    }
}
