//! Room `raft`, test: one voter from bootstrap to restart, on a real disk.

#![allow(
    clippy::disallowed_methods,
    reason = "the test moves files as an operator would"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tenon_env::{Env, Instant, real};
use tenon_proto::command::{Command, command, command_result};
use tenon_proto::etcdserverpb::{PutRequest, RangeRequest};
use tenon_proto::ids::{ClusterId, LogIndex, MemberId};
use tenon_proto::log::{Membership, Node, NodeSet};
use tenon_raft::{ProposeError, RaftConfig, RaftHandle, Reason, StartError};
use tenon_storage::wal::{Wal, WalOptions};
use tenon_storage::{Store, StoreOptions};

const ME: MemberId = MemberId(0xabc);

struct Member {
    env: Env,
    store: Store,
    wal: Wal,
    raft: RaftHandle,
}

fn config(first: bool) -> RaftConfig {
    let node = Node {
        peer_urls: vec!["http://127.0.0.1:0".to_owned()],
        birth: "tkn".to_owned(),
    };
    let mut config = RaftConfig::new(ME, ClusterId(7));
    config.initial = first.then(|| Membership {
        configs: vec![NodeSet { ids: vec![ME.0] }],
        nodes: BTreeMap::from([(ME.0, node)]),
    });
    config
}

async fn start(dir: &Path, config: RaftConfig) -> Member {
    open(dir, config).await.expect("a member")
}

async fn open(dir: &Path, config: RaftConfig) -> Result<Member, StartError> {
    let env = real::env_without_peers();
    let store = Store::open(&env, dir, StoreOptions::default()).expect("a store");
    store.start(&env);
    let options = WalOptions {
        segment_bytes: 1 << 20,
        ..WalOptions::default()
    };
    let (wal, recovery) = Wal::open(&env, &dir.join("wal"), options).expect("a log");
    let raft = RaftHandle::start(&env, config, store.clone(), (wal.clone(), recovery)).await;
    match raft {
        Ok(raft) => Ok(Member {
            env,
            store,
            wal,
            raft,
        }),
        Err(refused) => {
            store.shutdown().await;
            wal.close().await;
            Err(refused)
        }
    }
}

