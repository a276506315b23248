//! Room `sim`, L2: the `Env` of a host under turmoil: time and tasks are those of the host's own tokio, whose clock
//! turmoil moves; the disk is in memory; random numbers follow from the seed.

use super::disk::MemDisk;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tenon_env::real::NoNet;
use tenon_env::{BoxFuture, Clock, Env, Instant, Lane, Plant, Rng, Spawn, Task};
use tenon_sim::SimRng;

/// What a step on a lane takes, as a disk's sync does. tokio's timers know no shorter time.
const STEP: Duration = Duration::from_millis(1);
/// Wall time at the start, milliseconds since 1970.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// The world of one life of a host.
pub fn env(seed: u64, life: u64, disk: MemDisk) -> Env {
    Env {
        clock: Arc::new(TokioClock(tokio::time::Instant::now())),
        rng: Arc::new(Seeded(Mutex::new(SimRng::fork(seed, "l2", life)))),
        disk: Arc::new(disk),
        net: Arc::new(NoNet),
        spawn: Arc::new(TokioSpawn),
        plant: Plant::None,
    }
}

struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::default() + self.0.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        let passed = turmoil::sim_elapsed().unwrap_or_default();
        EPOCH_MS + u64::try_from(passed.as_millis()).expect("a short run")
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(deadline - self.now()))
    }
}

struct Seeded(Mutex<SimRng>);

impl Rng for Seeded {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let running = tokio::spawn(future);
        let abort = running.abort_handle();
        let done = async move {
            let _ = running.await;
        };
        Task::new(Box::new(move || abort.abort()), Box::pin(done))
    }

    /// At once, in the order of the calls; the time it takes passes afterwards, so that a crash may come between a
    /// step and the news of it.
    fn blocking(&self, _lane: Lane, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let _ = catch_unwind(AssertUnwindSafe(job));
        Box::pin(tokio::time::sleep(STEP))
    }
}
