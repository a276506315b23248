//! Room `sim`: the loop that runs tasks and moves time.

use super::tasks::{DRIVER, TaskId};
use super::timers::Timer;
use super::{Life, World};
use crate::trace::Kind;
use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Nothing can run and no timer is left, but the awaited future is not done. Names the tasks that wait.
    Deadlock(Vec<String>),
    /// Tasks ran over and over while time hardly moved. Names the task that ran most, and the number of turns.
    BusyLoop(String, u64),
    /// A promise that is checked at every turn does not hold; what it says.
    Violated(String),
    /// The run took longer than its limit, in nanoseconds of the simulated world.
    TimeLimit(u64),
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stuck::Deadlock(waiting) => {
                write!(
                    f,
                    "deadlock: nothing can run and no timer is set; waiting: {waiting:?}"
                )
            }
            Stuck::BusyLoop(task, polls) => {
                write!(
                    f,
                    "busy loop: {polls} turns while time hardly moved, most by {task}"
                )
            }
            Stuck::Violated(what) => f.write_str(what),
            Stuck::TimeLimit(ns) => write!(f, "not done after {ns} simulated nanoseconds"),
        }
    }
}

impl std::error::Error for Stuck {}

/// What becomes of a panic in a task of a living node. In a node that died during the same turn it is
/// nothing: a dead process cannot panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPanic {
    /// It is a bug: the run ends with it.
    Fail,
    /// The task ends, as in a runtime that catches panics.
    EndTask,
}

/// Bounds of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Simulated nanoseconds.
    pub(crate) time: u64,
    /// Turns within `CRAWL` nanoseconds.
    pub(crate) turns: u64,
    pub(crate) on_panic: OnPanic,
}

/// A loop that lets time move by less than this, in nanoseconds, is busy all the same.
const CRAWL: u64 = 100_000;

#[derive(Default)]
struct Turns {
    since: u64,
    since_move: u64,
    by_task: BTreeMap<TaskId, u64>,
}

/// Runs until the driver is done. `holds` is asked after every turn.
pub(crate) fn run<F: Future>(
    world: &Arc<World>,
    limits: Limits,
    mut driver: Pin<&mut F>,
    holds: &mut dyn FnMut() -> Result<(), String>,
) -> Result<F::Output, Stuck> {
    let driver_waker = world.waker(DRIVER);
    let end = world.now().saturating_add(limits.time);
    let mut turns = Turns::default();
    world.queue.push(DRIVER);
    loop {
        world.reap();
        let mut core = world.core.lock();
        let choice = &mut core.choice;
        let Some(id) = world.queue.take(|n| choice.below(n)) else {
            let moved = core.timers.next_at();
            drop(core);
            match moved {
                Some(at) if at > end => return Err(Stuck::TimeLimit(limits.time)),
                Some(_) => {
                    world.fire();
                    turns.moved(world.now());
                    continue;
                }
                None => return Err(Stuck::Deadlock(world.waiting())),
            }
        };
        drop(core);
        turns.count(world, limits, id)?;
        if id == DRIVER {
            world.note(Kind::Poll, &[0]);
            let out = driver
                .as_mut()
                .poll(&mut Context::from_waker(&driver_waker));
            if let Poll::Ready(out) = out {
                world.reap();
                holds().map_err(Stuck::Violated)?;
                return Ok(out);
            }
        } else {
            world.turn(id, limits.on_panic);
        }
        holds().map_err(Stuck::Violated)?;
    }
}

impl Turns {
    fn moved(&mut self, now: u64) {
        if now.saturating_sub(self.since) >= CRAWL {
            *self = Turns {
                since: now,
                ..Turns::default()
            };
        }
    }

    fn count(&mut self, world: &World, limits: Limits, id: TaskId) -> Result<(), Stuck> {
        self.since_move += 1;
        if self.since_move <= limits.turns / 2 {
            return Ok(());
        }
        *self.by_task.entry(id).or_default() += 1;
        if self.since_move <= limits.turns {
            return Ok(());
        }
        let most = self
            .by_task
            .iter()
            .max_by_key(|(_, n)| **n)
            .map_or(id, |(id, _)| *id);
        Err(Stuck::BusyLoop(world.task_name(most), self.since_move))
    }
}

