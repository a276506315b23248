//! Room `raft`: a member's settings, and openraft's made from them. The values that must not be openraft's
//! defaults are set and checked here, in one place.

use crate::error::StartError;
use openraft::SnapshotPolicy;
use std::collections::BTreeMap;
use std::time::Duration;
use tenon_env::Plant;
use tenon_proto::ids::{ClusterId, MemberId};
use tenon_proto::log::{Membership, Node};

/// What a member's raft is started with.
#[derive(Clone, Debug)]
pub struct RaftConfig {
    /// This member.
    pub member_id: MemberId,
    /// The cluster that it and all its peers belong to.
    pub cluster_id: ClusterId,
    /// Time between two heartbeats (`--heartbeat-interval`); at least 1 ms.
    pub heartbeat: Duration,
    /// Shortest election timeout (`--election-timeout`); at least 3 heartbeats. The longest is twice it.
    pub election: Duration,
    /// Entries kept in the log for members that lag, once the engine holds them
    /// (`--snapshot-catchup-entries`). The WAL's bound in bytes prevails.
    pub snapshot_catchup_entries: u64,
    /// Entries that go at once, at least, so that small logs are left alone; at least 1.
    pub purge_entries_min: u64,
    /// Bytes of the WAL above which old entries go, however many must be kept.
    pub wal_bytes_max: u64,
    /// Most bytes per second of a snapshot sent to a peer; 0 = as fast as it goes.
    pub snapshot_bytes_per_second: u64,
    /// The first configuration, for a member without a log; every first member gets the same. `None` to
    /// join a running cluster or to restart.
    pub initial: Option<Membership>,
    /// Members of the running cluster, for one that joins it with an empty disk: they are asked whether it
    /// has run before. Not needed beside `initial`.
    pub known_peers: BTreeMap<u64, Node>,
}

impl RaftConfig {
    /// etcd's defaults for a member that finds its log, or joins.
    pub fn new(member_id: MemberId, cluster_id: ClusterId) -> RaftConfig {
        RaftConfig {
            member_id,
            cluster_id,
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(1000),
            snapshot_catchup_entries: 5000,
            purge_entries_min: 1000,
            wal_bytes_max: 96 << 20,
            snapshot_bytes_per_second: 0,
            initial: None,
            known_peers: BTreeMap::new(),
        }
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// openraft's settings (DESIGN §6).
pub(crate) fn openraft(config: &RaftConfig, plant: Plant) -> Result<openraft::Config, StartError> {
    // openraft lets a follower wait for its leader's lease, which is `election_timeout_max` long, *and* for a
    // time drawn from min..max. etcd's followers wait for election..2 × election in all, so the lease takes
    // the fixed part and the drawn part spreads over the rest.
    let election_max = millis(config.election);
    // openraft takes no answer to a heartbeat that is older than the interval, and a leader without answers falls silent.
    // Round trips may be longer than etcd's interval (its guide says up to 1.5 times), so they get twice that, but
    // always four heartbeats in an election timeout.
    let heartbeat = millis(config.heartbeat);
    let heartbeat = heartbeat.max((heartbeat * 2).min(election_max / 4));
    let election_min = heartbeat + heartbeat / 8 + 1;
    let settings = openraft::Config {
        cluster_name: config.cluster_id.to_string(),
        heartbeat_interval: heartbeat,
        election_timeout_min: election_min,
        election_timeout_max: election_max,
        // The leader's lease lasts one longest election timeout; see `validate`.
        quorum_loss_probe_interval: Some(election_max.saturating_mul(2)),
        enable_leader_restore: Some(plant == Plant::RestoreLeader),
        enable_pre_vote: Some(true),
        allow_log_reversion: None,
        max_payload_entries: 4096,
        snapshot_policy: SnapshotPolicy::Never,
        // `upkeep` alone decides what is purged.
        max_in_snapshot_log_to_keep: u64::MAX,
        // A snapshot is streamed for as long as it makes progress; the transport bounds each step.
        install_snapshot_timeout: millis(Duration::from_secs(24 * 3600)),
        backoff: "10ms 20ms 40ms ...500ms".to_owned(),
        // Replication starts as soon as an append is queued, beside the leader's own disk write.
        broadcast_submitted_on_append: Some(true),
        ..openraft::Config::default()
    };
    let settings = settings
        .validate()
        .map_err(|e| StartError::Timings(e.to_string()))?;
    assert!(
        settings.enable_leader_restore == Some(false) || plant == Plant::RestoreLeader,
        "a restarted leader must not resume its term: it may have lost entries it had sent"
    );
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_defaults_and_its_extremes_are_accepted() {
        let mut config = RaftConfig::new(MemberId(1), ClusterId(2));
        openraft(&config, Plant::None).expect("defaults");
        config.heartbeat = Duration::from_millis(1);
        config.election = Duration::from_millis(5);
        openraft(&config, Plant::None).expect("fast");
        config.heartbeat = Duration::from_secs(9);
        config.election = Duration::from_secs(50);
        openraft(&config, Plant::None).expect("slow");
    }

    #[test]
    fn a_follower_waits_between_one_and_two_election_times_as_etcds_do() {
        let config = RaftConfig::new(MemberId(1), ClusterId(2));
        let settings = openraft(&config, Plant::None).expect("defaults");
        let (lease, drawn_max) = (settings.election_timeout_max, settings.election_timeout_max);
        let election = millis(config.election);
        assert!(
            lease >= election,
            "a living leader is never disturbed earlier"
        );
        assert!(
            lease + drawn_max <= 2 * election,
            "and a dead one is replaced by then"
        );
        assert!(
            settings.election_timeout_min * 4 < drawn_max,
            "votes must not be split by equal waits"
        );
    }

    #[test]
    fn an_election_shorter_than_a_heartbeat_is_refused() {
        let mut config = RaftConfig::new(MemberId(1), ClusterId(2));
        config.election = config.heartbeat;
        assert!(matches!(
            openraft(&config, Plant::None),
            Err(StartError::Timings(_))
        ));
    }
}
