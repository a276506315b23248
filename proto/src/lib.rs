//! Room proto: etcd's wire interface and our own schemas as Rust types, the error table, ids, key
//! ranges and the replicated command.
//!
//! Every room may use it and it uses none. It holds words, not behaviour: no I/O, no clock, no state.

pub mod caller;
pub mod code;
pub mod codec;
pub mod error;
mod generated;
pub mod ids;
pub mod key_range;
mod outcome;
#[cfg(test)]
mod schema_tests;
mod status;

pub use generated::tenon::host::v1 as host;
pub use generated::tenon::{command, log, peer};
pub use generated::{FILE_DESCRIPTOR_SET, authpb, etcdserverpb, mvccpb, v3electionpb, v3lockpb};
