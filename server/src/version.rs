//! Room `server`: the versions told to clients. They compare them, so these are etcd's.

/// The release of etcd whose behaviour this is.
pub const ETCD_VERSION: &str = "3.7.3";
/// Version of the cluster and of the storage, in etcd's terms.
pub const CLUSTER_VERSION: &str = "3.7.0";
