//! Room `env`: tasks and blocking lanes of a node. A node's tasks die with the node.

use crate::BoxFuture;

/// A lane runs blocking steps one after another, in the order they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Writes and syncs of the write-ahead log.
    Wal,
    /// Commits of the storage engine.
    Engine,
    /// Removal of compacted revisions.
    Compaction,
    /// Reading snapshots.
    Snapshot,
    /// Short reads of files at start and for recovery.
    Read,
}

/// The node died, or is shutting down, before the step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the node is gone")
    }
}

impl std::error::Error for Gone {}

/// A running task. Dropping it lets the task run on.
pub struct Task {
    abort: Box<dyn Fn() + Send + Sync>,
    done: BoxFuture<'static, ()>,
}

impl Task {
    /// A handle from the runtime's way to stop the task and to learn of its end.
    pub fn new(abort: Box<dyn Fn() + Send + Sync>, done: BoxFuture<'static, ()>) -> Task {
        Task { abort, done }
    }

    /// Drops the task's future at its next turn.
    pub fn abort(&self) {
        (self.abort)();
    }

    /// Completes when the task has ended, been stopped, or panicked.
    pub async fn ended(self) {
        self.done.await;
    }
}

/// Starts tasks and blocking steps.
pub trait Spawn: Send + Sync + 'static {
    /// Starts a task; `name` is for logs and traces.
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Task;
    /// Runs `job` on `lane`; completes when it has run, or at once without running it when the node is gone.
    /// The job is queued when this is called, not at the first poll.
    fn blocking(&self, lane: Lane, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;
}
