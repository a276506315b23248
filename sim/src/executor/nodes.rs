//! Room `sim`: the nodes' lives: start, kill, pause, and what is dropped then.

use super::clock::NodeTime;
use super::tasks::TaskId;
use super::timers::Action;
use super::{Core, Life, World};
use crate::NodeId;
use crate::rng::SimRng;
use crate::trace::Kind;
use std::collections::{BTreeMap, VecDeque};
use tenon_env::Lane;
use tokio::sync::oneshot;

pub(crate) struct NodeState {
    pub(crate) life: u64,
    pub(crate) alive: bool,
    pub(crate) paused: bool,
    pub(crate) time: NodeTime,
    pub(crate) lanes: BTreeMap<Lane, Line>,
    pub(crate) rng: SimRng,
    /// Runnable tasks and due actions that wait for the end of a pause.
    parked_tasks: Vec<TaskId>,
    parked_actions: Vec<Action>,
}

type Step = Box<dyn FnOnce() + Send>;

/// A lane: its steps one behind another.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) busy: bool,
    pub(crate) waiting: VecDeque<(Step, oneshot::Sender<()>)>,
}

/// Futures, steps and timers of an ended life. Dropped outside the world's lock, inside nothing.
#[derive(Default)]
pub(crate) struct Remains(Vec<Box<dyn std::any::Any>>);

impl Remains {
    fn keep<T: 'static>(&mut self, thing: T) {
        self.0.push(Box::new(thing));
    }
}

impl World {
    /// Begins the next life of `node`.
    ///
    /// # Panics
    /// When it is alive.
    pub(crate) fn begin_life(&self, node: NodeId) -> Life {
        let mut core = self.core.lock();
        let now = core.now;
        let before = core.nodes.remove(&node);
        assert!(
            before.as_ref().is_none_or(|n| !n.alive),
            "{node} is alive already"
        );
        let number = before.as_ref().map_or(1, |n| n.life + 1);
        let mut rng = SimRng::fork(self.seed, "node", node.0 << 32 | number);
        let origin = if rng.chance(500_000) {
            0
        } else {
            rng.below(3_600_000_000_000)
        };
        let mut time = NodeTime::new(now, origin);
        time.wall_offset_ms = before.map_or(0, |n| n.time.wall_offset_ms);
        let state = NodeState {
            life: number,
            alive: true,
            paused: false,
            time,
            lanes: BTreeMap::new(),
            rng,
            parked_tasks: Vec::new(),
            parked_actions: Vec::new(),
        };
        core.nodes.insert(node, state);
        core.trace.event(Kind::Restart, &[node.0, number, now]);
        Life { node, number }
    }

    /// Ends a life. Its tasks never run again; they are dropped by the next [`World::reap`].
    /// False when it was over already.
    pub(crate) fn end_life(&self, life: Life) -> bool {
        let mut core = self.core.lock();
        if !core.is_alive(life) {
            return false;
        }
        core.nodes.get_mut(&life.node).expect("alive").alive = false;
        core.to_reap.push(life);
        let now = core.now;
        core.trace
            .event(Kind::Kill, &[life.node.0, life.number, now]);
        drop(core);
        if let Some(tell) = self.told.get() {
            tell(life);
        }
        self.deaths.send_modify(|n| *n += 1);
        true
    }

    /// Drops what ended lives have left.
    pub(crate) fn reap(&self) {
        loop {
            let mut core = self.core.lock();
            let Some(life) = core.to_reap.pop() else {
                return;
            };
            let remains = core.remains(life);
            drop(core);
            drop(remains);
        }
    }

    pub(crate) fn pause(&self, node: NodeId) {
        let mut core = self.core.lock();
        let now = core.now;
        core.trace.event(Kind::Pause, &[node.0, 1, now]);
        if let Some(state) = core.nodes.get_mut(&node) {
            state.paused = true;
        }
    }

    /// Whether it was paused.
    pub(crate) fn resume(&self, node: NodeId) -> bool {
        let mut core = self.core.lock();
        let now = core.now;
        core.trace.event(Kind::Pause, &[node.0, 0, now]);
        let Some(state) = core.nodes.get_mut(&node) else {
            return false;
        };
        let was = std::mem::take(&mut state.paused);
        let tasks = std::mem::take(&mut state.parked_tasks);
        let actions = std::mem::take(&mut state.parked_actions);
        let life = Life {
            node,
            number: state.life,
        };
        for action in actions {
            core.timers
                .add(now, super::timers::Timer::Run(Some(life), action));
        }
        drop(core);
        tasks.into_iter().for_each(|id| self.queue.push(id));
        was
    }

    /// Changes a node's clocks and has its sleepers count anew.
    pub(crate) fn change_time(&self, node: NodeId, change: impl FnOnce(&mut NodeTime, u64)) {
        let mut core = self.core.lock();
        let now = core.now;
        let Some(state) = core.nodes.get_mut(&node) else {
            return;
        };
        change(&mut state.time, now);
        let shown = state.time.local(now);
        core.trace.event(Kind::Clock, &[node.0, shown, now]);
        let its: Vec<TaskId> = core
            .tasks
            .iter()
            .filter(|(_, t)| t.life.node == node)
            .map(|(id, _)| *id)
            .collect();
        drop(core);
        its.into_iter().for_each(|id| self.queue.push(id));
        self.queue.push(super::tasks::DRIVER);
    }
}

impl Core {
    pub(crate) fn is_paused(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|n| n.alive && n.paused)
    }

    pub(crate) fn park_task(&mut self, node: NodeId, id: TaskId) {
        self.nodes
            .get_mut(&node)
            .expect("known")
            .parked_tasks
            .push(id);
    }

    pub(crate) fn park_action(&mut self, node: NodeId, action: Action) {
        self.nodes
            .get_mut(&node)
            .expect("known")
            .parked_actions
            .push(action);
    }

    fn remains(&mut self, life: Life) -> Remains {
        let mut remains = Remains::default();
        let its: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, t)| t.life == life)
            .map(|(id, _)| *id)
            .collect();
        for id in its {
            remains.keep(self.tasks.remove(&id));
        }
        remains.keep(self.timers.take_of(life));
        if let Some(state) = self
            .nodes
            .get_mut(&life.node)
            .filter(|n| n.life == life.number)
        {
            remains.keep(std::mem::take(&mut state.lanes));
            remains.keep(std::mem::take(&mut state.parked_actions));
            state.parked_tasks.clear();
        }
        remains
    }
}
