//! Room `env`: everything a Tenon node may ask of the world outside it.
//!
//! [`Env`] is one concrete, clonable struct; the rooms above take no type parameter for it. In production
//! it is [`real`]; in the simulator every part is replaced, and the same code runs. This room uses no other
//! room of ours. Code above it must reach clock, randomness, tasks, disk and network through here only
//! (DESIGN §3); `env/src/real` is the one place below the shell where std and tokio do so.

pub mod clock;
pub mod disk;
pub mod net;
pub mod plant;
pub mod real;
pub mod rng;
pub mod scope;
pub mod spawn;
pub mod sync;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use clock::{Clock, Instant};
pub use disk::{DirEntry, Disk, File, FileLock, OpenMode};
pub use futures_util::future::BoxFuture;
pub use net::{Incoming, Net, NetRecv, NetSend, NetStream, StreamKind};
pub use plant::Plant;
pub use rng::Rng;
pub use scope::NodeScope;
pub use spawn::{Gone, Lane, Spawn, Task};

/// The world as one node sees it. Cloning is cheap and names the same world.
#[derive(Clone)]
pub struct Env {
    /// Monotonic and wall time.
    pub clock: Arc<dyn Clock>,
    /// This node's own stream of random numbers.
    pub rng: Arc<dyn Rng>,
    /// This node's disk.
    pub disk: Arc<dyn Disk>,
    /// Streams to and from peers.
    pub net: Arc<dyn Net>,
    /// Tasks and blocking lanes of this node.
    pub spawn: Arc<dyn Spawn>,
    /// The mistake planted in this node; [`Plant::None`] everywhere but in the simulator.
    pub plant: Plant,
}

impl Env {
    /// Monotonic time of this node.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Completes `after` from now.
    pub fn sleep(&self, after: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(self.clock.now() + after)
    }

    /// The future's output, or `None` once `after` has passed without it.
    pub async fn timeout<F: Future>(&self, after: Duration, future: F) -> Option<F::Output> {
        let deadline = self.sleep(after);
        let future = std::pin::pin!(future);
        match futures_util::future::select(future, deadline).await {
            futures_util::future::Either::Left((out, _)) => Some(out),
            futures_util::future::Either::Right(_) => None,
        }
    }

    /// Starts a task that belongs to this node and dies with it. Its [`NodeScope`] is this `Env`.
    /// Dropping the returned [`Task`] does not stop it; [`Task::abort`] does.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let scoped = NodeScope::new(self.clone(), future);
        self.spawn.spawn(name, Box::pin(scoped))
    }

    /// Runs a blocking step on a lane: one OS thread per lane in reality, in order of the calls; inline with
    /// a drawn delay in the simulator. [`Gone`] when the node died before the step ended.
    pub async fn blocking<T, F>(&self, lane: Lane, step: F) -> Result<T, Gone>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (tx, rx) = sync::oneshot::channel();
        let job = Box::new(move || {
            let _ = tx.send(step());
        });
        self.spawn.blocking(lane, job).await;
        rx.await.map_err(|_| Gone)
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
