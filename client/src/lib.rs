//! Room `client`: the Rust client. Many endpoints, retries, resumed watches, kept leases, locks, elections.
//!
//! [`Client`] is cheap to clone; clones share connections and credentials. Each RPC of etcd's interface is
//! one method taking the request message of [`tenon_proto::etcdserverpb`] ([`request`] makes the common
//! ones), and failing with [`tenon_proto::error::Error`].
//!
//! - **Which endpoint:** one at a time, until it fails; then the next that does not count as failed. A failed
//!   one is asked by the gRPC health service in the background and returns once it serves.
//! - **Retries:** what changes nothing is asked again elsewhere until the time is up. A write is sent again
//!   only if it certainly never left this process; else its error is returned and its fate is unknown.
//! - **Watches** resume after a broken stream at the first revision not yet delivered: no gap, no repeat.
//! - **Time:** every call ends after [`ConnectOptions::request_timeout`] unless [`Client::with_timeout`] says
//!   otherwise. Streams end when dropped.
//!
//! It uses only room `proto`, and tokio for time and tasks: a client lives outside the simulated world. It
//! holds no server code and reads no files. TLS is not there yet: `https` is refused.
//!
//! ```text
//! let client = Client::connect(["http://127.0.0.1:2379"], ConnectOptions::default())?;
//! client.put(request::put("k", "v")).await?;
//! let mut watch = client.watch(WatchOptions::of(KeyRange::prefix("k"))).await?;
//! let session = Session::open(&client, 10).await?;
//! let lock = session.lock("jobs/7").await?;       // lock.revision() fences off older holders
//! ```
#![allow(
    clippy::disallowed_methods,
    reason = "a client runs in the real world, outside Env"
)]

mod auth;
mod call;
pub mod cli;
mod cluster;
mod connector;
mod election;
mod endpoint;
mod host;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod options;
mod pool;
mod queue;
pub mod request;
mod retry;
mod session;
mod stream;
mod watch;

pub use call::Client;
pub use connector::Connector;
pub use election::{Leadership, Observer};
pub use lease::KeepAlive;
pub use lock::LockGuard;
pub use options::{ConnectOptions, Credentials};
pub use session::Session;
pub use stream::Parts;
pub use tenon_proto as proto;
pub use watch::{Watch, WatchError, WatchOptions, WatchUpdate};
