//! Room `raft`: the only room that names openraft. It turns a log over `storage`'s WAL, a state machine over
//! `storage`'s store and streams over `Env`'s network into one replicated state, and offers it as a
//! `RaftHandle` in words of our own.
//!
//! It may use proto, env and storage. It knows no etcd service, no socket and no thread.

mod runtime;

pub use runtime::{Drive, runtime_suite};
