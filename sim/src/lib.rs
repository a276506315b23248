//! Room `sim`: whole members and clusters in one thread, from one seed.
//!
//! [`Sim`] is a world with virtual time. Each node in it is an `Env`: the code that runs on a real machine
//! runs here unchanged, while its clock, randomness, disk, network and tasks are ours to disturb. What happens
//! follows from the seed alone: the same seed gives the same [`Trace`].
//!
//! - `executor`: time, tasks, nodes and their lives.
//! - `disk`: what a power cut leaves.
//! - `net`: links and streams.
//! - `sim`: the handle that tests hold.
//! - `world`: a cluster of whole members, and its clients; `cluster`: the same for the tests of other projects.
//! - `chronicle` and `html`: what happened, for people.
//! - `swarm`: whole runs of clusters: `nemesis` is what goes wrong, `workload` what clients do, `observe` what is seen.
//! - `l1`: whole runs of one member, from plan to verdict; `history` is what its clients saw, `check` judges it.
//!
//! This room may use every room but the shell. It uses no real time, no thread and no real file; a member is
//! disturbed from outside only, never by a hook inside it.

pub mod check;
mod chronicle;
mod cli;
pub mod cluster;
mod disk;
mod executor;
pub mod history;
pub mod hosts;
pub mod html;
pub mod l1;
mod mask;
pub mod nemesis;
mod net;
mod observe;
mod rng;
mod shrink;
mod sim;
mod story;
pub mod swarm;
#[cfg(test)]
mod tests;
mod trace;
pub mod workload;
pub mod world;

pub use chronicle::{Chronicle, Happening, Role, What};
pub use cli::cli;
pub use cluster::{Client, Cluster, Storm, Violation};
pub use disk::{Atlas, CrashMode, DiskControl, DiskError, Op};
pub use executor::run::{OnPanic, Stuck, panic_text};
pub use mask::Mask;
pub use net::{Delay, LinkConfig, NetCounts};
pub use observe::Sights;
pub use rng::SimRng;
pub use sim::{Control, Sim, default_url};
pub use story::Story;
pub use tenon_proto::etcdserverpb as pb;
pub use trace::Trace;

/// A node of the simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl From<u64> for NodeId {
    fn from(number: u64) -> NodeId {
        NodeId(number)
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.0)
    }
}
