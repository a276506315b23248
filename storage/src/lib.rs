//! Room storage.

pub mod watch;
