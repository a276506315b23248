//! Room `server/member`, test: a member's snapshot, taken while it serves, becomes other clusters.

use super::super::Member;
use super::super::config::tests::config;
use super::*;
use tenon_env::Disk;
use tenon_env::OpenMode;
use tenon_env::real::{RealDisk, env_without_peers};
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::etcdserverpb as pb;
use tenon_storage::EngineKind;

const URL: &str = "http://localhost:2380";

fn on(dir: &Path, token: &str) -> MemberConfig {
    let mut config = config("m", &[URL]);
    config.data_dir = dir.to_owned();
    config.cluster_token = token.to_owned();
    config
}

async fn start(config: &MemberConfig) -> Member {
    let member = Member::start(&env_without_peers(), config.clone())
        .await
        .expect("starts");
    member.wait_ready().await;
    member
}

async fn put(member: &Member, key: &str, value: Vec<u8>, lease: i64) -> i64 {
    let request = pb::PutRequest {
        key: key.to_owned().into(),
        value: value.into(),
        lease,
        ..Default::default()
    };
    let kv = &member.services().kv;
    let response = kv.put(&Caller::default(), request).await.expect("puts");
    response.header.expect("a header").revision
}

async fn range(
    member: &Member,
    revision: i64,
) -> Result<pb::RangeResponse, tenon_proto::error::Error> {
    let request = pb::RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        revision,
        ..Default::default()
    };
    member
        .services()
        .kv
        .range(&Caller::default(), request)
        .await
}

async fn hash(member: &Member, revision: i64) -> (u32, i64) {
    let request = pb::HashKvRequest { revision };
    let maintenance = &member.services().maintenance;
    let hash = maintenance.hash_kv(&Caller::default(), request).await;
    let hash = hash.expect("a hash");
    (hash.hash, hash.compact_revision)
}

/// Everything of one member: keys with history, a lease, a compaction, a deletion.
async fn fill(member: &Member) {
    let lease = pb::LeaseGrantRequest { id: 77, ttl: 600 };
    let lessor = &member.services().lease;
    lessor
        .grant(&Caller::default(), lease)
        .await
        .expect("granted");
    for i in 0..40 {
        put(member, &format!("k{}", i % 11), vec![b'v'; i * 700], 0).await;
    }
    put(member, "leased", b"v".to_vec(), 77).await;
    let compact = pb::CompactionRequest {
        revision: 20,
        physical: true,
    };
    let kv = &member.services().kv;
    kv.compact(&Caller::default(), compact)
        .await
        .expect("compacts");
    let delete = pb::DeleteRangeRequest {
        key: "k3".into(),
        ..Default::default()
    };
    kv.delete_range(&Caller::default(), delete)
        .await
        .expect("deletes");
}

/// Takes a snapshot into a file; every answer must be as etcd's.
async fn save(member: &Member, file: &Path) {
    let (out, mut answers) = mpsc::channel(2);
    let maintenance = member.services().maintenance.clone();
    let sending = async move {
        let request = pb::SnapshotRequest {};
        maintenance.snapshot(&Caller::default(), request, out).await;
    };
    let taking = async {
        let mut all = Vec::new();
        let mut before: Option<pb::SnapshotResponse> = None;
        while let Some(answer) = answers.recv().await {
            let answer = answer.expect("no error");
            assert!(answer.header.is_none() && answer.blob.len() <= 32 << 10);
            assert_eq!(answer.version, "3.7.0");
            if let Some(before) = &before {
                let left = before.remaining_bytes;
                if left > 0 {
                    assert_eq!(left - answer.remaining_bytes, answer.blob.len() as u64);
                } else {
                    assert_eq!(answer.blob.len(), 32, "the hash comes by itself");
                }
            }
            all.extend_from_slice(&answer.blob);
            before = Some(answer);
        }
        assert_eq!(before.expect("answers").blob.len(), 32);
        all
    };
    let ((), all) = tokio::join!(sending, taking);
    assert_eq!(all.len() % 512, 32, "etcdctl looks at that");
    let handle = RealDisk.open(file, OpenMode::CreateNew).expect("a file");
    handle.write_all_at(&all, 0).expect("written");
}

