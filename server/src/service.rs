//! Room `server/service`: etcd's services as plain async functions, one file each. A method validates,
//! authorises, asks raft or the store, fills the header and returns etcd's error. May use proto, env,
//! storage and raft; no tonic transport, no sockets, no clock or task but through `Env`.

pub mod asks;
pub mod auth;
pub mod cluster;
pub mod context;
pub mod counters;
pub mod health;
pub mod kv;
pub mod leadership;
pub mod lease;
pub mod maintenance;
pub mod method;
pub mod quota;
pub mod snapshot;
pub mod stream;
pub mod watch;

pub use context::Context;

use auth::Auth;
use cluster::Cluster;
use health::Health;
use kv::Kv;
use lease::Lease;
use maintenance::Maintenance;
use watch::Watch;

/// All services of one member. Cloning is cheap.
#[derive(Clone)]
pub struct Services {
    /// What they share.
    pub context: Context,
    /// Keys and values.
    pub kv: Kv,
    /// Watches.
    pub watch: Watch,
    /// Leases.
    pub lease: Lease,
    /// Members.
    pub cluster: Cluster,
    /// Status, alarms, hashes.
    pub maintenance: Maintenance,
    /// Users and roles.
    pub auth: Auth,
    /// Health checks.
    pub health: Health,
}

impl Services {
    /// The services over one context.
    pub fn new(context: Context) -> Services {
        Services {
            kv: Kv::new(context.clone()),
            watch: Watch::new(context.clone()),
            lease: Lease::new(context.clone()),
            cluster: Cluster::new(context.clone()),
            maintenance: Maintenance::new(context.clone()),
            auth: Auth::new(context.clone()),
            health: Health::new(context.clone()),
            context,
        }
    }
}
