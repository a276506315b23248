//! Room `env`: real time. One origin per process, so that the instants of its nodes print alike.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the real clock"
)]

use crate::{BoxFuture, Clock, Instant};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Monotonic time since the process first asked for it, and the system's wall time.
pub(super) struct RealClock {
    runtime: Handle,
}

impl RealClock {
    pub(super) fn new(runtime: Handle) -> RealClock {
        LazyLock::force(&ORIGIN);
        RealClock { runtime }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant::default() + ORIGIN.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let left = deadline - self.now();
        if left.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        // The timer registers with the runtime that is entered when it is made.
        let _entered = self.runtime.enter();
        Box::pin(tokio::time::sleep(left))
    }
}
