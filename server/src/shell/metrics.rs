//! Room `server/shell`: `/metrics` in Prometheus' text form, under etcd's names and types. Written by hand,
//! because etcd has gauges that end in `_total` and counters that do not, which client libraries refuse.

mod durations;
pub mod grpc;
pub mod member;
pub mod peer;
pub mod process;
pub mod text;
pub mod wal;
