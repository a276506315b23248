//! Room `server/service`: one client's watch stream against a hub whose history is a list.

use super::*;
use parking_lot::Mutex;
use tenon_proto::etcdserverpb::{WatchCancelRequest, WatchCreateRequest, WatchProgressRequest};
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;
use tenon_storage::watch::{Compacted, Event, HistoryLimits, HistoryPage, WatchOptions};

type Answers = mpsc::Receiver<Result<WatchResponse, Error>>;

/// Puts of one key, from revision 2 on.
#[derive(Default)]
struct Puts(Mutex<Vec<KeyValue>>);

impl History for Puts {
    fn changes(
        &self,
        range: &KeyRange,
        from: i64,
        to: i64,
        limits: HistoryLimits,
    ) -> Result<HistoryPage, Compacted> {
        let puts = self.0.lock();
        let to = to.min(from + limits.matched_revisions_max as i64 - 1);
        let wanted = puts
            .iter()
            .filter(|kv| (from..=to).contains(&kv.mod_revision));
        let wanted = wanted.filter(|kv| range.contains(&kv.key));
        let events = wanted.map(|kv| Arc::new(Event::put(kv.clone()))).collect();
        Ok(HistoryPage {
            events,
            next: to + 1,
        })
    }

    fn pair_at(&self, _: &[u8], _: i64) -> Result<Option<KeyValue>, Lost> {
        Ok(None)
    }
}

/// A member: its hub and what it would do to its streams.
struct Member {
    env: Env,
    hub: WatchHub,
    puts: Arc<Puts>,
    stopping: watch::Sender<bool>,
    progress_interval: Duration,
}

impl Member {
    fn new() -> Member {
        let options = WatchOptions {
            queue_bytes_max: 100_000,
            ..WatchOptions::default()
        };
        Member {
            env: tenon_env::real::env_without_peers(),
            hub: WatchHub::new(1, -1, options),
            puts: Arc::default(),
            stopping: watch::channel(false).0,
            progress_interval: Duration::from_secs(600),
        }
    }

    fn put(&self, value_bytes: usize) {
        let revision = self.hub.revision() + 1;
        let kv = KeyValue {
            key: "k".into(),
            create_revision: 2,
            mod_revision: revision,
            version: revision - 1,
            value: vec![b'v'; value_bytes].into(),
            lease: 0,
        };
        self.puts.0.lock().push(kv.clone());
        self.hub.publish(revision, vec![Event::put(kv)]);
    }

    /// A client with room for so many unread answers.
    fn client(&self, room: usize) -> (mpsc::Sender<WatchRequest>, Answers) {
        self.client_until(room, Box::pin(std::future::pending()))
    }

    fn client_until(
        &self,
        room: usize,
        leader_lost: BoxFuture<'static, ()>,
    ) -> (mpsc::Sender<WatchRequest>, Answers) {
        let (ask, requests) = mpsc::channel(16);
        let (out, answers) = mpsc::channel(room);
        let terms = Terms {
            env: self.env.clone(),
            hub: self.hub.clone(),
            history: self.puts.clone(),
            header: Box::new(|| ResponseHeader {
                member_id: 7,
                ..ResponseHeader::default()
            }),
            permission: Box::new(|| Ok(())),
            progress_interval: self.progress_interval,
            response_bytes_max: 2 << 20,
            stopping: self.stopping.subscribe(),
        };
        self.env
            .spawn("watch-test", terms.serve(requests, out, leader_lost));
        (ask, answers)
    }
}

fn create(start_revision: i64) -> WatchRequest {
    let create = WatchCreateRequest {
        key: "k".into(),
        start_revision,
        progress_notify: true,
        ..WatchCreateRequest::default()
    };
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    }
}

fn cancel(watch_id: i64) -> WatchRequest {
    let cancel = WatchCancelRequest { watch_id };
    WatchRequest {
        request_union: Some(RequestUnion::CancelRequest(cancel)),
    }
}

fn progress() -> WatchRequest {
    let union = RequestUnion::ProgressRequest(WatchProgressRequest {});
    WatchRequest {
        request_union: Some(union),
    }
}

async fn hear(answers: &mut Answers) -> WatchResponse {
    answers.recv().await.expect("an answer").expect("no error")
}

