//! Room storage, watches: the pure hub that gives every watcher each matching change exactly once and
//! in order. May use proto and `env::sync`; no tasks, no sockets, no clock, no engine.

pub mod event;
pub mod history;

pub use event::Event;
pub use history::{Compacted, History, HistoryLimits, HistoryPage};
