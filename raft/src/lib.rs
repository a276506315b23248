//! Room `raft`: the only room that names openraft. It turns a log over `storage`'s WAL, a state machine over
//! `storage`'s store and streams over `Env`'s network into one replicated state, and offers it as a
//! [`RaftHandle`] in words of our own.
//!
//! It may use proto, env and storage. It knows no etcd service, no socket and no thread.

mod config;
mod error;
mod flight;
mod handle;
mod log_store;
mod network;
mod node;
mod proposer;
mod reads;
mod recent;
mod runtime;
mod sole;
mod state_machine;
mod status;
#[cfg(test)]
mod storage_suite;
mod types;
mod upkeep;

pub use config::RaftConfig;
pub use error::{MemberError, ProposeError, ReadError, Reason, StartError};
pub use flight::Applied;
pub use handle::RaftHandle;
pub use network::{ROUND_TRIP_BOUNDS, Traffic};
pub use node::Premise;
pub use runtime::{Drive, runtime_suite};
pub use status::{Progress, RaftStatus};
