//! Room `storage`: everything durable and everything deterministic of a member: the write-ahead log,
//! the storage engines, MVCC, leases, watches' pure part, members and alarms. May use `proto` and
//! `env`; no runtime, no openraft, no sockets.

pub mod archive;
pub mod check;
mod durations;
pub mod engine;
pub mod lease;
pub mod mvcc;
pub mod quota;
pub mod state;
pub mod wal;
pub mod watch;

pub use durations::{DISK_BOUNDS, Durations, DurationsNow, MEMORY_BOUNDS};
pub use state::measures;
pub use state::{
    EngineKind, Fatal, HashKvSum, Member, OpenError, RangeCursor, SnapshotReceiver, SnapshotView,
    Store, StoreOptions, StoreSize,
};
