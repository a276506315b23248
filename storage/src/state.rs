//! Room storage, state: the replicated state of one member, and the only way in: [`Store`]. May use the
//! other parts of this room, proto and env; no sockets, no openraft.
//!
//! **Memory first, engine behind.** Commands are applied to the memory alone ([`apply`]); the drain
//! ([`flush`]) takes what is applied *and* flushed in the WAL to the engine in large atomic batches with
//! the applied position, so a restart finds one consistent state and replays the rest of the log. Reads
//! find a record in memory, in a small cache, or in the engine's view as of the newest batch; the
//! memory lets go only of what that view has.
//!
//! ```text
//!   log ──► apply ──► index + recent records ──► answers, watches
//!                          │ drain (≤ applied, ≤ WAL-flushed)
//!                          ▼
//!                        engine ──► view ──► older reads, snapshots, start-up
//! ```
//!
//! **Errors.** A client's error is an answer. An engine that refuses writes before anything was promised
//! is waited for, with reads going on. Anything else from the disk ends the store once and for all
//! ([`Store::watch_fatal`]); the log has what the engine lacks.
//!
//! What this does not do: propose, decide who leads, wait for commits, authenticate.

mod agree;
mod alarms;
mod apply;
mod checkpoint;
mod compact;
mod core;
mod flush;
mod home;
mod install;
pub mod measures;
mod members;
mod open;
mod past;
mod pending;
mod pins;
mod read;
mod restore;
mod rows;
mod scan;
mod snapshot;
mod store;
mod sums;

#[cfg(test)]
mod tests;

pub use agree::Disagreement;
pub use install::SnapshotReceiver;
pub use members::Member;
pub use read::RangeCursor;
pub use restore::{RestoreError, RestorePlan, restore};
pub use snapshot::SnapshotView;
pub use store::{EngineKind, Fatal, OpenError, Store, StoreOptions, StoreSize};
pub use sums::HashKvSum;
