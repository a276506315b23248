//! Room `server/service`: watches on a running member while writers, compactions and slow readers run in
//! parallel. A reference watcher sees everything; every other one must see exactly its part of that.

use super::*;
use crate::member::Member;
use crate::member::config::tests::config;
use std::collections::BTreeMap;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::Event;

const WRITERS: u64 = 4;
const WRITES: u64 = 300;
const KEYS: u64 = 8;

type Answers = mpsc::Receiver<Result<WatchResponse, Error>>;

fn open(member: &Member, room: usize) -> (mpsc::Sender<WatchRequest>, Answers) {
    let (ask, requests) = mpsc::channel(16);
    let (out, answers) = mpsc::channel(room);
    let watch = member.services().watch.clone();
    member
        .services()
        .context
        .env()
        .spawn("watch-test", async move {
            watch
                .serve(Caller::default(), NeedsLeader::No, requests, out)
                .await;
        });
    (ask, answers)
}

fn key(n: u64) -> String {
    format!("k{n:02}")
}

async fn writer(member: Member, seed: u64) {
    let kv = member.services().kv.clone();
    for n in 0..WRITES {
        let draw = (seed + 1) * 7919 + n * 104_729;
        let k = key(draw % KEYS);
        if draw.is_multiple_of(5) {
            let request = pb::DeleteRangeRequest {
                key: k.into(),
                ..Default::default()
            };
            kv.delete_range(&Caller::default(), request)
                .await
                .expect("deletes");
        } else {
            let value = vec![b'v'; (draw % 2000) as usize].into();
            let request = pb::PutRequest {
                key: k.into(),
                value,
                ..Default::default()
            };
            kv.put(&Caller::default(), request).await.expect("puts");
        }
    }
}

/// What one watcher heard until it had everything up to `last`, or was told of a compaction.
struct Heard {
    range: KeyRange,
    from: i64,
    events: Vec<Event>,
    compacted: Option<i64>,
}

async fn reader(member: Member, seed: u64, goal: watch::Receiver<i64>) -> Vec<Heard> {
    let (ask, mut answers) = open(&member, 1 + (seed % 3) as usize);
    let mut heard: BTreeMap<i64, Heard> = BTreeMap::new();
    for id in 0..6 {
        let n = (seed * 31 + id * 17) % KEYS;
        let range_end = if id % 2 == 0 {
            Vec::new()
        } else {
            key(n + 3).into_bytes()
        };
        let current = member.services().context.store().revision().get();
        let start = (current - ((seed * 13 + id * 7) % 60) as i64).max(1);
        let create = pb::WatchCreateRequest {
            key: key(n).into(),
            range_end: range_end.into(),
            start_revision: start,
            prev_kv: id % 3 == 0,
            ..Default::default()
        };
        let range = KeyRange::new(create.key.clone(), create.range_end.clone());
        heard.insert(
            id as i64,
            Heard {
                range,
                from: start,
                events: Vec::new(),
                compacted: None,
            },
        );
        let request_union = Some(RequestUnion::CreateRequest(create));
        ask.send(WatchRequest { request_union })
            .await
            .expect("is heard");
        member
            .services()
            .context
            .env()
            .sleep(Duration::from_millis(5 * (seed % 7)))
            .await;
    }
    listen(
        member.services().context.env(),
        &ask,
        &mut answers,
        &mut heard,
        goal,
    )
    .await;
    heard.into_values().collect()
}

/// Reads until a progress answer says that everything up to the goal was sent.
async fn listen(
    env: &Env,
    ask: &mpsc::Sender<WatchRequest>,
    answers: &mut Answers,
    heard: &mut BTreeMap<i64, Heard>,
    mut goal: watch::Receiver<i64>,
) {
    let mut asking = false;
    loop {
        let answer = tokio::select! {
            biased;
            answer = answers.recv() => answer.expect("goes on").expect("no error"),
            () = set(&mut goal), if !asking => {
                asking = true;
                progress(ask).await;
                continue;
            }
            () = env.sleep(Duration::from_millis(20)), if asking => {
                progress(ask).await;
                continue;
            }
        };
        let goal = *goal.borrow();
        if answer.watch_id == -1 {
            assert!(!answer.created, "{answer:?}");
            if goal > 0 && answer.header.expect("set").revision >= goal {
                return;
            }
            continue;
        }
        let watcher = heard.get_mut(&answer.watch_id).expect("ours");
        if answer.compact_revision > 0 {
            watcher.compacted = Some(answer.compact_revision);
            // A cancelled watcher holds up progress until the client cancels it too.
            let cancel = pb::WatchCancelRequest {
                watch_id: answer.watch_id,
            };
            let request_union = Some(RequestUnion::CancelRequest(cancel));
            ask.send(WatchRequest { request_union })
                .await
                .expect("is heard");
        }
        watcher.events.extend(answer.events);
    }
}

