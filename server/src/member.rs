//! Room `server/member`: one running member. Uses only `Env`; no sockets, no process.

pub mod config;