fn revision(response: &WatchResponse) -> i64 {
    response
        .header
        .as_ref()
        .map_or(-1, |header| header.revision)
}

#[tokio::test]
async fn a_client_that_sends_no_more_is_still_served() {
    let member = Member::new();
    let (ask, mut answers) = member.client(4);
    ask.send(create(0)).await.unwrap();
    let created = hear(&mut answers).await;
    assert!(created.created);
    assert_eq!(created.header.unwrap().member_id, 7);
    ask.send(WatchRequest::default()).await.unwrap();
    ask.send(progress()).await.unwrap();
    let told = hear(&mut answers).await;
    assert_eq!((told.watch_id, revision(&told)), (-1, 1));
    drop(ask);
    member.put(1);
    member.put(1);
    assert_eq!(revision(&hear(&mut answers).await), 2);
    assert_eq!(revision(&hear(&mut answers).await), 3);
}

#[tokio::test]
async fn a_slow_reader_gets_every_revision_once_and_can_cancel() {
    let member = Member::new();
    let (ask, mut answers) = member.client(1);
    ask.send(create(0)).await.unwrap();
    hear(&mut answers).await;
    for _ in 0..3000 {
        member.put(1000);
    }
    assert_eq!(
        member.hub.stats().slow_watchers,
        1,
        "the queue holds 100 kB only"
    );
    let mut next = 2;
    while next <= 3001 {
        for event in hear(&mut answers).await.events {
            assert_eq!(event.kv.unwrap().mod_revision, next);
            next += 1;
        }
    }
    ask.send(cancel(0)).await.unwrap();
    assert!(hear(&mut answers).await.canceled);
    assert_eq!(member.hub.stats().watchers, 0);
}

#[tokio::test]
async fn requests_are_heard_between_events() {
    let member = Member::new();
    for _ in 0..20_000 {
        member.put(1);
    }
    let (ask, mut answers) = member.client(1);
    for _ in 0..10 {
        ask.send(create(1)).await.unwrap();
    }
    ask.send(cancel(9)).await.unwrap();
    let mut events_of_9 = 0;
    loop {
        let response = hear(&mut answers).await;
        if response.watch_id == 9 && response.canceled {
            break;
        }
        events_of_9 += if response.watch_id == 9 {
            response.events.len()
        } else {
            0
        };
    }
    assert!(
        events_of_9 < 20_000,
        "the cancel waited for the whole history"
    );
}

#[tokio::test]
async fn a_client_that_only_asks_is_not_listened_to_for_ever() {
    let member = Member::new();
    let (ask, answers) = member.client(1);
    let asked = member.env.timeout(Duration::from_millis(300), async {
        loop {
            ask.send(create(0)).await.unwrap();
        }
    });
    assert!(asked.await.is_none());
    let stats = member.hub.stats();
    assert!(
        stats.watchers <= ANSWERS_MAX + BURST && stats.watchers > 100,
        "{stats:?}"
    );
    drop(answers);
    while member.hub.stats().streams > 0 {
        member.env.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(member.hub.stats().watchers, 0);
}

#[tokio::test]
async fn the_timer_tells_of_progress_under_the_watchers_own_id() {
    let mut member = Member::new();
    member.progress_interval = Duration::from_millis(20);
    let (ask, mut answers) = member.client(4);
    ask.send(create(0)).await.unwrap();
    hear(&mut answers).await;
    for _ in 0..3 {
        let told = hear(&mut answers).await;
        assert!(told.events.is_empty() && !told.created && told.watch_id == 0);
        assert_eq!(revision(&told), 1);
    }
}

#[tokio::test]
async fn streams_end_when_the_member_stops_or_the_leader_is_lost() {
    let member = Member::new();
    let (_ask, mut answers) = member.client_until(4, Box::pin(std::future::ready(())));
    assert_eq!(answers.recv().await.unwrap().unwrap_err(), Error::NoLeader);
    assert!(answers.recv().await.is_none());
    let (_ask, mut answers) = member.client(4);
    member.stopping.send(true).unwrap();
    assert_eq!(answers.recv().await.unwrap().unwrap_err(), Error::Stopped);
    assert!(answers.recv().await.is_none());
}
