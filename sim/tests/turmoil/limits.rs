//! Room `sim`, L2: limits of requests and streams, refused in etcd's words on a connection that goes on.

use super::dial;
use super::each;
use super::story::Story;
use super::world::World;
use std::time::Duration;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::etcdserverpb::kv_client::KvClient;
use tenon_client::proto::etcdserverpb::watch_client::WatchClient;
use tenon_client::request;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// `--max-request-bytes` of these worlds.
const REQUEST_MAX: usize = 100_000;
/// How much more the transport takes.
const MARGIN: usize = 512 << 10;

async fn put(channel: &Channel, bytes: usize) -> Result<i64, Status> {
    let put = request::put("k", vec![7_u8; bytes]);
    let answer = KvClient::new(channel.clone()).put(put).await?;
    Ok(answer.into_inner().header.unwrap_or_default().revision)
}

fn sizes(seed: u64) -> Story {
    let mut world = World::new(seed, &[&format!("--max-request-bytes={REQUEST_MAX}")]);
    let (story, server) = (world.story.clone(), world.server.clone());
    world.client("caller", async move {
        let channel = dial::channel();
        let mut revision = put(&channel, 10).await.expect("small");
        let cases = [
            (REQUEST_MAX - 100, None),
            (
                REQUEST_MAX + 1,
                Some((Code::InvalidArgument, "etcdserver: request is too large")),
            ),
            (
                REQUEST_MAX + MARGIN - 100,
                Some((Code::InvalidArgument, "etcdserver: request is too large")),
            ),
            (
                REQUEST_MAX + MARGIN + 1,
                Some((
                    Code::ResourceExhausted,
                    "grpc: received message larger than max (",
                )),
            ),
            (
                8 << 20,
                Some((
                    Code::ResourceExhausted,
                    "grpc: received message larger than max (",
                )),
            ),
        ];
        for (bytes, refused) in cases {
            let ended = put(&channel, bytes).await;
            story.tell("caller", format!("{bytes}: {ended:?}"));
            match (ended, refused) {
                (Ok(next), None) => {
                    assert_eq!(next, revision + 1);
                    revision = next;
                }
                (Err(status), Some((code, text))) => {
                    assert_eq!(status.code(), code, "{bytes}: {status:?}");
                    assert!(status.message().starts_with(text), "{bytes}: {status:?}");
                }
                (ended, _) => panic!("{bytes}: {ended:?}"),
            }
            let next = put(&channel, 10).await.expect("the connection goes on");
            assert_eq!(next, revision + 1, "what was refused changed nothing");
            revision = next;
        }
        assert_eq!(server.taken(), 1, "all on one connection");
    });
    world.run()
}

/// A watch that stays; dropping the sender's half ends it.
async fn watch(
    channel: &Channel,
) -> (mpsc::Sender<pb::WatchRequest>, Streaming<pb::WatchResponse>) {
    let (requests, queued) = mpsc::channel(1);
    let create = pb::WatchCreateRequest {
        key: "k".into(),
        ..pb::WatchCreateRequest::default()
    };
    let create = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    requests.try_send(create).expect("room for one");
    let mut client = WatchClient::new(channel.clone());
    let stream = client.watch(ReceiverStream::new(queued)).await;
    let mut stream = stream.expect("opened").into_inner();
    let created = stream.message().await.expect("answered");
    assert!(created.is_some_and(|answer| answer.created));
    (requests, stream)
}

fn streams(seed: u64) -> Story {
    const MOST: usize = 3;
    let mut world = World::new(seed, &[&format!("--max-concurrent-streams={MOST}")]);
    let (story, server) = (world.story.clone(), world.server.clone());
    world.client("caller", async move {
        let channel = dial::channel();
        put(&channel, 1).await.expect("answered");
        let mut watches = Vec::new();
        for _ in 0..MOST {
            watches.push(watch(&channel).await);
        }
        let waits = put(&channel, 2);
        tokio::pin!(waits);
        let early = tokio::time::timeout(Duration::from_secs(3), waits.as_mut()).await;
        assert!(early.is_err(), "one stream too many: {early:?}");
        watches.pop();
        let late = tokio::time::timeout(Duration::from_secs(1), waits).await;
        let revision = late.expect("its place is free").expect("answered");
        story.tell("caller", format!("at last {revision}"));
        for (_, stream) in &mut watches {
            let told = stream.message().await.expect("goes on").expect("told");
            story.tell("caller", format!("{} events", told.events.len()));
        }
        assert_eq!(server.taken(), 1, "all on one connection");
    });
    world.run()
}

#[test]
fn requests_above_the_limits_are_refused_in_etcds_words() {
    each(1..=3, sizes);
}

#[test]
fn streams_above_their_limit_wait_for_a_place() {
    each(1..=3, streams);
}
