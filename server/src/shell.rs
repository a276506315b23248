//! Room `server/shell`: the real world around a member: flags, listeners, routes, metrics, signals, logs.
//! It decides nothing about data.

pub mod flags;
