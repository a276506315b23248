//! Room `storage`, WAL tests. No real time, threads or files; everything is drawn from seeds.

mod crash;
mod damage;
mod disk;
mod fault;
mod golden;
mod model;
mod world;
