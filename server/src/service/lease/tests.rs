//! Room `server/service`: leases on a running member, from the grant to the deleted key, beside the watch
//! that hears of it.

use super::*;
use crate::member::Member;
use crate::member::config::tests::config;
use crate::service::watch::NeedsLeader;
use std::path::Path;
use tenon_env::Env;
use tenon_proto::etcdserverpb::watch_request::RequestUnion;

#[test]
fn the_smallest_ttl_follows_the_election_timeout() {
    let of = |millis| ttl_seconds_min(Duration::from_millis(millis));
    assert_eq!(
        (of(1000), of(3000), of(100), of(50_000), of(2000)),
        (2, 5, 1, 75, 3)
    );
}

/// One member that elects itself within moments.
async fn member(dir: &Path) -> Member {
    let env: Env = tenon_env::real::env_without_peers();
    let mut config = config("m", &["http://localhost:2380"]);
    config.data_dir = dir.to_owned();
    (config.heartbeat, config.election) = (Duration::from_millis(20), Duration::from_millis(100));
    let member = Member::start(&env, config).await.expect("starts");
    member.wait_ready().await;
    member
}

async fn grant(member: &Member, id: i64, ttl: i64) -> Result<pb::LeaseGrantResponse, Error> {
    let request = pb::LeaseGrantRequest { id, ttl };
    member
        .services()
        .lease
        .grant(&Caller::default(), request)
        .await
}

async fn put(member: &Member, key: &'static str, lease: i64) {
    let request = pb::PutRequest {
        key: key.into(),
        lease,
        ..pb::PutRequest::default()
    };
    member
        .services()
        .kv
        .put(&Caller::default(), request)
        .await
        .expect("put");
}

async fn ttl(member: &Member, id: i64) -> pb::LeaseTimeToLiveResponse {
    let request = pb::LeaseTimeToLiveRequest { id, keys: true };
    member
        .services()
        .lease
        .time_to_live(&Caller::default(), request)
        .await
        .expect("answers")
}

type Renewals = mpsc::Receiver<Result<pb::LeaseKeepAliveResponse, Error>>;

fn keep_alive(member: &Member) -> (mpsc::Sender<pb::LeaseKeepAliveRequest>, Renewals) {
    let (ask, requests) = mpsc::channel(4);
    let (out, answers) = mpsc::channel(4);
    let lease = member.services().lease.clone();
    let env = member.services().context.env();
    env.spawn("keep-alive-test", async move {
        lease
            .keep_alive(&Caller::default(), NeedsLeader::Yes, requests, out)
            .await;
    });
    (ask, answers)
}

async fn renew(
    ask: &mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: &mut Renewals,
    id: i64,
) -> i64 {
    ask.send(pb::LeaseKeepAliveRequest { id })
        .await
        .expect("is heard");
    let answer = answers.recv().await.expect("answers").expect("no error");
    assert_eq!(answer.id, id);
    answer.ttl
}

/// A created watch of all keys with their previous pairs; it lasts as long as what asks.
async fn watch_all(
    member: &Member,
) -> (
    mpsc::Sender<pb::WatchRequest>,
    mpsc::Receiver<Result<pb::WatchResponse, Error>>,
) {
    let (ask, requests) = mpsc::channel(4);
    let (out, mut heard) = mpsc::channel(4);
    let watch = member.services().watch.clone();
    let env = member.services().context.env();
    env.spawn("watch-test", async move {
        watch
            .serve(Caller::default(), NeedsLeader::Yes, requests, out)
            .await;
    });
    let create = pb::WatchCreateRequest {
        key: b"\0"[..].into(),
        range_end: b"\0"[..].into(),
        prev_kv: true,
        ..pb::WatchCreateRequest::default()
    };
    let request_union = Some(RequestUnion::CreateRequest(create));
    let request = pb::WatchRequest { request_union };
    ask.send(request).await.expect("is heard");
    let first = heard.recv().await.expect("answers").expect("no error");
    assert!(first.created);
    (ask, heard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_while_renewed_and_its_end_deletes_its_keys() {
    let dir = tempfile::tempdir().expect("a folder");
    let member = member(dir.path()).await;
    assert_eq!(grant(&member, 5, 2).await.expect("granted").ttl, 2);
    assert_eq!(
        grant(&member, 5, 2).await.expect_err("in use"),
        Error::LeaseExist
    );
    put(&member, "b", 5).await;
    put(&member, "a", 5).await;
    put(&member, "stays", 0).await;
    let (ask, mut answers) = keep_alive(&member);
    assert_eq!(renew(&ask, &mut answers, 6).await, 0);
    for _ in 0..7 {
        member
            .services()
            .context
            .env()
            .sleep(Duration::from_millis(400))
            .await;
        assert_eq!(renew(&ask, &mut answers, 5).await, 2);
    }
    let info = ttl(&member, 5).await;
    assert_eq!((info.granted_ttl, info.keys.len()), (2, 2));

    let (_watch_ask, mut heard) = watch_all(&member).await;
    let ended = heard.recv().await.expect("answers").expect("no error");
    let keys: Vec<_> = ended
        .events
        .iter()
        .filter_map(|e| e.kv.as_ref())
        .map(|kv| &kv.key)
        .collect();
    assert_eq!(keys, ["a", "b"]);
    assert!(
        ended
            .events
            .iter()
            .all(|e| e.r#type == 1 && e.prev_kv.is_some())
    );
    assert_eq!(ttl(&member, 5).await.ttl, -1);
    assert_eq!(renew(&ask, &mut answers, 5).await, 0);
    // Its own task counts it, after the watch has heard of it.
    let counters = member.services().lease.counters();
    let env = member.services().context.env();
    let counted = async {
        while counters.expired.load(Ordering::Relaxed) == 0 {
            env.sleep(Duration::from_millis(5)).await;
        }
    };
    let counted = env.timeout(Duration::from_secs(10), counted).await;
    assert_eq!(
        (counted, counters.expired.load(Ordering::Relaxed)),
        (Some(()), 1)
    );
    member.shutdown().await;
    assert_eq!(heard.recv().await.expect("last word"), Err(Error::Stopped));
    assert_eq!(
        answers.recv().await.expect("last word"),
        Err(Error::Stopped)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_their_keys_outlive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = member(dir.path()).await;
    grant(&first, -7, 500).await.expect("granted");
    let drawn = grant(&first, 0, 100).await.expect("granted").id;
    assert!(drawn > 0);
    put(&first, "k", -7).await;
    first.shutdown().await;
    drop(first);
    let second = member(dir.path()).await;
    let info = ttl(&second, -7).await;
    assert_eq!((info.granted_ttl, info.keys), (500, vec!["k".into()]));
    let request = pb::LeaseLeasesRequest {};
    let listed = second
        .services()
        .lease
        .leases(&Caller::default(), request)
        .await
        .expect("lists");
    let ids: Vec<i64> = listed.leases.iter().map(|lease| lease.id).collect();
    assert_eq!(ids, [drawn, -7]);
    let revoke = pb::LeaseRevokeRequest { id: -7 };
    second
        .services()
        .lease
        .revoke(&Caller::default(), revoke)
        .await
        .expect("revoked");
    let range = pb::RangeRequest {
        key: "k".into(),
        ..pb::RangeRequest::default()
    };
    let left = second
        .services()
        .kv
        .range(&Caller::default(), range)
        .await
        .expect("reads");
    assert_eq!(left.count, 0);
    second.shutdown().await;
}
