//! Room `server/shell`: the real world around a member: flags, listeners, routes, metrics, signals, logs.
//! It decides nothing about data.

pub mod coalesce;
pub mod embedded;
pub mod flags;
pub mod front;
pub mod grpc;
pub mod http;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod peer;
pub mod run;
mod running;
mod serving;
mod signals;
pub mod upstream;
pub mod util;

pub use run::main;
