//! Room `server/host`: a host, which is a client of its cluster or a member of it, and the one endpoint it answers
//! at in either mode (DESIGN §7). Everything through `Env`; may use proto, env, storage, raft, `member` and the
//! public face of `service`; no sockets and no tonic, so that the simulator runs it.

pub mod door;
pub mod floor;
mod health;
mod keep_alive;
mod link;
pub mod remote;
pub mod streams;
mod watch_move;
mod watch_row;
mod watches;

#[cfg(test)]
mod tests;
