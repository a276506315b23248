//! Room `sim`: tasks and lanes of a node. A lane's step runs inline when its turn comes and ends after the
//! time that its disk operations took; until then the lane is busy.

use super::{Life, World};
use crate::disk::SimDisk;
use std::sync::Arc;
use tenon_env::{BoxFuture, Lane, Spawn, Task};
use tokio::sync::oneshot;

type Step = Box<dyn FnOnce() + Send>;

pub(crate) struct SimSpawn {
    pub(crate) world: Arc<World>,
    pub(crate) life: Life,
    pub(crate) disk: Arc<SimDisk>,
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let (id, ended) = self.world.start_task(self.life, name, future);
        let world = Arc::downgrade(&self.world);
        let abort = move || {
            if let Some(world) = world.upgrade() {
                world.abort_task(id);
            }
        };
        let done = async move {
            let _ = ended.await;
        };
        Task::new(Box::new(abort), Box::pin(done))
    }

    fn blocking(&self, lane: Lane, job: Step) -> BoxFuture<'static, ()> {
        let (tx, rx) = oneshot::channel();
        let mut core = self.world.core.lock();
        if !core.is_alive(self.life) {
            drop(core);
            return Box::pin(std::future::ready(()));
        }
        let node = core.nodes.get_mut(&self.life.node).expect("alive");
        let line = node.lanes.entry(lane).or_default();
        line.waiting.push_back((job, tx));
        if !line.busy {
            line.busy = true;
            let wake_up = node.rng.below(20_000);
            drop(core);
            next_step(
                self.world.clone(),
                self.life,
                self.disk.clone(),
                lane,
                wake_up,
            );
        }
        Box::pin(async move {
            let _ = rx.await;
        })
    }
}

/// Runs the lane's next step after `delay`, then the one behind it, until none waits.
fn next_step(world: Arc<World>, life: Life, disk: Arc<SimDisk>, lane: Lane, delay: u64) {
    let again = world.clone();
    let action = move || {
        let mut core = world.core.lock();
        let node = core.nodes.get_mut(&life.node).expect("its life lasts");
        let line = node.lanes.entry(lane).or_default();
        let Some((job, done)) = line.waiting.pop_front() else {
            line.busy = false;
            return;
        };
        drop(core);
        disk.start_step();
        job();
        let took = disk.end_step();
        let after = world.clone();
        let end = move || {
            let _ = done.send(());
            next_step(after, life, disk, lane, 0);
        };
        world.after(took, Some(life), Box::new(end));
    };
    again.after(delay, Some(life), Box::new(action));
}
