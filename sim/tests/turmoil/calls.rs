//! Room `sim`, L2: how calls end when nothing answers: by their deadline, by pings, and not at all without either.

use super::dial;
use super::each;
use super::story::Story;
use super::world::{Act, World};
use std::time::Duration;
use tenon_client::proto::code::Code;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::etcdserverpb::kv_client::KvClient;
use tenon_client::proto::etcdserverpb::watch_client::WatchClient;
use tenon_client::proto::key_range::KeyRange;
use tenon_client::{WatchOptions, request};
use tenon_sim::SimRng;
use tonic::transport::Channel;
use tonic::{Request, Status};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

async fn until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(now())).await;
}

async fn put(channel: &Channel, deadline: Option<Duration>) -> Result<i64, Status> {
    let mut call = Request::new(request::put("k", "v"));
    if let Some(deadline) = deadline {
        call.set_timeout(deadline);
    }
    let answer = KvClient::new(channel.clone()).put(call).await?;
    Ok(answer.into_inner().header.unwrap_or_default().revision)
}

/// How long it took, and how it ended.
async fn timed<T>(call: impl Future<Output = T>) -> (Duration, T) {
    let began = now();
    let out = call.await;
    (now() - began, out)
}

/// Nothing arrives for a while; the connection lives on.
fn held(seed: u64) -> Story {
    let mut world = World::new(seed, &[]);
    let mut rng = SimRng::fork(seed, "deadline", 0);
    let deadline = Duration::from_millis(rng.between(200, 2_500));
    world.at(secs(3), Act::Hold("caller"));
    world.at(secs(7), Act::Release("caller"));
    let (story, server) = (world.story.clone(), world.server.clone());
    world.client("caller", async move {
        let channel = dial::channel();
        let client = dial::client(deadline);
        put(&channel, None).await.expect("answered");
        client.put(request::put("k", "v")).await.expect("answered");
        let open = server.taken();
        until(secs(3) + Duration::from_millis(50)).await;
        let (took, ended) = timed(client.put(request::put("k", "v"))).await;
        let error = ended.expect_err("nothing arrives");
        story.tell("caller", format!("ours after {took:?}: {error}"));
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        assert!(
            took >= deadline && took <= deadline + Duration::from_millis(2),
            "{took:?}"
        );
        until(secs(7)).await;
        // What was held arrives now, the calls that were given up too; the connections go on.
        let ours = client.put(request::put("k", "v")).await.expect("answered");
        let theirs = put(&channel, Some(secs(1))).await.expect("answered");
        story.tell("caller", format!("{ours:?} {theirs}"));
        assert_eq!(server.taken(), open, "no new connection was needed");
    });
    world.run()
}

/// The server is gone: its host answers, or nothing does.
fn gone(seed: u64) -> Story {
    let mut world = World::new(seed, &[]);
    let cut = seed.is_multiple_of(2);
    world.at(secs(3), if cut { Act::Cut("caller") } else { Act::Crash });
    let story = world.story.clone();
    world.client("caller", async move {
        let client = dial::client(secs(2));
        client.put(request::put("k", "v")).await.expect("answered");
        until(secs(3) + Duration::from_millis(50)).await;
        let (took, ended) = timed(client.get("k")).await;
        let error = ended.expect_err("nobody is there");
        story.tell("caller", format!("after {took:?}: {error}"));
        let fits = [Code::Unavailable, Code::DeadlineExceeded].contains(&error.code());
        assert!(
            fits && took <= secs(2) + Duration::from_millis(2),
            "{took:?}: {error}"
        );
    });
    world.run()
}

