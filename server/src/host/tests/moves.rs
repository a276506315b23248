//! Room `server/host`, tests: streams of watches while the endpoint moves.

use super::world::{World, compact, pause, put, within};
use crate::host::door::Door;
use crate::host::remote::CallInfo;
use crate::service::method::Method;
use futures_util::StreamExt;
use std::time::Duration;
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::watch_request::RequestUnion;

/// One client's stream, which reads as fast as it can.
struct Client {
    ask: mpsc::Sender<pb::WatchRequest>,
    answers: mpsc::UnboundedReceiver<Result<pb::WatchResponse, Error>>,
}

impl Client {
    fn new(door: &Door) -> Client {
        let (ask, requests) = mpsc::channel(64);
        let visit = door.admit(Method::WatchWatch, Caller::default(), CallInfo::default());
        let mut stream = door.watch(visit.expect("open"), requests);
        let (read, answers) = mpsc::unbounded_channel();
        door.env().spawn("client", async move {
            while let Some(answer) = stream.next().await {
                if read.send(answer).is_err() {
                    return;
                }
            }
        });
        Client { ask, answers }
    }

    async fn ask(&self, union: RequestUnion) {
        let request_union = Some(union);
        let sent = self.ask.send(pb::WatchRequest { request_union }).await;
        sent.expect("the stream goes on");
    }

    async fn create(&mut self, create: pb::WatchCreateRequest) -> pb::WatchResponse {
        self.ask(RequestUnion::CreateRequest(create)).await;
        let answer = self.next().await;
        assert!(answer.created, "{answer:?}");
        answer
    }

    async fn cancel(&self, watch_id: i64) {
        let cancel = pb::WatchCancelRequest { watch_id };
        self.ask(RequestUnion::CancelRequest(cancel)).await;
    }

    async fn progress(&self) {
        let progress = pb::WatchProgressRequest {};
        self.ask(RequestUnion::ProgressRequest(progress)).await;
    }

    async fn next(&mut self) -> pb::WatchResponse {
        let answer = within(super::world::WITHIN, self.answers.recv()).await;
        let answer = answer.expect("an answer in time").expect("goes on");
        answer.expect("no error")
    }

    /// Whether nothing comes within a moment.
    async fn is_silent(&mut self) -> bool {
        let next = self.answers.recv();
        within(Duration::from_millis(300), next).await.is_none()
    }
}

fn on(key: &str) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest {
        key: key.to_owned().into(),
        ..pb::WatchCreateRequest::default()
    }
}