impl World {
    /// Fires the next timer, moving time to it.
    fn fire(&self) {
        let mut core = self.core.lock();
        let Some((key, timer)) = core.timers.pop() else {
            return;
        };
        core.now = core.now.max(key.at);
        match timer {
            Timer::Wake(waker) => {
                core.trace.event(Kind::Timer, &[key.at]);
                drop(core);
                waker.wake();
            }
            Timer::Run(Some(life), action) if core.is_paused(life.node) => {
                core.park_action(life.node, action);
            }
            Timer::Run(life, action) => {
                core.trace.event(Kind::Event, &[key.at]);
                let lasts = life.is_none_or(|l| core.is_alive(l));
                drop(core);
                match life {
                    _ if !lasts => drop(action),
                    Some(life) => self.guard_dead(life, OnPanic::Fail, action),
                    None => action(),
                }
            }
        }
    }

    /// One turn of a task.
    fn turn(&self, id: TaskId, on_panic: OnPanic) {
        let mut core = self.core.lock();
        let Some(task) = core.tasks.get_mut(&id) else {
            return;
        };
        let (life, waker) = (task.life, task.waker.clone());
        if task.aborted {
            let task = core.tasks.remove(&id);
            drop(core);
            self.guard_dead(life, on_panic, || drop(task));
            return;
        }
        if core.is_paused(life.node) {
            core.park_task(life.node, id);
            return;
        }
        let task = core.tasks.get_mut(&id).expect("present");
        // A task that wakes itself while it is polled comes back here with its future in place.
        let Some(mut future) = task.future.take() else {
            return;
        };
        core.trace.event(Kind::Poll, &[id.0]);
        core.looks = 0;
        drop(core);
        let mut done = true;
        self.guard_dead(life, on_panic, || {
            done = future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready();
        });
        let mut core = self.core.lock();
        let ended = match core.tasks.get_mut(&id) {
            Some(task) if !done => {
                task.future = Some(future);
                return;
            }
            Some(_) => core.tasks.remove(&id),
            None => None,
        };
        drop(core);
        self.guard_dead(life, on_panic, || drop((future, ended)));
    }

    /// Runs a node's code; a panic counts only when the node still lives.
    fn guard_dead(&self, life: Life, on_panic: OnPanic, code: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(code)) else {
            return;
        };
        if !self.is_alive(life) {
            return;
        }
        if on_panic == OnPanic::Fail {
            eprintln!(
                "seed {}: {} panicked at {} ns: {}",
                self.seed,
                life.node,
                self.now(),
                panic_text(&*panic)
            );
            resume_unwind(panic);
        }
    }

    fn task_name(&self, id: TaskId) -> String {
        let core = self.core.lock();
        match core.tasks.get(&id) {
            Some(task) => format!("{} {}", task.life.node, task.name),
            None if id == DRIVER => "the driver".to_owned(),
            None => format!("task {}", id.0),
        }
    }

    fn waiting(&self) -> Vec<String> {
        let core = self.core.lock();
        core.tasks
            .values()
            .map(|t| format!("{} {}", t.life.node, t.name))
            .collect()
    }

    /// Drops every task and timer; for the end of the simulation.
    pub(crate) fn clear(&self) {
        loop {
            self.reap();
            let mut core = self.core.lock();
            core.nodes.values_mut().for_each(|n| n.alive = false);
            let tasks = std::mem::take(&mut core.tasks);
            let timers = core.timers.take_all();
            let lanes: Vec<_> = core
                .nodes
                .values_mut()
                .map(|n| std::mem::take(&mut n.lanes))
                .collect();
            drop(core);
            if tasks.is_empty() && timers.is_empty() {
                break;
            }
            drop((tasks, timers, lanes));
        }
        self.queue.clear();
    }
}

/// The text of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => panic
            .downcast_ref::<&str>()
            .map_or("no text".to_owned(), |t| (*t).to_owned()),
    }
}
