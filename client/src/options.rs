//! Room `client`: what a client is told when it is made. Plain data, but for the connector.

use crate::connector::Connector;
use std::fmt;
use std::time::Duration;

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Name of the user.
    pub user: String,
    /// A secret: `Debug` hides it.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("password", &"<hidden>")
            .finish()
    }
}

/// How a client connects and how long it waits.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Exchanged for a token at the first call, and again whenever a token is refused.
    pub credentials: Option<Credentials>,
    /// Time for one connection.
    pub connect_timeout: Duration,
    /// Time for one call with all its retries.
    pub request_timeout: Duration,
    /// Between pings on a connection with calls in flight. etcd servers cut clients that ping more often than
    /// every 5 s.
    pub keep_alive_interval: Duration,
    /// Silence after a ping until the connection counts as dead.
    pub keep_alive_timeout: Duration,
    /// Replaces the endpoints by the members' client URLs this often; `None` keeps those given.
    pub auto_sync: Option<Duration>,
    /// Opens connections in place of the system's sockets.
    pub connector: Option<Connector>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            credentials: None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(6),
            keep_alive_timeout: Duration::from_secs(3),
            auto_sync: None,
            connector: None,
        }
    }
}
