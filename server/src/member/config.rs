//! Room `server/member`: what a member is told at its start. Plain data; the shell makes it from flags, the
//! simulator from a scenario.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tenon_proto::ids::{ClusterId, MemberId};
use tenon_raft::RaftConfig;
use tenon_storage::wal::WalOptions;
use tenon_storage::{EngineKind, StoreOptions};

/// How a member without data begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootstrapState {
    /// It founds the cluster named by the initial members.
    New,
    /// It was added to a running cluster.
    Existing,
}

/// How large the state may grow before writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// No limit.
    Off,
    /// Bytes in use.
    Bytes(u64),
}

impl Quota {
    /// etcd's default: 2 GiB.
    pub const DEFAULT: Quota = Quota::Bytes(2 << 30);

    /// The number told to clients; 0 when there is no limit.
    pub fn shown(self) -> i64 {
        match self {
            Quota::Off => 0,
            Quota::Bytes(n) => i64::try_from(n).unwrap_or(i64::MAX),
        }
    }
}

/// When history is compacted without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Never.
    Off,
    /// Keep this much time of history.
    Periodic(Duration),
    /// Keep this many revisions.
    Revision(u64),
}

/// Sizes and rhythms of storage; no flag sets them but the engine's. The simulator makes them small, so that
/// little work reaches every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The log.
    pub wal: WalOptions,
    /// Entries of the log that go at once, at least.
    pub purge_entries_min: u64,
    /// Bytes of the log above which old entries go, however many must be kept.
    pub wal_bytes_max: u64,
    /// The state and its engine.
    pub store: StoreOptions,
}

impl Default for Tuning {
    fn default() -> Tuning {
        let raft = RaftConfig::new(MemberId(0), ClusterId(0));
        Tuning {
            wal: WalOptions::default(),
            purge_entries_min: raft.purge_entries_min,
            wal_bytes_max: raft.wal_bytes_max,
            store: StoreOptions::default(),
        }
    }
}

impl Tuning {
    /// The defaults, with the engine that `--storage-engine` names.
    ///
    /// # Errors
    /// What is wrong with the name, or which feature this build lacks.
    pub fn on_engine(name: &str) -> Result<Tuning, String> {
        let mut tuning = Tuning::default();
        tuning.store.engine =
            EngineKind::read(name).map_err(|why| format!("--storage-engine {name:?}: {why}"))?;
        Ok(tuning)
    }
}

/// A member of a running cluster, as its members tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownMember {
    /// Its id.
    pub id: MemberId,
    /// Its name; empty until it published itself.
    pub name: String,
    /// Where peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it published itself.
    pub client_urls: Vec<String>,
    /// It does not vote yet.
    pub is_learner: bool,
}

/// A running cluster, as one of its members tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningCluster {
    /// Its id.
    pub id: ClusterId,
    /// Its members.
    pub members: Vec<KnownMember>,
}

/// How a member behaves towards its cluster; the default is etcd's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The running cluster that peers told of, when the data directory is empty: the one to join, or, for a
    /// member that would found one, the one it may have belonged to.
    pub running: Option<RunningCluster>,
    /// The member of `running` that this one is, when its host added it.
    pub joins_as: Option<MemberId>,
    /// The leader promotes learners that caught up.
    pub auto_promote_learners: bool,
    /// Period of comparing hashes with the other members; zero for never.
    pub corrupt_check: Duration,
    /// Compare hashes with the other members before serving.
    pub initial_corrupt_check: bool,
}