/// A cut without end under a call without a deadline: pings end it, and nothing else does.
fn dead(seed: u64) -> Story {
    let mut world = World::new(seed, &[]);
    let mut rng = SimRng::fork(seed, "dead", 0);
    let cut = secs(3) + Duration::from_millis(rng.between(0, 2_000));
    world.at(cut, Act::Cut("caller"));
    let story = world.story.clone();
    world.client("caller", async move {
        let (pings, none) = (dial::pinging_channel(), dial::channel());
        put(&pings, None).await.expect("answered");
        put(&none, None).await.expect("answered");
        until(cut + Duration::from_millis(50)).await;
        let (took, ended) = timed(put(&pings, None)).await;
        let status = ended.expect_err("the connection is dead");
        story.tell(
            "caller",
            format!("after {took:?}: {:?} {}", status.code(), status.message()),
        );
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
        assert!(took <= secs(3) + Duration::from_millis(50), "{took:?}");
        let waited = tokio::time::timeout(secs(60), put(&none, None)).await;
        assert!(waited.is_err(), "without pings nobody notices: {waited:?}");
    });
    world.run()
}

/// The server pings, too, and lets go of a client that vanished, but not of one that is silent.
fn vanished(seed: u64) -> Story {
    let flags = [
        "--grpc-keepalive-interval=2s",
        "--grpc-keepalive-timeout=1s",
    ];
    let mut world = World::new(seed, &flags);
    let cut = secs(20);
    world.at(cut, Act::Cut("watcher"));
    let (story, server) = (world.story.clone(), world.server.clone());
    world.client("watcher", async move {
        let mut watches = WatchClient::new(dial::channel());
        let asked = tokio_stream::iter([create()]);
        let stream = watches.watch(tokio_stream::StreamExt::chain(
            asked,
            tokio_stream::pending(),
        ));
        let mut stream = stream.await.expect("opened").into_inner();
        stream.message().await.expect("created");
        let last = tokio::time::timeout(secs(40) - now(), stream.message()).await;
        assert!(last.is_err(), "this side does not ping: {last:?}");
    });
    world.client("observer", async move {
        until(secs(19)).await;
        assert_eq!(server.open(), 1, "an idle client is left alone");
        while server.open() > 0 {
            assert!(
                now() < cut + secs(3) + Duration::from_millis(100),
                "still open at {:?}",
                now()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        story.tell("observer", "closed");
        assert!(
            now() > cut + Duration::from_millis(900),
            "closed early, at {:?}",
            now()
        );
    });
    world.run()
}

fn create() -> pb::WatchRequest {
    pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(
            pb::WatchCreateRequest {
                key: "k".into(),
                ..pb::WatchCreateRequest::default()
            },
        )),
    }
}

/// Our client's own pings bring a watch back whose connection died without a word.
fn brought_back(seed: u64) -> Story {
    let mut world = World::new(seed, &[]);
    let mut rng = SimRng::fork(seed, "back", 0);
    let cut = secs(3) + Duration::from_millis(rng.between(0, 3_000));
    world.at(cut, Act::Cut("watcher"));
    world.at(cut + secs(1), Act::Repair("watcher"));
    let story = world.story.clone();
    world.client("writer", async move {
        let client = dial::client(secs(2));
        client.put(request::put("k", "1")).await.expect("answered");
        // Its event falls into the cut, and its segment is never sent again.
        until(cut + Duration::from_millis(300)).await;
        client.put(request::put("k", "2")).await.expect("answered");
    });
    world.client("watcher", async move {
        let client = dial::client(secs(5));
        let mut watch = client
            .watch(WatchOptions::of(KeyRange::single("k")))
            .await
            .expect("watched");
        let mut told = 0;
        while told < 1 || now() < cut {
            let update = watch.next().await.expect("goes on");
            story.tell("watcher", format!("{update:?}"));
            told += 1;
        }
        // 6 s until a ping, 3 s for its answer.
        assert!(now() < cut + secs(10), "told at {:?}", now());
    });
    world.run()
}

#[test]
fn a_deadline_ends_a_call_that_is_held_and_the_connection_goes_on() {
    each(1..=6, held);
}

#[test]
fn a_server_that_is_gone_ends_calls_in_time() {
    each(1..=4, gone);
}

#[test]
fn pings_end_a_call_without_a_deadline() {
    each(1..=4, dead);
}

#[test]
fn the_server_lets_go_of_a_client_that_vanished() {
    each(1..=3, vanished);
}

#[test]
fn a_watch_comes_back_from_a_connection_that_died_without_a_word() {
    each(1..=6, brought_back);
}