impl Member {
    fn soon(&self) -> Instant {
        self.env.now() + Duration::from_secs(20)
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<(LogIndex, i64), ProposeError> {
        let put = PutRequest {
            key: key.to_owned().into(),
            value: value.to_vec().into(),
            ..Default::default()
        };
        let body = Some(command::Body::Put(put));
        let command = Command {
            origin: ME.0,
            body,
            ..Default::default()
        };
        let applied = self.raft.propose(command, self.soon()).await?;
        let Some(command_result::Outcome::Put(put)) = applied.result.outcome else {
            panic!("a put answers a put, not {:?}", applied.result)
        };
        Ok((
            LogIndex(applied.index),
            put.header.expect("a header").revision,
        ))
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let range = RangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        let range = self.store.range(&range).expect("a range");
        range.kvs.first().map(|kv| kv.value.to_vec())
    }

    async fn stop(self) {
        self.raft.shutdown().await;
        self.store.shutdown().await;
        self.wal.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_read_and_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let member = start(dir.path(), config(true)).await;
    let (index, revision) = member.put("a", b"1").await.expect("a put");
    assert_eq!(revision, 2);
    assert!(member.raft.read_index(member.soon()).await.expect("a read") >= index);
    assert_eq!(member.get("a").as_deref(), Some(&b"1"[..]));
    let status = member.raft.status();
    assert_eq!((status.leader, status.is_leader), (Some(ME), true));
    assert_eq!(status.voters, [ME].into());
    assert!(status.applied >= index && status.committed >= index);
    member.stop().await;

    let member = start(dir.path(), config(true)).await;
    assert!(member.raft.wait_recovered(member.soon()).await);
    assert_eq!(member.get("a").as_deref(), Some(&b"1"[..]));
    let (later, revision) = member.put("b", b"2").await.expect("a put");
    assert!(later > index);
    assert_eq!(revision, 3);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_removed_or_put_back_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let [log, old, aside] = ["wal", "old", "aside"].map(|name| dir.path().join(name));
    let member = start(dir.path(), config(true)).await;
    member.put("a", b"1").await.expect("a put");
    member.stop().await;
    std::fs::create_dir(&old).expect("a folder");
    for file in std::fs::read_dir(&log).expect("a folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), old.join(file.file_name())).expect("a copy");
    }
    let member = start(dir.path(), config(true)).await;
    member.put("b", b"2").await.expect("a put");
    member.stop().await;

    std::fs::rename(&log, &aside).expect("moved away");
    for expected in [
        "there is no write-ahead log",
        "there is no write-ahead log",
        "ends at",
    ] {
        if expected == "ends at" {
            std::fs::remove_dir_all(&log).expect("removed");
            std::fs::rename(&old, &log).expect("put back");
        }
        let refused = open(dir.path(), config(true)).await.err().expect("refused");
        assert!(refused.to_string().contains(expected), "{refused}");
    }

    std::fs::remove_dir_all(&log).expect("removed");
    std::fs::rename(&aside, &log).expect("put back");
    let member = start(dir.path(), config(true)).await;
    assert!(member.raft.wait_recovered(member.soon()).await);
    assert_eq!(member.get("b").as_deref(), Some(&b"2"[..]));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_entries_and_each_gets_its_own_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let member = start(dir.path(), config(true)).await;
    let puts = (0..3000).map(|n| {
        let (key, value) = (format!("key{n:04}"), format!("value{n}"));
        let member = &member;
        async move { member.put(&key, value.as_bytes()).await.expect("a put") }
    });
    let answers = futures_util::future::join_all(puts).await;
    let mut revisions: Vec<i64> = answers.iter().map(|(_, revision)| *revision).collect();
    revisions.sort_unstable();
    assert!(
        revisions.iter().copied().eq(2..3002),
        "each put has a revision of its own"
    );
    let entries: std::collections::BTreeSet<_> = answers.iter().map(|(index, _)| index).collect();
    assert!(
        entries.len() < 1000,
        "{} entries for 3000 puts",
        entries.len()
    );
    for n in [0, 1500, 2999] {
        assert_eq!(
            member.get(&format!("key{n:04}")),
            Some(format!("value{n}").into_bytes())
        );
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_purged_once_the_engine_holds_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut config = config(true);
    config.snapshot_catchup_entries = 10;
    config.wal_bytes_max = 2 << 20;
    let member = start(dir.path(), config.clone()).await;
    for n in 0..200 {
        member
            .put(&format!("key{n}"), &vec![n; 50_000])
            .await
            .expect("a put");
    }
    let wait = async {
        while member.wal.log_state().0.is_none() || member.wal.size().0 > 4 << 20 {
            member.env.sleep(Duration::from_millis(50)).await;
        }
    };
    member
        .env
        .timeout(Duration::from_secs(20), wait)
        .await
        .expect("the log is cut");
    let revision = member.store.revision();
    member.stop().await;
    let member = start(dir.path(), config).await;
    assert!(member.raft.wait_recovered(member.soon()).await);
    assert_eq!(member.store.revision(), revision);
    assert_eq!(member.get("key0"), Some(vec![0; 50_000]));
    assert_eq!(member.get("key199"), Some(vec![199; 50_000]));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_member_answers_everybody() {
    let dir = tempfile::tempdir().expect("a folder");
    let member = start(dir.path(), config(true)).await;
    member.put("a", b"1").await.expect("a put");
    let soon = member.soon();
    let waiting = {
        let raft = member.raft.clone();
        let body = Some(command::Body::Put(PutRequest {
            key: "b".into(),
            ..Default::default()
        }));
        let commands = (0..500).map(move |_| {
            let command = Command {
                body: body.clone(),
                ..Default::default()
            };
            let raft = raft.clone();
            async move { raft.propose(command, soon).await }
        });
        futures_util::future::join_all(commands)
    };
    let (outcomes, ()) = futures_util::future::join(waiting, member.raft.shutdown()).await;
    assert_eq!(outcomes.len(), 500);
    assert_eq!(
        member.put("c", b"3").await,
        Err(ProposeError::NotProposed(Reason::Stopping))
    );
    assert!(member.raft.read_index(soon).await.is_err());
    member.store.shutdown().await;
    member.wal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_deadlines_hold() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut config = config(true);
    let initial = config.initial.as_mut().expect("a first configuration");
    initial.configs[0].ids.push(0xdef);
    initial.nodes.insert(0xdef, Node::default());
    let member = start(dir.path(), config).await;
    let deadline = member.env.now() + Duration::from_millis(300);
    let body = Some(command::Body::Put(PutRequest {
        key: "b".into(),
        ..Default::default()
    }));
    let command = Command {
        body,
        ..Default::default()
    };
    let proposed = member.raft.propose(command, deadline).await;
    assert_eq!(proposed, Err(ProposeError::NotProposed(Reason::Timeout)));
    let read = member.raft.read_index(deadline).await;
    assert_eq!(read.map_err(|e| e.0), Err(Reason::Timeout));
    assert!(
        !member
            .raft
            .wait_recovered(member.env.now() + Duration::from_millis(50))
            .await
    );
    assert_eq!(member.raft.status().leader, None);
    member.stop().await;
}