/// A member's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// Name told to the cluster.
    pub name: String,
    /// Data directory; the member's files are below `<data_dir>/member`.
    pub data_dir: PathBuf,
    /// Folder of the write-ahead log when it is not `<data_dir>/member/wal`.
    pub wal_dir: Option<PathBuf>,
    /// Client URLs told to the cluster.
    pub advertise_client_urls: Vec<String>,
    /// Own peer URLs told to the cluster.
    pub advertise_peer_urls: Vec<String>,
    /// Members at the very first start: name to peer URLs (sorted).
    pub initial_cluster: BTreeMap<String, Vec<String>>,
    /// Whether the first start founds the cluster.
    pub initial_state: BootstrapState,
    /// Part of what member and cluster ids are hashed from.
    pub cluster_token: String,
    /// Time between heartbeats of a leader.
    pub heartbeat: Duration,
    /// Shortest time without a leader before an election.
    pub election: Duration,
    /// Log entries kept for members that are behind.
    pub snapshot_catchup_entries: u64,
    /// Size limit.
    pub quota: Quota,
    /// Operations in each list of a transaction at most.
    pub max_txn_ops: usize,
    /// Encoded size of a request at most, in bytes.
    pub max_request_bytes: usize,
    /// Automatic compaction.
    pub compaction: Compaction,
    /// Keys looked at in one step of the sweep after a compaction.
    pub compaction_batch: usize,
    /// Pause between such steps.
    pub compaction_pause: Duration,
    /// Idle time after which a watch that asked for it hears of progress.
    pub progress_interval: Duration,
    /// Applies and reads that take longer are logged and counted.
    pub warn_apply: Duration,
    /// Learners in the membership at most.
    pub max_learners: usize,
    /// Refuse membership changes that endanger the quorum.
    pub strict_reconfig: bool,
    /// Towards the cluster.
    pub cluster: ClusterOptions,
    /// Of storage.
    pub tuning: Tuning,
}

impl MemberConfig {
    /// A sole founder of a cluster of its own, with etcd's defaults for everything not named here.
    pub fn sole(name: &str, data_dir: impl Into<PathBuf>, peer_urls: Vec<String>) -> MemberConfig {
        MemberConfig {
            name: name.to_owned(),
            data_dir: data_dir.into(),
            wal_dir: None,
            advertise_client_urls: vec!["http://localhost:2379".to_owned()],
            advertise_peer_urls: peer_urls.clone(),
            initial_cluster: BTreeMap::from([(name.to_owned(), peer_urls)]),
            initial_state: BootstrapState::New,
            cluster_token: "etcd-cluster".to_owned(),
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(1000),
            snapshot_catchup_entries: 5000,
            quota: Quota::DEFAULT,
            max_txn_ops: 128,
            max_request_bytes: 1_572_864,
            compaction: Compaction::Off,
            compaction_batch: 1000,
            compaction_pause: Duration::from_millis(10),
            progress_interval: Duration::from_secs(600),
            warn_apply: Duration::from_millis(100),
            max_learners: 1,
            strict_reconfig: true,
            cluster: ClusterOptions::default(),
            tuning: Tuning::default(),
        }
    }