fn source(file: &Path) -> Source {
    Source {
        file: file.to_owned(),
        check: HashCheck::Verify,
        bump_revision: 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_becomes_a_new_cluster_with_the_same_keys() {
    let base = tempfile::tempdir().expect("a folder");
    let (env, file) = (env_without_peers(), base.path().join("snapshot"));
    let original = on(&base.path().join("a"), "old");
    let member = start(&original).await;
    fill(&member).await;
    save(&member, &file).await;
    let now = range(&member, 0).await.expect("a range");
    let revision = now.header.expect("a header").revision;
    let want = (
        now.kvs.clone(),
        hash(&member, 0).await,
        hash(&member, 30).await,
    );
    put(&member, "afterwards", b"v".to_vec(), 0).await;
    let old_cluster = member.services().context.cluster();
    member.shutdown().await;

    for (number, engine) in [EngineKind::Redb, EngineKind::Memory]
        .into_iter()
        .enumerate()
    {
        let mut target = on(&base.path().join(format!("b{number}")), "new");
        target.tuning.store.engine = engine;
        let restored = restore(&env, &target, source(&file)).await;
        let (identity, at) = restored.expect("restored");
        assert_eq!(at.get(), revision);
        assert_ne!(
            identity.cluster, old_cluster,
            "another token, another cluster"
        );
        for life in 0..2 {
            let member = start(&target).await;
            let now = range(&member, 0).await.expect("a range");
            let old = range(&member, 30).await.expect("history too");
            assert_eq!(now.header.expect("a header").revision, revision + life);
            if life == 0 {
                let hashes = (hash(&member, 0).await, hash(&member, 30).await);
                assert_eq!((now.kvs, hashes.0, hashes.1), want);
            }
            assert_eq!(old.header.expect("a header").revision, revision + life);
            assert!(matches!(
                range(&member, 10).await,
                Err(tenon_proto::error::Error::Compacted)
            ));
            let store = member.services().context.store();
            assert_eq!(store.leases().lease_of(b"leased"), 77);
            assert_eq!(store.members().len(), 1);
            assert_eq!(store.members()[0].id, identity.member);
            put(&member, &format!("new{life}"), b"v".to_vec(), 0).await;
            member.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bumped_revision_hides_the_old_history() {
    let base = tempfile::tempdir().expect("a folder");
    let (env, file) = (env_without_peers(), base.path().join("snapshot"));
    let member = start(&on(&base.path().join("a"), "old")).await;
    fill(&member).await;
    save(&member, &file).await;
    let now = range(&member, 0).await.expect("a range");
    let revision = now.header.expect("a header").revision;
    member.shutdown().await;
    let target = on(&base.path().join("b"), "new");
    let bumped = Source {
        bump_revision: 1_000_000,
        ..source(&file)
    };
    let (_, at) = restore(&env, &target, bumped).await.expect("restored");
    assert_eq!(at.get(), revision + 1_000_000);
    let member = start(&target).await;
    let again = range(&member, 0).await.expect("a range");
    assert_eq!(again.kvs, now.kvs);
    assert!(range(&member, revision).await.is_err(), "compacted");
    let next = put(&member, "k", b"v".to_vec(), 0).await;
    assert_eq!(next, revision + 1_000_001);
    member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_restored_leaves_nothing() {
    let base = tempfile::tempdir().expect("a folder");
    let (env, file) = (env_without_peers(), base.path().join("snapshot"));
    let original = on(&base.path().join("a"), "old");
    let member = start(&original).await;
    fill(&member).await;
    save(&member, &file).await;
    member.shutdown().await;
    let used = restore(&env, &original, source(&file)).await;
    let text = used.expect_err("in use").to_string();
    assert!(text.ends_with("not empty or could not be read"), "{text}");
    let handle = RealDisk.open(&file, OpenMode::ReadWrite).expect("a file");
    handle.write_all_at(b"!", 40_000).expect("damaged");
    let target = on(&base.path().join("b"), "new");
    let damaged = restore(&env, &target, source(&file)).await;
    let text = damaged.expect_err("damaged").to_string();
    assert!(text.contains("damaged"), "{text}");
    let left = RealDisk.list(&target.data_dir).expect("the directory");
    assert_eq!(left, [], "so that the next try finds it empty");
    let missing = restore(&env, &target, source(&base.path().join("none"))).await;
    assert!(missing.is_err());
}
