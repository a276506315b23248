//! Room `raft`: openraft's instants, sleeps and time-outs on the node's clock.

use super::{Elapsed, with_env};
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tenon_env::{BoxFuture, Clock, Env, Instant};

/// The node's monotonic time. Never compared between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeInstant(pub(crate) Instant);

impl Add<Duration> for NodeInstant {
    type Output = NodeInstant;
    fn add(self, d: Duration) -> NodeInstant {
        NodeInstant(self.0 + d)
    }
}

impl AddAssign<Duration> for NodeInstant {
    fn add_assign(&mut self, d: Duration) {
        self.0 += d;
    }
}

impl Sub<Duration> for NodeInstant {
    type Output = NodeInstant;
    fn sub(self, d: Duration) -> NodeInstant {
        NodeInstant(self.0 - d)
    }
}

impl SubAssign<Duration> for NodeInstant {
    fn sub_assign(&mut self, d: Duration) {
        self.0 -= d;
    }
}

impl Sub<NodeInstant> for NodeInstant {
    type Output = Duration;
    fn sub(self, earlier: NodeInstant) -> Duration {
        self.0 - earlier.0
    }
}

impl openraft_rt::Instant for NodeInstant {
    fn now() -> NodeInstant {
        NodeInstant(with_env(Env::now))
    }
}

/// Sleeps shorter than this yield a few times before they ask for a timer: openraft waits 1 µs between two
/// reports of finished writes, which a timer wheel would turn into a millisecond.
const YIELD_BELOW: Duration = Duration::from_micros(20);
const YIELDS_MAX: u8 = 4;

/// Completes at an instant.
pub(crate) struct NodeSleep {
    clock: Arc<dyn Clock>,
    deadline: Instant,
    yields: u8,
    timer: Option<BoxFuture<'static, ()>>,
}

impl NodeSleep {
    pub(super) fn until(env: &Env, deadline: Instant) -> NodeSleep {
        NodeSleep {
            clock: env.clock.clone(),
            deadline,
            yields: 0,
            timer: None,
        }
    }
}

impl Future for NodeSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.timer.is_none() {
            let now = this.clock.now();
            if now >= this.deadline {
                return Poll::Ready(());
            }
            if this.deadline - now < YIELD_BELOW && this.yields < YIELDS_MAX {
                this.yields += 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let timer = this
            .timer
            .get_or_insert_with(|| this.clock.sleep_until(this.deadline));
        timer.as_mut().poll(cx)
    }
}

/// A future with a deadline. The future is asked first.
pub(crate) struct NodeTimeout<F> {
    future: Pin<Box<F>>,
    sleep: NodeSleep,
}

impl<F> NodeTimeout<F> {
    pub(super) fn new(future: F, sleep: NodeSleep) -> NodeTimeout<F> {
        NodeTimeout {
            future: Box::pin(future),
            sleep,
        }
    }
}

impl<F: Future> Future for NodeTimeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(out) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(out));
        }
        Pin::new(&mut self.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}
