//! Room `sim`: tasks, their wakers and the queue of those that can run.

use super::{Life, World};
use crate::trace::Kind;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Wake, Waker};
use tenon_env::BoxFuture;
use tokio::sync::oneshot;

/// A task's number; never used twice. 0 is the driver, which belongs to no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u64);

pub(crate) const DRIVER: TaskId = TaskId(0);

pub(crate) struct TaskEntry {
    pub(crate) life: Life,
    pub(crate) name: &'static str,
    /// `None` while the task is being polled.
    pub(crate) future: Option<BoxFuture<'static, ()>>,
    pub(crate) waker: Waker,
    pub(crate) aborted: bool,
    /// Dropped with the entry, which is how `Task::ended` learns of it.
    pub(crate) _ended: oneshot::Sender<()>,
}

/// Tasks that were woken and not run since. Apart from the world's lock, so that a waker may be called
/// from anywhere.
#[derive(Default)]
pub(crate) struct Queue(Mutex<Ready>);

#[derive(Default)]
struct Ready {
    order: Vec<TaskId>,
    members: BTreeSet<TaskId>,
}

impl Queue {
    pub(crate) fn push(&self, id: TaskId) {
        let mut ready = self.0.lock();
        if ready.members.insert(id) {
            ready.order.push(id);
        }
    }

    /// Takes the task at `choose(number of tasks)`.
    pub(crate) fn take(&self, choose: impl FnOnce(u64) -> u64) -> Option<TaskId> {
        let mut ready = self.0.lock();
        if ready.order.is_empty() {
            return None;
        }
        let at = choose(ready.order.len() as u64) as usize;
        let id = ready.order.swap_remove(at);
        ready.members.remove(&id);
        Some(id)
    }

    pub(crate) fn clear(&self) {
        *self.0.lock() = Ready::default();
    }
}

struct TaskWaker {
    id: TaskId,
    queue: Arc<Queue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.queue.push(self.id);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue.push(self.id);
    }
}

impl World {
    pub(crate) fn waker(&self, id: TaskId) -> Waker {
        Waker::from(Arc::new(TaskWaker {
            id,
            queue: self.queue.clone(),
        }))
    }

    /// Starts a task; drops `future` at once when its node's life is over. The receiver ends with it.
    pub(crate) fn start_task(
        &self,
        life: Life,
        name: &'static str,
        future: BoxFuture<'static, ()>,
    ) -> (TaskId, oneshot::Receiver<()>) {
        let (tx, rx) = oneshot::channel();
        let mut core = self.core.lock();
        let id = TaskId(core.next_task);
        core.next_task += 1;
        if !core.is_alive(life) {
            drop(core);
            drop(future);
            return (id, rx);
        }
        core.trace.event(Kind::Spawn, &[life.node.0, id.0]);
        let waker = self.waker(id);
        let entry = TaskEntry {
            life,
            name,
            future: Some(future),
            waker,
            aborted: false,
            _ended: tx,
        };
        core.tasks.insert(id, entry);
        drop(core);
        self.queue.push(id);
        (id, rx)
    }

    /// Has the task's future dropped at its next turn.
    pub(crate) fn abort_task(&self, id: TaskId) {
        let mut core = self.core.lock();
        if let Some(task) = core.tasks.get_mut(&id) {
            task.aborted = true;
            drop(core);
            self.queue.push(id);
        }
    }
}
