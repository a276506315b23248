//! Room `sim`: the executor: one thread, virtual nanoseconds, tasks that belong to nodes.
//!
//! [`World`] holds what all nodes share: time, tasks, timers, the nodes' states, the trace. It is reached
//! through `Arc`s from wakers, clocks, disks and networks; its lock is never held while foreign code (a poll,
//! a drop of a future, a lane's step) runs, because that code calls back.
//!
//! - A task runs only while its node lives in the incarnation that started it and is not paused.
//! - Time moves only when no task can run; then it jumps to the next timer.
//! - Which runnable task is next is drawn from the seed.
//!
//! It knows nothing of what nodes do; crashes of disks and breaks of streams are told to it as events.

pub(crate) mod clock;
pub(crate) mod nodes;
pub(crate) mod run;
pub(crate) mod spawn;
pub(crate) mod tasks;
pub(crate) mod timers;

use crate::NodeId;
use crate::chronicle::{Chronicle, What};
use crate::rng::SimRng;
use crate::trace::{Kind, Trace};
use nodes::NodeState;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tasks::{Queue, TaskEntry, TaskId};
use tenon_env::sync::watch;
use timers::Timers;

/// A node in one of its lives. Handles of an earlier life are dead for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life {
    pub(crate) node: NodeId,
    pub(crate) number: u64,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) core: Mutex<Core>,
    pub(crate) queue: Arc<Queue>,
    /// Goes up at every death.
    deaths: watch::Sender<u64>,
    chronicle: Mutex<Chronicle>,
    /// Told of every death, outside every lock.
    told: OnceLock<Box<dyn Fn(Life) + Send + Sync>>,
}

pub(crate) struct Core {
    /// Nanoseconds since the start of the simulation.
    pub(crate) now: u64,
    pub(crate) trace: Trace,
    pub(crate) choice: SimRng,
    pub(crate) tasks: BTreeMap<TaskId, TaskEntry>,
    pub(crate) next_task: u64,
    pub(crate) timers: Timers,
    pub(crate) nodes: BTreeMap<NodeId, NodeState>,
    /// Lives that ended during a poll; their tasks are dropped right after it.
    pub(crate) to_reap: Vec<Life>,
    /// How often a node looked at its clock during the present turn.
    pub(crate) looks: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<World> {
        let core = Core {
            now: 0,
            trace: Trace::default(),
            choice: SimRng::fork(seed, "choice", 0),
            tasks: BTreeMap::new(),
            next_task: 1,
            timers: Timers::default(),
            nodes: BTreeMap::new(),
            to_reap: Vec::new(),
            looks: 0,
        };
        Arc::new(World {
            seed,
            core: Mutex::new(core),
            queue: Arc::new(Queue::default()),
            deaths: watch::Sender::new(0),
            chronicle: Mutex::default(),
            told: OnceLock::new(),
        })
    }

    /// Has `tell` called at every death from now on. Once.
    pub(crate) fn on_death(&self, tell: Box<dyn Fn(Life) + Send + Sync>) {
        assert!(self.told.set(tell).is_ok(), "told once only");
    }

    /// Changes at every death.
    pub(crate) fn deaths(&self) -> watch::Receiver<u64> {
        self.deaths.subscribe()
    }

    pub(crate) fn now(&self) -> u64 {
        self.core.lock().now
    }

    pub(crate) fn note(&self, kind: Kind, words: &[u64]) {
        self.core.lock().trace.event(kind, words);
    }

    /// Notes for people what happens now.
    pub(crate) fn tell(&self, what: What) {
        self.chronicle.lock().tell(self.now(), what);
    }

    pub(crate) fn chronicle(&self) -> Chronicle {
        self.chronicle.lock().clone()
    }

    pub(crate) fn is_alive(&self, life: Life) -> bool {
        self.core.lock().is_alive(life)
    }
}

impl Core {
    pub(crate) fn is_alive(&self, life: Life) -> bool {
        self.nodes
            .get(&life.node)
            .is_some_and(|n| n.alive && n.life == life.number)
    }
}
