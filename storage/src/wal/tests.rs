//! Room `storage`, WAL tests. No real time, threads or files; everything is drawn from seeds.

mod crash;
mod damage;
pub(crate) mod disk;
mod fault;
mod format;
mod golden;
mod model;
pub(crate) mod world;
