//! Room `env`: the real world: tokio's timers and tasks, one OS thread per lane, `std::fs`, OS randomness.
//! The one place below the shell that may touch them. It knows no peers: the transport lives in
//! `server/shell`, which passes its own [`Net`]; [`NoNet`] refuses and serves a member without peers.

mod clock;
mod disk;
mod net;
mod rng;
mod spawn;
#[cfg(test)]
mod tests;

use crate::{Env, Net, Plant};
use std::sync::Arc;

pub use disk::RealDisk;
pub use net::NoNet;

/// The real world on `runtime` with `net` to peers. Each call makes lanes of its own, so each node of a
/// process asks once and clones the answer. Timers need the runtime's time driver (`enable_time`).
/// [`Env::net`] may be replaced afterwards by a transport that needs the rest of the `Env` itself.
pub fn env(runtime: tokio::runtime::Handle, net: Arc<dyn Net>) -> Env {
    Env {
        clock: Arc::new(clock::RealClock::new(runtime.clone())),
        rng: Arc::new(rng::RealRng::new()),
        disk: Arc::new(RealDisk),
        net,
        spawn: Arc::new(spawn::RealSpawn::new(runtime)),
        plant: Plant::None,
    }
}

/// [`env`] on the runtime of the calling task, without peers.
///
/// # Panics
/// Outside a tokio runtime.
pub fn env_without_peers() -> Env {
    env(tokio::runtime::Handle::current(), Arc::new(NoNet))
}
