//! Room `sim`, L2: leases over streams: kept over a short trouble, ended after a long one, never early.

use super::dial;
use super::each;
use super::story::Story;
use super::world::{Act, World};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::etcdserverpb::lease_client::LeaseClient;
use tenon_client::proto::ids::{LeaseId, Revision};
use tenon_client::proto::key_range::KeyRange;
use tenon_client::proto::mvccpb::event::EventType;
use tenon_client::{Client, WatchOptions, WatchUpdate, request};
use tenon_sim::SimRng;
use tokio_stream::wrappers::ReceiverStream;

/// What the server may take to notice that a lease is over, and to say so.
const SLACK: Duration = Duration::from_millis(1500);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

async fn grant(client: &Client, ttl: i64) -> LeaseId {
    let lease = client.grant(ttl).await.expect("granted");
    let put = pb::PutRequest {
        lease: lease.get(),
        ..request::put("leased", "x")
    };
    client.put(put).await.expect("written");
    lease
}

/// Tells when the leased key is gone, or that it still is there at `until`.
async fn observe(story: Story, until: Duration) {
    let client = dial::client(secs(10));
    let options = WatchOptions::of(KeyRange::single("leased")).from(Revision(1));
    let mut watch = client.watch(options).await.expect("watched");
    let gone = async {
        loop {
            if let WatchUpdate::Events(events) = watch.next().await.expect("goes on")
                && events.iter().any(|e| e.r#type() == EventType::Delete)
            {
                return;
            }
        }
    };
    match tokio::time::timeout(until - now(), gone).await {
        Ok(()) => story.tell("observer", "gone"),
        Err(_) => story.tell("observer", "there"),
    }
}

/// Our client keeps its lease over one trouble of each kind.
fn kept(seed: u64) -> Story {
    let mut rng = SimRng::fork(seed, "short", 0);
    let mut world = World::new(seed, &[]);
    let mut ms = |low, high| Duration::from_millis(rng.between(low, high));
    let held = secs(3) + ms(0, 9_000);
    world.at(held, Act::Hold("keeper"));
    world.at(held + ms(500, 5_000), Act::Release("keeper"));
    let cut = secs(25) + ms(0, 9_000);
    world.at(cut, Act::Cut("keeper"));
    world.at(cut + ms(200, 4_000), Act::Repair("keeper"));
    let crash = secs(55) + ms(0, 9_000);
    world.at(crash, Act::Crash);
    world.at(crash + ms(200, 4_000), Act::Start);
    let story = world.story.clone();
    world.client("observer", observe(story.clone(), secs(100)));
    world.client("keeper", async move {
        let client = dial::client(secs(5));
        let lease = grant(&client, 30).await;
        let keep = client.keep_alive(lease).await.expect("kept");
        let lost = tokio::time::timeout(secs(99) - now(), keep.lost());
        match lost.await {
            Ok(why) => story.tell("keeper", format!("lost: {why}")),
            Err(_) => {
                let left = client.lease_time_to_live(pb::LeaseTimeToLiveRequest {
                    id: lease.get(),
                    keys: false,
                });
                let left = left.await.expect("answered");
                story.tell("keeper", format!("left {}", left.ttl));
            }
        }
    });
    let story = world.run();
    story.line("keeper", "left ");
    story.line("observer", "there");
    story
}

/// Renewals by hand: when the last one left, and when the last one was left that was answered.
#[derive(Clone, Copy, Default)]
struct Renewals {
    asked: Duration,
    answered: Duration,
    ttl: i64,
}

impl Renewals {
    fn answered(&mut self, ttl: i64) {
        self.answered = self.asked;
        self.ttl = ttl;
    }
}

/// Renews every half second over one stream until it breaks or `until`.
async fn renew(lease: LeaseId, until: Duration, facts: Arc<Mutex<Renewals>>) {
    let (requests, queued) = tokio::sync::mpsc::channel(1);
    let mut stub = LeaseClient::new(dial::channel());
    let ask = pb::LeaseKeepAliveRequest { id: lease.get() };
    requests.try_send(ask).expect("room for one");
    facts.lock().asked = now();
    let stream = stub.lease_keep_alive(ReceiverStream::new(queued)).await;
    let mut answers = stream.expect("opened").into_inner();
    while now() < until {
        let answer = tokio::time::timeout(until - now(), answers.message()).await;
        let Ok(Ok(Some(answer))) = answer else { return };
        facts.lock().answered(answer.ttl);
        tokio::time::sleep(Duration::from_millis(500)).await;
        facts.lock().asked = now();
        if now() >= until || requests.try_send(ask).is_err() {
            return;
        }
    }
}

/// The keeper is cut off for good; the lease ends in its time by the server's clock, which is simulated time.
fn ended(seed: u64) -> Story {
    let mut rng = SimRng::fork(seed, "long", 0);
    let mut world = World::new(seed, &[]);
    let ttl = i64::try_from(rng.between(2, 9)).expect("small");
    let cut = secs(3) + Duration::from_millis(rng.between(0, 3_000));
    world.at(cut, Act::Cut("keeper"));
    // A server that was away meanwhile gives the lease more time, never less.
    let away = rng.chance(500_000).then(|| {
        let crash = cut + Duration::from_millis(rng.between(100, 1_500));
        let start = crash + Duration::from_millis(rng.between(100, 4_000));
        world.at(crash, Act::Crash);
        world.at(start, Act::Start);
        start
    });
    let facts = Arc::new(Mutex::new(Renewals::default()));
    let (story, its) = (world.story.clone(), facts.clone());
    world.client("observer", observe(story.clone(), secs(60)));
    world.client("keeper", async move {
        let client = dial::client(secs(5));
        let lease = grant(&client, ttl).await;
        renew(lease, secs(12), its).await;
        story.tell("keeper", "renews no more");
    });
    let story = world.run();
    let (renewals, gone) = (*facts.lock(), story.line("observer", "gone").at);
    let ttl = Duration::from_secs(ttl.unsigned_abs());
    assert_eq!(Duration::from_secs(renewals.ttl.unsigned_abs()), ttl);
    let early = renewals.answered + ttl;
    assert!(
        gone >= early,
        "seed {seed}: gone at {gone:?}, promised until {early:?}\n{}",
        story.text()
    );
    // The last renewal that could still arrive left before the cut.
    let late = away.unwrap_or_default().max(renewals.asked.min(cut)) + ttl + SLACK;
    assert!(
        gone <= late,
        "seed {seed}: gone at {gone:?}, due at {late:?}\n{}",
        story.text()
    );
    story
}

#[test]
fn a_lease_is_kept_over_a_short_trouble() {
    each(1..=3, kept);
}

#[test]
fn a_lease_ends_after_a_long_one_and_never_early() {
    each(1..=10, ended);
}
