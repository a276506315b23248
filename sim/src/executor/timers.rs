//! Room `sim`: timers in virtual time: sleeps of tasks and events of the simulated world itself.

use super::{Life, World};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// When a timer fires, and its place among those of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    pub(crate) at: u64,
    seq: u64,
}

pub(crate) type Action = Box<dyn FnOnce() + Send>;

pub(crate) enum Timer {
    /// Wakes a sleeper.
    Wake(Waker),
    /// Runs an action of the world; with a life only while that life lasts, and postponed by its pause.
    Run(Option<Life>, Action),
}

#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeMap<TimerKey, Timer>,
    next: u64,
}

impl Timers {
    pub(crate) fn add(&mut self, at: u64, timer: Timer) -> TimerKey {
        self.next += 1;
        let key = TimerKey { at, seq: self.next };
        self.queue.insert(key, timer);
        key
    }

    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<Timer> {
        self.queue.remove(&key)
    }

    /// Sets the waker of a timer that has not fired; false when it has.
    pub(crate) fn rearm(&mut self, key: TimerKey, waker: &Waker) -> bool {
        match self.queue.get_mut(&key) {
            Some(Timer::Wake(held)) => {
                held.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.queue.keys().next().map(|k| k.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(TimerKey, Timer)> {
        self.queue.pop_first()
    }

    /// Everything that waits, for a drop outside the world's lock.
    pub(crate) fn take_all(&mut self) -> BTreeMap<TimerKey, Timer> {
        std::mem::take(&mut self.queue)
    }

    /// The actions of a life that is over.
    pub(crate) fn take_of(&mut self, life: Life) -> Vec<Timer> {
        let is_its = |t: &Timer| matches!(t, Timer::Run(Some(l), _) if *l == life);
        let keys: Vec<_> = self
            .queue
            .iter()
            .filter(|(_, t)| is_its(t))
            .map(|(k, _)| *k)
            .collect();
        keys.into_iter()
            .filter_map(|k| self.queue.remove(&k))
            .collect()
    }
}

impl World {
    /// Runs `action` after `delay` nanoseconds.
    pub(crate) fn after(&self, delay: u64, life: Option<Life>, action: Action) {
        let mut core = self.core.lock();
        let at = core.now.saturating_add(delay);
        core.timers.add(at, Timer::Run(life, action));
    }
}

/// Sleeps until a moment of the world's own time.
pub(crate) struct WorldSleep {
    world: Arc<World>,
    at: u64,
    key: Option<TimerKey>,
}

impl WorldSleep {
    pub(crate) fn new(world: Arc<World>, at: u64) -> WorldSleep {
        WorldSleep {
            world,
            at,
            key: None,
        }
    }
}

impl Future for WorldSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut core = this.world.core.lock();
        if core.now >= this.at {
            return Poll::Ready(());
        }
        if !this
            .key
            .is_some_and(|key| core.timers.rearm(key, cx.waker()))
        {
            this.key = Some(core.timers.add(this.at, Timer::Wake(cx.waker().clone())));
        }
        Poll::Pending
    }
}

impl Drop for WorldSleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let timer = self.world.core.lock().timers.remove(key);
            drop(timer);
        }
    }
}
