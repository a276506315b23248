//! Room `sim`, world: how the members of a world are configured. Plain data.

use super::World;
use crate::NodeId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tenon_server::host::edges::Edges;
use tenon_server::member::config::{
    BootstrapState, ClusterOptions, Compaction, MemberConfig, Quota, RunningCluster, Tuning,
};

/// Where members keep their data.
pub(super) const DATA: &str = "/data";
/// Their data directory in it.
pub(super) const DIR: &str = "m.tenon";

/// What a world is made with. The same for all its members.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Members that found the cluster, on the nodes 1 to this; 1 to 64.
    pub founders: u64,
    /// Time between a leader's heartbeats.
    pub heartbeat: Duration,
    /// Shortest time without a leader before an election; at least 3 heartbeats.
    pub election: Duration,
    /// Log entries kept for members that are behind.
    pub snapshot_catchup_entries: u64,
    /// Size limit of the state.
    pub quota: Quota,
    /// Automatic compaction.
    pub compaction: Compaction,
    /// Revisions removed in one step of a compaction.
    pub compaction_batch: usize,
    /// Idle time after which a watch that asked for it hears of progress.
    pub progress_interval: Duration,
    /// Learners at most.
    pub max_learners: usize,
    /// Refuse changes of members that endanger the quorum.
    pub strict_reconfig: bool,
    /// The leader promotes learners that caught up.
    pub auto_promote_learners: bool,
    /// Period of comparing hashes between members; zero for never.
    pub corrupt_check: Duration,
    /// Sizes of storage.
    pub tuning: Tuning,
    /// Every node is a host that may switch between server and client; `None` for members alone.
    pub hosts: Option<HostOptions>,
}

/// What hosts are made with.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Hosts besides the founders, which begin as clients.
    pub spares: u64,
    /// The switches there are.
    pub edges: Edges,
    /// How long a switch may take that a start goes on with.
    pub change_within: Duration,
}

impl Default for WorldOptions {
    /// Three founders with etcd's timings and limits.
    fn default() -> WorldOptions {
        WorldOptions {
            founders: 3,
            heartbeat: Duration::from_millis(100),
            election: Duration::from_secs(1),
            snapshot_catchup_entries: 5_000,
            quota: Quota::DEFAULT,
            compaction: Compaction::Off,
            compaction_batch: 1_000,
            progress_interval: Duration::from_secs(600),
            max_learners: 1,
            strict_reconfig: true,
            auto_promote_learners: false,
            corrupt_check: Duration::ZERO,
            tuning: Tuning::default(),
            hosts: None,
        }
    }
}

/// The name of a node's member.
pub(super) fn name(node: NodeId) -> String {
    format!("m{}", node.0)
}

impl World {
    /// The configuration of a start. `running` is what others tell of the cluster, when this start is the
    /// member's first.
    pub(super) fn config(
        &self,
        node: NodeId,
        joins: bool,
        running: Option<RunningCluster>,
    ) -> MemberConfig {
        let options = self.options();
        let urls = vec![crate::default_url(node)];
        let (initial_state, initial_cluster) = if joins {
            (BootstrapState::Existing, listed(node, running.as_ref()))
        } else {
            let founder = |n| (name(NodeId(n)), vec![crate::default_url(n)]);
            (
                BootstrapState::New,
                (1..=options.founders).map(founder).collect(),
            )
        };
        MemberConfig {
            advertise_client_urls: vec![format!("http://n{}:2379", node.0)],
            initial_cluster,
            initial_state,
            cluster_token: "sim".to_owned(),
            heartbeat: options.heartbeat,
            election: options.election,
            snapshot_catchup_entries: options.snapshot_catchup_entries,
            quota: options.quota,
            compaction: options.compaction,
            compaction_batch: options.compaction_batch,
            compaction_pause: Duration::from_millis(5),
            progress_interval: options.progress_interval,
            warn_apply: Duration::ZERO,
            max_learners: options.max_learners,
            strict_reconfig: options.strict_reconfig,
            cluster: ClusterOptions {
                running,
                auto_promote_learners: options.auto_promote_learners,
                corrupt_check: options.corrupt_check,
                ..ClusterOptions::default()
            },
            tuning: options.tuning,
            ..MemberConfig::sole(&name(node), PathBuf::from(DATA).join(DIR), urls)
        }
    }
}

/// The initial cluster of a member that joins: those that the cluster lists, as an operator copies it.
fn listed(node: NodeId, running: Option<&RunningCluster>) -> BTreeMap<String, Vec<String>> {
    let own = vec![crate::default_url(node)];
    let mut all = BTreeMap::from([(name(node), own.clone())]);
    for member in running.iter().flat_map(|running| &running.members) {
        if member.peer_urls != own {
            let unnamed = || format!("unnamed-{}", member.id);
            let name = match member.name.is_empty() {
                true => unnamed(),
                false => member.name.clone(),
            };
            all.insert(name, member.peer_urls.clone());
        }
    }
    all
}