async fn set(goal: &mut watch::Receiver<i64>) {
    let _ = goal.wait_for(|goal| *goal > 0).await;
}

async fn progress(ask: &mpsc::Sender<WatchRequest>) {
    let request_union = Some(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
    ask.send(WatchRequest { request_union })
        .await
        .expect("is heard");
}

async fn everything(member: &Member, goal: watch::Receiver<i64>) -> Vec<Event> {
    let (ask, mut answers) = open(member, 64);
    let create = pb::WatchCreateRequest {
        range_end: b"\0"[..].into(),
        start_revision: 2,
        ..Default::default()
    };
    let range = KeyRange::new(create.key.clone(), create.range_end.clone());
    let all = Heard {
        range,
        from: 2,
        events: Vec::new(),
        compacted: None,
    };
    let mut heard = BTreeMap::from([(0, all)]);
    let request_union = Some(RequestUnion::CreateRequest(create));
    ask.send(WatchRequest { request_union })
        .await
        .expect("is heard");
    listen(
        member.services().context.env(),
        &ask,
        &mut answers,
        &mut heard,
        goal,
    )
    .await;
    heard.remove(&0).expect("ours").events
}

fn check(heard: &Heard, all: &[Event], last: i64) {
    let bare = |event: &Event| (event.r#type, event.kv.clone().expect("set"));
    let wanted: Vec<_> = all
        .iter()
        .map(bare)
        .filter(|(_, kv)| kv.mod_revision >= heard.from && heard.range.contains(&kv.key))
        .collect();
    let mut got: Vec<_> = heard.events.iter().map(bare).collect();
    got.retain(|(_, kv)| kv.mod_revision <= last);
    if let Some(compacted) = heard.compacted {
        assert!(compacted > heard.from);
        assert_eq!(got[..], wanted[..got.len()]);
    } else {
        assert_eq!(got, wanted);
    }
    for event in &heard.events {
        let kv = event.kv.as_ref().expect("set");
        let Some(prev) = &event.prev_kv else { continue };
        let before = all
            .iter()
            .filter_map(|e| e.kv.as_ref())
            .filter(|e| e.key == kv.key);
        let before = before
            .take_while(|e| e.mod_revision < kv.mod_revision)
            .last();
        assert_eq!(before, Some(prev), "the pair just before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_watchers_each_see_exactly_their_part() {
    let dir = tempfile::tempdir().expect("a folder");
    let env = tenon_env::real::env_without_peers();
    let mut config = config("m", &["http://localhost:2380"]);
    config.data_dir = dir.path().to_owned();
    let member = Member::start(&env, config).await.expect("starts");
    member.wait_ready().await;
    let (reached, goal) = watch::channel(0);
    let reference = {
        let (member, goal) = (member.clone(), goal.clone());
        tokio::task::JoinSet::from_iter([async move { everything(&member, goal).await }])
    };
    let mut writers: tokio::task::JoinSet<()> = (0..WRITERS)
        .map(|seed| writer(member.clone(), seed))
        .collect();
    let readers: tokio::task::JoinSet<Vec<Heard>> = (0..8)
        .map(|seed| reader(member.clone(), seed, goal.clone()))
        .collect();
    while let Some(done) = writers.join_next().await {
        done.expect("writes");
        let revision = member.services().context.store().revision().get() - 100;
        let request = pb::CompactionRequest {
            revision,
            physical: false,
        };
        let _ = member
            .services()
            .kv
            .compact(&Caller::default(), request)
            .await;
    }
    let last = member.services().context.store().revision().get();
    reached.send_replace(last);
    let all = reference.join_all().await.remove(0);
    let heard: Vec<Heard> = readers.join_all().await.into_iter().flatten().collect();
    assert_eq!(heard.len(), 48);
    for watcher in &heard {
        check(watcher, &all, last);
    }
    let whole = heard
        .iter()
        .filter(|watcher| watcher.compacted.is_none())
        .count();
    assert!(whole > 0, "some watchers outlive the compactions");
    member.shutdown().await;
}
