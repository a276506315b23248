//! Room `sim`, test of room `raft`: members of one cluster in the simulated world.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tenon_env::Env;
use tenon_proto::command::{Command, command};
use tenon_proto::etcdserverpb::{PutRequest, RangeRequest};
use tenon_proto::ids::{ClusterId, LogIndex, MemberId, Revision};
use tenon_proto::log::{Membership, Node, NodeSet};
use tenon_raft::{Applied, ProposeError, RaftConfig, RaftHandle};
use tenon_sim::{CrashMode, Sim, default_url};
use tenon_storage::wal::{Wal, WalOptions};
use tenon_storage::{Store, StoreOptions};

pub struct Member {
    pub env: Env,
    pub store: Store,
    pub wal: Wal,
    pub raft: RaftHandle,
}

pub struct World {
    pub sim: Sim,
    pub members: BTreeMap<u64, Member>,
    pub initial: Membership,
    pub catchup_entries: u64,
    pub wal_bytes_max: u64,
    pub snapshot_rate: u64,
}

pub fn node(id: u64) -> Node {
    Node {
        peer_urls: vec![default_url(id)],
        birth: "tkn".to_owned(),
    }
}

impl World {
    /// Members 1 to `count`, started together.
    pub fn new(seed: u64, count: u64) -> World {
        let ids: Vec<u64> = (1..=count).collect();
        World::begin(seed, &ids, &ids)
    }

    /// A cluster of `members`, of which `started` are started.
    pub fn begin(seed: u64, members: &[u64], started: &[u64]) -> World {
        let ids = members.to_vec();
        let initial = Membership {
            configs: vec![NodeSet { ids: ids.clone() }],
            nodes: ids.iter().map(|id| (*id, node(*id))).collect(),
        };
        let sim = Sim::new(seed);
        let mut world = World {
            sim,
            members: BTreeMap::new(),
            initial,
            catchup_entries: 5000,
            wal_bytes_max: 96 << 20,
            snapshot_rate: 0,
        };
        for &id in started {
            let initial = Some(world.initial.clone());
            world.start(id, initial);
        }
        world
    }

    /// Starts a member that was never there, or restarts a dead one.
    pub fn start(&mut self, id: u64, initial: Option<Membership>) {
        let known = self.members.remove(&id).is_some();
        let env = if known {
            self.sim.restart(id)
        } else {
            self.sim.node(id)
        };
        let mut config = RaftConfig::new(MemberId(id), ClusterId(7));
        config.initial = initial;
        config.snapshot_catchup_entries = self.catchup_entries;
        config.wal_bytes_max = self.wal_bytes_max;
        config.snapshot_bytes_per_second = self.snapshot_rate;
        let dir = Path::new("/data/member");
        let member = async {
            env.disk.create_dir_all_synced(dir).expect("a folder");
            let store = Store::open(&env, dir, StoreOptions::default()).expect("a store");
            store.start(&env);
            let options = WalOptions {
                segment_bytes: 64 << 10,
                ..WalOptions::default()
            };
            let (wal, recovery) = Wal::open(&env, &dir.join("wal"), options).expect("a log");
            let raft = RaftHandle::start(&env, config, store.clone(), (wal.clone(), recovery));
            let raft = raft.await.expect("a member");
            Member {
                env: env.clone(),
                store,
                wal,
                raft,
            }
        };
        let member = self.sim.run_until(member).expect("a start");
        self.members.insert(id, member);
    }

    /// Restarts a dead member whose disk was lost.
    pub fn restart_wiped(&mut self, id: u64) {
        let env = self.sim.restart(id);
        env.disk
            .remove_dir_all(Path::new("/data"))
            .expect("a wiped disk");
        self.sim.kill(id, CrashMode::Kept);
        let initial = Some(self.initial.clone());
        self.start(id, initial);
    }

    pub fn kill(&mut self, id: u64) {
        self.sim.kill(id, CrashMode::Torn);
    }

    pub fn restart(&mut self, id: u64) {
        self.start(id, None);
    }

    pub fn member(&self, id: u64) -> &Member {
        &self.members[&id]
    }

    pub fn run<F: Future>(&self, future: F) -> F::Output {
        match self.sim.run_until(future) {
            Ok(out) => out,
            Err(stuck) => panic!("seed {}: {stuck}", self.sim.seed()),
        }
    }

    /// Puts through member `via`.
    pub fn put(&self, via: u64, key: &str, value: &str) -> Result<Applied, ProposeError> {
        self.run(self.member(via).put(key, value, Duration::from_secs(10)))
    }

    /// A linearizable read through member `via`.
    pub fn get(&self, via: u64, key: &str) -> Option<String> {
        let member = self.member(via);
        let deadline = member.env.now() + Duration::from_secs(10);
        self.run(member.raft.read_index(deadline)).expect("a read");
        member.get(key)
    }

    pub fn alive(&self) -> Vec<u64> {
        self.members
            .keys()
            .copied()
            .filter(|id| self.sim.is_alive(*id))
            .collect()
    }

    /// The leader that all living members in `among` agree on.
    pub fn leader(&self, among: &[u64]) -> u64 {
        let agree = async {
            loop {
                let views: Vec<_> = among
                    .iter()
                    .map(|id| self.member(*id).raft.status())
                    .collect();
                if let Some(leader) = views[0].leader
                    && among.contains(&leader.0)
                    && views
                        .iter()
                        .all(|v| v.leader == Some(leader) && v.term == views[0].term)
                {
                    return leader.0;
                }
                self.sim.sleep(Duration::from_millis(20)).await;
            }
        };
        self.within(60, "a leader", agree)
    }

    pub fn within<F: Future>(&self, seconds: u64, what: &str, future: F) -> F::Output {
        let limit = self.sim.sleep(Duration::from_secs(seconds));
        let (future, limit) = (std::pin::pin!(future), std::pin::pin!(limit));
        match self.run(futures_util::future::select(future, limit)) {
            futures_util::future::Either::Left((out, _)) => out,
            futures_util::future::Either::Right(_) => {
                panic!("seed {}: no {what} within {seconds} s", self.sim.seed())
            }
        }
    }

    /// Waits until these members have applied `index`.
    pub fn applied(&self, among: &[u64], index: LogIndex) {
        let all = async {
            while among
                .iter()
                .any(|id| self.member(*id).raft.status().applied < index)
            {
                self.sim.sleep(Duration::from_millis(20)).await;
            }
        };
        self.within(120, "catching up", all);
    }

    /// Asserts that these members hold one state.
    pub fn agree(&self, among: &[u64]) {
        let sums: Vec<_> = among
            .iter()
            .map(|id| {
                let store = &self.member(*id).store;
                let sum = store.hash_kv(Revision(0)).expect("a sum");
                (sum.hash, sum.hash_revision, store.membership())
            })
            .collect();
        assert!(
            sums.windows(2).all(|w| w[0] == w[1]),
            "seed {}: {sums:x?}",
            self.sim.seed()
        );
    }
}

impl Member {
    pub async fn put(
        &self,
        key: &str,
        value: &str,
        within: Duration,
    ) -> Result<Applied, ProposeError> {
        let put = PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..Default::default()
        };
        let body = Some(command::Body::Put(put));
        let command = Command {
            body,
            ..Default::default()
        };
        self.raft.propose(command, self.env.now() + within).await
    }

    pub fn get(&self, key: &str) -> Option<String> {
        let range = RangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        let range = self.store.range(&range).expect("a range");
        range
            .kvs
            .first()
            .map(|kv| String::from_utf8_lossy(&kv.value).into_owned())
    }
}
