//! Room `tests`: the black box. Starts real processes (Tenon and, where it can be had, real etcd) and talks
//! to them over gRPC with messages compiled from the schemas at run time.
//!
//! May touch: processes, sockets on 127.0.0.1, temporary directories, the schema *files* of `proto`.
//! Must not touch: the code of any other room; what is wrong here shows on the wire or not at all.

#![allow(
    clippy::disallowed_methods,
    reason = "real processes, real time; nothing here is simulated"
)]

pub mod call;
pub mod cluster;
pub mod compare;
pub mod ctl;
pub mod expand;
pub mod group;
pub mod manner;
pub mod metrics;
pub mod parallel;
pub mod ports;
pub mod print;
pub mod random;
pub mod receive;
pub mod run;
pub mod schema;
pub mod script;
pub mod server;
pub mod stream;
pub mod table;
pub mod web;