/// Values of the puts in an answer.
fn values(answer: &pb::WatchResponse) -> Vec<String> {
    let kvs = answer.events.iter().filter_map(|event| event.kv.as_ref());
    kvs.map(|kv| String::from_utf8(kv.value.to_vec()).expect("text"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_ten_moves_has_no_gap_and_no_repeat() {
    const WRITES: usize = 1000;
    let world = World::new().await;
    let mut client = Client::new(&world.door);
    let all = client.create(on("k")).await;
    let some = pb::WatchCreateRequest {
        filters: vec![pb::watch_create_request::FilterType::Noput as i32],
        prev_kv: true,
        watch_id: 7,
        ..on("k")
    };
    client.create(some).await;
    assert_eq!(all.watch_id, 0);
    let door = world.door.clone();
    let writer = world.env.spawn("writer", async move {
        for n in 0..WRITES {
            put(&door, "k", &n.to_string()).await.expect("is written");
        }
    });
    let reader = async {
        let mut got = Vec::new();
        while got.len() < WRITES {
            let answer = client.next().await;
            assert_eq!(answer.watch_id, 0, "the other wants no puts: {answer:?}");
            got.extend(values(&answer));
        }
        got
    };
    let mover = async {
        for turn in 0..10 {
            pause(30).await;
            let to = match turn % 2 {
                0 => world.there(),
                _ => world.here(),
            };
            world.switch(to).await;
        }
    };
    let (got, ()) = tokio::join!(reader, mover);
    writer.ended().await;
    let expected: Vec<String> = (0..WRITES).map(|n| n.to_string()).collect();
    assert_eq!(got, expected);
    assert!(client.is_silent().await, "nothing comes twice");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_told_on_the_new_side_of_an_idle_cluster() {
    let world = World::new().await;
    let mut client = Client::new(&world.door);
    world.put("other", "1").await.expect("is written");
    client.create(on("k")).await;
    for to in [world.there(), world.here(), world.there()] {
        world.switch(to).await;
        client.progress().await;
        let answer = client.next().await;
        assert_eq!(answer.watch_id, -1, "{answer:?}");
        assert_eq!(answer.header.expect("set").revision, world.revision());
    }
    assert!(client.is_silent().await, "each is answered once");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_asked_while_the_endpoint_moves_are_answered_after() {
    let world = World::new().await;
    let mut client = Client::new(&world.door);
    for id in [0, 1] {
        assert_eq!(client.create(on("k")).await.watch_id, id);
    }
    let switch = async {
        pause(20).await;
        world.switch(world.there()).await;
    };
    let talk = async {
        pause(21).await;
        client.cancel(1).await;
        client.cancel(99).await;
        client.ask(RequestUnion::CreateRequest(on("k"))).await;
        let canceled = client.next().await;
        assert!(canceled.canceled, "{canceled:?}");
        assert_eq!((canceled.watch_id, canceled.compact_revision), (1, 0));
        let created = client.next().await;
        assert!(created.created && !created.canceled, "{created:?}");
        assert_eq!(created.watch_id, 2, "ids are counted on");
    };
    tokio::join!(switch, talk);
    world.put("k", "v").await.expect("is written");
    let mut told = [client.next().await.watch_id, client.next().await.watch_id];
    told.sort_unstable();
    assert_eq!(told, [0, 2]);
    assert!(client.is_silent().await, "the canceled one hears nothing");
    client.cancel(0).await;
    let canceled = client.next().await;
    assert!(canceled.canceled && canceled.watch_id == 0, "{canceled:?}");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_watch_outlives_compactions_between_its_moves() {
    let world = World::new().await;
    let mut client = Client::new(&world.door);
    client.create(on("k")).await;
    for (round, to) in [world.there(), world.here()].into_iter().enumerate() {
        for n in 0..20 {
            world.put("other", &n.to_string()).await.expect("written");
        }
        compact(&world.door, world.revision()).await;
        world.switch(to).await;
        let value = round.to_string();
        world.put("k", &value).await.expect("is written");
        assert_eq!(values(&client.next().await), [value]);
    }
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_history_was_compacted_meanwhile_is_canceled_as_in_etcd() {
    let world = World::new().await;
    world.switch(world.there()).await;
    let mut client = Client::new(&world.door);
    client.create(on("k")).await;
    world.put("k", "1").await.expect("is written");
    assert_eq!(values(&client.next().await), ["1"]);
    world.strings.reachable.send_replace(false);
    // The member is alone for a while: its clients elsewhere write and compact.
    let other = Door::new(&world.env, world.here());
    for n in 0..20 {
        put(&other, "k", &n.to_string()).await.expect("is written");
    }
    compact(&other, world.revision()).await;
    world.strings.reachable.send_replace(true);
    let canceled = client.next().await;
    assert!(canceled.canceled && !canceled.created, "{canceled:?}");
    assert_eq!(canceled.watch_id, 0);
    assert_eq!(canceled.compact_revision, world.revision());
    // As in etcd it stands in the way of progress until the client cancels it too, on any side.
    world.switch(world.here()).await;
    client.progress().await;
    assert!(client.is_silent().await);
    client.cancel(0).await;
    let canceled = client.next().await;
    assert!(canceled.canceled && canceled.compact_revision == 0);
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_when_its_member_elsewhere_comes_back() {
    let world = World::new().await;
    world.switch(world.there()).await;
    let mut client = Client::new(&world.door);
    client.create(on("k")).await;
    let other = Door::new(&world.env, world.here());
    for n in 0..10 {
        world.strings.reachable.send_replace(n % 2 == 0);
        put(&other, "k", &n.to_string()).await.expect("is written");
    }
    world.strings.reachable.send_replace(true);
    let mut got = Vec::new();
    while got.len() < 10 {
        got.extend(values(&client.next().await));
    }
    let expected: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    assert_eq!(got, expected);
    assert!(client.is_silent().await);
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_asked_for_while_the_endpoint_moves_go_on_behind_it() {
    let world = World::new().await;
    let mut client = Client::new(&world.door);
    for turn in 1..=20 {
        let watch = pb::WatchCreateRequest {
            watch_id: turn,
            ..on("k")
        };
        client.ask(RequestUnion::CreateRequest(watch)).await;
        let to = match turn % 2 {
            0 => world.here(),
            _ => world.there(),
        };
        world.switch(to).await;
        while !client.next().await.created {}
        put(&world.door, "k", &turn.to_string())
            .await
            .expect("is written");
        let mut told = std::collections::BTreeSet::new();
        while told.len() < turn as usize {
            let answer = client.next().await;
            assert_eq!(values(&answer), [turn.to_string()], "{answer:?}");
            told.insert(answer.watch_id);
        }
    }
    world.member.shutdown().await;
}