    /// The sizes and rhythms of the state.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            warn_apply: self.warn_apply,
            sweep_keys: self.compaction_batch,
            sweep_pause: self.compaction_pause,
            ..self.tuning.store
        }
    }

    /// How long a proposal or a linearizable read may take: etcd's 5 s plus two election timeouts.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election
    }

    /// Checks of a first start that need the whole configuration, in etcd's words. A member that joins is
    /// known to the cluster by its peer URLs already, so what it advertises does not matter.
    pub fn check_bootstrap(&self) -> Result<(), String> {
        let Some(own) = self.initial_cluster.get(&self.name) else {
            return Err(format!(
                "couldn't find local name {:?} in the initial cluster configuration",
                self.name
            ));
        };
        if self.initial_state == BootstrapState::New {
            self.check_advertised(own)?;
        }
        let mut urls: Vec<&String> = self.initial_cluster.values().flatten().collect();
        urls.sort();
        if urls.windows(2).any(|pair| pair[0] == pair[1]) {
            let all = self.initial_cluster.iter();
            let shown: Vec<String> = all
                .flat_map(|(name, urls)| urls.iter().map(move |u| format!("{name}={u}")))
                .collect();
            return Err(format!(
                "initial cluster {} has duplicate url",
                shown.join(",")
            ));
        }
        Ok(())
    }

    fn check_advertised(&self, own: &[String]) -> Result<(), String> {
        let told = &self.advertise_peer_urls;
        let named = |urls: &[&String]| {
            let shown: Vec<String> = urls.iter().map(|u| format!("{}={u}", self.name)).collect();
            shown.join(",")
        };
        let why = if told.len() != own.len() {
            format!("len({}) != len({})", go_list(told), go_list(own))
        } else {
            let pairs = told.iter().zip(own).find(|(a, b)| a != b);
            pairs.map_or(String::new(), |(a, b)| {
                format!("resolved urls: {a:?} != {b:?}")
            })
        };
        let missing: Vec<&String> = own.iter().filter(|u| !told.contains(u)).collect();
        if !missing.is_empty() {
            return Err(format!(
                "--initial-cluster has {} but missing from --initial-advertise-peer-urls={} ({why})",
                named(&missing),
                told.join(",")
            ));
        }
        let missing: Vec<String> = told.iter().filter(|u| !own.contains(u)).cloned().collect();
        if !missing.is_empty() {
            return Err(format!(
                "--initial-advertise-peer-urls has {} but missing from --initial-cluster={}",
                missing.join(","),
                named(&own.iter().collect::<Vec<_>>())
            ));
        }
        Ok(())
    }
}

fn go_list(urls: &[String]) -> String {
    let quoted: Vec<String> = urls.iter().map(|u| format!("{u:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A configuration for tests, with etcd's defaults.
    pub(crate) fn config(name: &str, peer_urls: &[&str]) -> MemberConfig {
        let urls = peer_urls.iter().map(|u| (*u).to_owned()).collect();
        MemberConfig::sole(name, "d", urls)
    }

    #[test]
    fn engines_are_known_by_name() {
        let engine = |name| Tuning::on_engine(name).map(|tuning| tuning.store.engine);
        assert_eq!(engine("redb"), Ok(EngineKind::Redb));
        assert_eq!(engine("memory"), Ok(EngineKind::Memory));
        assert!(engine("bolt").is_err_and(|why| why.contains("redb, sled or memory")));
        if cfg!(feature = "engine-sled") {
            assert_eq!(engine("sled"), Ok(EngineKind::Sled));
        } else {
            assert!(engine("sled").is_err_and(|why| why.contains("engine-sled")));
        }
    }

    #[test]
    fn first_starts_that_contradict_themselves_are_refused() {
        let mut lost = config("tt", &["http://a:1"]);
        lost.initial_cluster = BTreeMap::from([("b".to_owned(), vec!["http://a:1".to_owned()])]);
        let mut differs = config("tt", &["http://a:1"]);
        differs.advertise_peer_urls = vec!["http://a:2".to_owned()];
        let mut more = config("tt", &["http://a:1"]);
        more.advertise_peer_urls.push("http://a:2".to_owned());
        let mut twice = config("tt", &["http://a:1"]);
        twice
            .initial_cluster
            .insert("b".to_owned(), vec!["http://a:1".to_owned()]);
        let cases = [
            (
                lost,
                "couldn't find local name \"tt\" in the initial cluster configuration",
            ),
            (
                differs,
                "--initial-cluster has tt=http://a:1 but missing from \
                 --initial-advertise-peer-urls=http://a:2 (resolved urls: \"http://a:2\" != \
                 \"http://a:1\")",
            ),
            (
                more,
                "--initial-advertise-peer-urls has http://a:2 but missing from \
                 --initial-cluster=tt=http://a:1",
            ),
            (
                twice,
                "initial cluster b=http://a:1,tt=http://a:1 has duplicate url",
            ),
        ];
        for (config, text) in cases {
            assert_eq!(config.check_bootstrap(), Err(text.to_owned()));
        }
        assert_eq!(config("tt", &["http://a:1"]).check_bootstrap(), Ok(()));
    }
}
