//! Room `sim`, L2: a server that stops in order: calls under way are answered, streams end with a word, nobody who
//! hangs holds it up for long, and clients find the next life.

use super::dial;
use super::each;
use super::story::Story;
use super::world::{Act, SERVER, World};
use std::time::Duration;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::etcdserverpb::lease_client::LeaseClient;
use tenon_client::proto::etcdserverpb::watch_client::WatchClient;
use tenon_client::proto::ids::Revision;
use tenon_client::proto::key_range::KeyRange;
use tenon_client::{WatchOptions, WatchUpdate, request};
use tenon_sim::SimRng;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The longest drain, with what stopping itself takes.
const DRAINED: Duration = Duration::from_millis(5_500);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// The end of a stream, in words.
fn word<T>(ended: Result<Option<T>, tonic::Status>) -> String {
    match ended {
        Ok(Some(_)) => panic!("nothing happens on this stream"),
        Ok(None) => "the end".to_owned(),
        Err(status) => format!("{:?} {}", status.code(), status.message()),
    }
}

/// A watch and a keep-alive stream, open and silent, until the server ends them.
async fn hang_on(story: Story, stop: Duration) {
    let (requests, queued) = mpsc::channel(1);
    let create = pb::WatchCreateRequest {
        key: "none".into(),
        ..pb::WatchCreateRequest::default()
    };
    let create = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    requests.try_send(create).expect("room for one");
    let channel = dial::channel();
    let mut watches = WatchClient::new(channel.clone());
    let watch = watches.watch(ReceiverStream::new(queued)).await;
    let mut watch = watch.expect("opened").into_inner();
    watch.message().await.expect("created");
    let (asks, queued) = mpsc::channel(1);
    asks.try_send(pb::LeaseKeepAliveRequest { id: 99 })
        .expect("room for one");
    let mut leases = LeaseClient::new(channel);
    let answers = leases.lease_keep_alive(ReceiverStream::new(queued)).await;
    let mut answers = answers.expect("opened").into_inner();
    answers
        .message()
        .await
        .expect("answered: there is no such lease");
    let ended = async { (watch.message().await, answers.message().await) };
    let (watch, answers) = ended.await;
    story.tell("streams", format!("watch: {}", word(watch)));
    story.tell("streams", format!("keep-alive: {}", word(answers)));
    assert!(
        now() >= stop && now() <= stop + secs(1),
        "ended at {:?}",
        now()
    );
}

/// Puts without a pause until one fails for good; each is answered or refused.
async fn write(story: Story, until: Duration) {
    let client = dial::client(secs(8));
    for number in 1_u32.. {
        let ended = client.put(request::put("k", number.to_string())).await;
        match ended {
            Ok(answer) => {
                let revision = answer.header.unwrap_or_default().revision;
                story.tell("writer", format!("{number} is {revision}"));
            }
            Err(error) => story.tell("writer", format!("{number} {error}")),
        }
        if now() >= until {
            return;
        }
    }
}

fn stopped(seed: u64) -> Story {
    let mut world = World::new(seed, &[]);
    let mut rng = SimRng::fork(seed, "drain", 0);
    let stop = secs(3) + Duration::from_millis(rng.between(0, 900));
    let hangs = seed.is_multiple_of(2);
    if hangs {
        world.at(stop - Duration::from_millis(100), Act::Hold("hanging"));
    }
    world.at(stop, Act::Stop);
    world.at(stop + secs(7), Act::Start);
    let story = world.story.clone();
    world.client("streams", hang_on(story.clone(), stop));
    world.client("writer", write(story.clone(), stop + secs(9)));
    let told = story.clone();
    world.client("hanging", async move {
        // Its watch is never read again once it is held; it must not hold the server up.
        let client = dial::client(secs(2));
        let all = WatchOptions::of(KeyRange::all());
        let _watch = client.watch(all).await.expect("watched");
        tokio::time::sleep(stop + secs(7) - now()).await;
        told.tell("hanging", "goes");
    });
    let told = story.clone();
    world.client("watcher", async move {
        let client = dial::client(secs(5));
        let all = WatchOptions::of(KeyRange::single("k")).from(Revision(1));
        let mut watch = client.watch(all).await.expect("watched");
        while now() < stop + secs(14) {
            // In steps shorter than any reconnect takes.
            let step = Duration::from_millis(5);
            let update = tokio::time::timeout(step, watch.next()).await;
            let Ok(update) = update else { continue };
            if let WatchUpdate::Events(events) = update.expect("goes on") {
                for event in events {
                    let kv = event.kv.unwrap_or_default();
                    let value = String::from_utf8_lossy(&kv.value).into_owned();
                    told.tell("watcher", format!("{value} is {}", kv.mod_revision));
                }
            }
        }
    });
    let story = world.run();
    let took = story.line(SERVER, "stopped").at - stop;
    assert!(took <= DRAINED, "seed {seed}: stopped after {took:?}");
    compare(seed, &story);
    story
}

/// Each acknowledged write was told once, in order.
fn compare(seed: u64, story: &Story) {
    let lines = story.lines();
    let of = |who: &str| -> Vec<String> {
        let own = lines
            .iter()
            .filter(|l| l.who == who && l.what.contains(" is "));
        own.map(|l| l.what.clone()).collect()
    };
    let (acked, told) = (of("writer"), of("watcher"));
    assert!(
        acked.len() > 50,
        "seed {seed}: too few writes:\n{}",
        story.text()
    );
    let known: Vec<String> = told
        .into_iter()
        .filter(|line| acked.contains(line))
        .collect();
    assert_eq!(known, acked, "seed {seed}:\n{}", story.text());
}

#[test]
fn a_server_that_stops_leaves_nobody_in_the_dark() {
    each(1..=4, stopped);
}
