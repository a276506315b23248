//! Room `raft`: the one `AsyncRuntime` that openraft runs on. Its functions are static, so each looks up
//! the node it runs for in `env::scope` and asks that node's `Env`; openraft is thereby compiled once for
//! reality and simulator alike, and a node's tasks die with it. Touches nothing but `Env`.
//!
//! Every task that openraft starts, and every call into it, must run inside the node's scope
//! (`Env::spawn` or `NodeScope`); outside one these functions panic, because that is a bug.

mod channels;
mod clock;
mod rng;
mod suite;

use openraft_rt::{AsyncRuntime, OptionalSend};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tenon_env::sync::oneshot;
use tenon_env::{Env, Lane, scope};

pub(crate) use channels::{NodeMpsc, NodeMutex, NodeOneshot, NodeWatch};
pub(crate) use clock::{NodeInstant, NodeSleep, NodeTimeout};
pub(crate) use rng::NodeRng;
pub use suite::{Drive, runtime_suite};

/// What `f` makes of the current node's `Env`.
///
/// # Panics
/// Outside a node's scope.
fn with_env<T>(f: impl FnOnce(&Env) -> T) -> T {
    scope::with(|env| env.map(f)).expect("openraft runs inside its node's scope only")
}

/// The runtime of every node, real or simulated. The value itself serves the test suite alone.
pub(crate) struct NodeRuntime(suite::Driver);

impl std::fmt::Debug for NodeRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeRuntime")
    }
}

/// The task ended without a value: it panicked or its node died.
#[derive(Debug)]
pub(crate) struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the task ended without a value")
    }
}

/// Yields what a spawned task returned.
pub(crate) struct NodeJoin<T>(oneshot::Receiver<T>);

impl<T> Future for NodeJoin<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(|_| Lost)
    }
}

/// The deadline came first.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl AsyncRuntime for NodeRuntime {
    type JoinError = Lost;
    type JoinHandle<T: OptionalSend + 'static> = NodeJoin<T>;
    type Sleep = NodeSleep;
    type Instant = NodeInstant;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = NodeTimeout<T>;
    type ThreadLocalRng = NodeRng;
    type Mpsc = NodeMpsc;
    type Watch = NodeWatch;
    type Oneshot = NodeOneshot;
    type Mutex<T: OptionalSend + 'static> = NodeMutex<T>;

    fn spawn<T>(future: T) -> NodeJoin<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let (tx, rx) = oneshot::channel();
        let env = with_env(Env::clone);
        env.spawn("openraft", async move {
            let _ = tx.send(future.await);
        });
        NodeJoin(rx)
    }

    fn sleep(duration: Duration) -> NodeSleep {
        with_env(|env| NodeSleep::until(env, env.now() + duration))
    }

    fn sleep_until(deadline: NodeInstant) -> NodeSleep {
        with_env(|env| NodeSleep::until(env, deadline.0))
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> NodeTimeout<F> {
        NodeTimeout::new(future, Self::sleep(duration))
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: NodeInstant,
        future: F,
    ) -> NodeTimeout<F> {
        NodeTimeout::new(future, Self::sleep_until(deadline))
    }

    /// A task that ends without a value has panicked: openraft's tasks are not stopped one by one, and
    /// when a node dies nobody is left to ask.
    fn is_panic(_lost: &Lost) -> bool {
        true
    }

    fn thread_rng() -> NodeRng {
        with_env(|env| NodeRng::new(env.rng.clone()))
    }

    fn new(_threads: usize) -> NodeRuntime {
        panic!("a node's runtime comes from its Env, never from AsyncRuntime::new")
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    async fn spawn_blocking<F, T>(step: F) -> Result<T, std::io::Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let env = with_env(Env::clone);
        env.blocking(Lane::Read, step)
            .await
            .map_err(std::io::Error::other)
    }
}
