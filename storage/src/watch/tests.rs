//! Room storage, watches: the stories of the hub's rules, and (in
//! `tests/model.rs`) random interleavings against what each watcher should have seen.

mod model;
mod world;

use super::*;
use bytes::Bytes;
use std::sync::Arc;
use tenon_proto::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
use world::{World, Write, key};

impl World {
    /// Everything a stream has to say now, a line for each answer.
    fn story(&self, stream: &mut WatchStream) -> Vec<String> {
        self.drain(stream)
            .into_iter()
            .map(|answer| line(answer, self))
            .collect()
    }
}

fn line(answer: Answer, history: &World) -> String {
    let header = ResponseHeader::default();
    let responses = answer.into_responses(header, history, usize::MAX);
    let responses = responses.expect("nothing is lost");
    responses
        .into_iter()
        .map(describe)
        .collect::<Vec<_>>()
        .join(" + ")
}

fn describe(response: WatchResponse) -> String {
    let header = response.header.expect("set");
    let mut out = format!("#{} @{}", response.watch_id, header.revision);
    for (flag, name) in [
        (response.created, " created"),
        (response.canceled, " canceled"),
    ] {
        out += if flag { name } else { "" };
    }
    if response.compact_revision != 0 {
        out += &format!(" compacted {}", response.compact_revision);
    }
    if !response.cancel_reason.is_empty() {
        out += &format!(" '{}'", response.cancel_reason);
    }
    for event in response.events {
        let kv = event.kv.expect("set");
        let kind = if event.r#type == 0 { "PUT" } else { "DELETE" };
        let name = String::from_utf8_lossy(&kv.key).into_owned();
        out += &format!(" {kind} {name}:{}.{}", kv.mod_revision, kv.version);
        if let Some(prev) = event.prev_kv {
            out += &format!("<{}.{}", prev.mod_revision, prev.version);
        }
    }
    out
}

fn request(start: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: key(0),
        range_end: key(4),
        start_revision: start,
        ..WatchCreateRequest::default()
    }
}

fn single(k: u8, start: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: key(k),
        start_revision: start,
        ..WatchCreateRequest::default()
    }
}

fn world() -> (World, WatchStream) {
    let world = World::new(WatchOptions::default());
    let stream = world.hub.open_stream();
    (world, stream)
}

#[test]
fn live_events_come_one_response_per_revision() {
    let (world, mut stream) = world();
    stream.create(&request(0));
    stream.create(&single(1, 0));
    assert_eq!(world.story(&mut stream), ["#0 @1 created", "#1 @1 created"]);
    world.put(0, 1);
    world.apply(&Write::Txn(vec![(1, Some(1)), (0, None), (7, Some(1))]));
    world.put(9, 1);
    assert_eq!(
        world.story(&mut stream),
        [
            "#0 @2 PUT a:2.1",
            "#0 @3 PUT b:3.1 DELETE a:3.0",
            "#1 @3 PUT b:3.1"
        ]
    );
}

#[test]
fn filters_and_previous_pairs_as_in_case_48() {
    let (world, mut stream) = world();
    world.put(0, 0);
    world.put(0, 2);
    world.delete(0);
    let mut both = single(0, 1);
    both.prev_kv = true;
    let no_put = WatchCreateRequest {
        filters: vec![0],
        ..both.clone()
    };
    let no_delete = WatchCreateRequest {
        filters: vec![1],
        ..both.clone()
    };
    for request in [&both, &no_put, &no_delete] {
        stream.create(request);
    }
    assert_eq!(
        world.story(&mut stream),
        [
            "#0 @4 created",
            "#0 @4 PUT a:2.1 PUT a:3.2<2.1 DELETE a:4.0<3.2",
            "#1 @4 created",
            "#1 @4 DELETE a:4.0<3.2",
            "#2 @4 created",
            "#2 @4 PUT a:2.1 PUT a:3.2<2.1",
        ]
    );
    world.put(0, 2);
    assert_eq!(
        world.story(&mut stream),
        ["#0 @5 PUT a:5.1", "#2 @5 PUT a:5.1"]
    );
}

#[test]
fn ids_are_chosen_kept_and_refused() {
    let (world, mut stream) = world();
    stream.create(&WatchCreateRequest {
        watch_id: 1,
        ..single(0, 0)
    });
    stream.create(&single(0, 0));
    stream.create(&single(0, 0));
    stream.create(&WatchCreateRequest {
        watch_id: 2,
        ..single(0, 0)
    });
    stream.create(&WatchCreateRequest {
        watch_id: -5,
        ..single(0, 0)
    });
    stream.create(&WatchCreateRequest {
        range_end: key(0),
        ..request(0)
    });
    stream.create(&single(0, -1));
    stream.refuse("no".into());
    stream.cancel(2);
    stream.cancel(2);
    stream.cancel(99);
    assert_eq!(
        world.story(&mut stream),
        [
            "#1 @1 created",
            "#0 @1 created",
            "#2 @1 created",
            "#-1 @1 created canceled 'mvcc: duplicate watch ID provided on the WatchStream'",
            "#-5 @1 created",
            "#-1 @1 created canceled 'mvcc: watcher range is empty'",
            "#-1 @1 created canceled 'etcdserver: mvcc: required revision has been compacted'",
            "#-1 @1 created canceled 'no'",
            "#2 @1 canceled",
        ]
    );
    world.put(0, 1);
    assert_eq!(world.drain(&mut stream).len(), 3);
}

#[test]
fn an_empty_key_means_the_smallest_and_an_open_end_all() {
    let (world, mut stream) = world();
    let open = WatchCreateRequest {
        range_end: Bytes::from_static(b"\0"),
        ..WatchCreateRequest::default()
    };
    stream.create(&open);
    stream.create(&WatchCreateRequest::default());
    world.put(3, 1);
    let story = world.story(&mut stream);
    assert_eq!(story, ["#0 @1 created", "#1 @1 created", "#0 @2 PUT d:2.1"]);
}

#[test]
fn a_future_start_waits_also_over_a_snapshot_as_in_case_42() {
    let (world, mut stream) = world();
    stream.create(&request(8));
    stream.request_progress();
    for n in 2..=4 {
        world.put(0, n);
    }
    world.apply(&Write::Snapshot(3));
    assert_eq!(world.hub.revision(), 7);
    world.apply(&Write::Txn(vec![(2, Some(1)), (3, Some(1)), (1, None)]));
    assert_eq!(
        world.story(&mut stream),
        ["#0 @1 created", "#0 @8 PUT c:8.2 PUT d:8.1 DELETE b:8.0"]
    );
}

#[test]
fn a_snapshot_is_bridged_by_history_or_ends_in_a_cancel() {
    let (world, mut stream) = world();
    stream.create(&request(0));
    world.drain(&mut stream);
    world.apply(&Write::Snapshot(2));
    assert_eq!(world.story(&mut stream), ["#0 @3 PUT a:2.1 PUT b:3.1"]);
    world.past.lock().compacted = 5;
    world.apply(&Write::Snapshot(3));
    assert_eq!(world.story(&mut stream), ["#0 @0 canceled compacted 5"]);
}

#[test]
fn a_start_below_compaction_is_created_then_cancelled_as_in_case_41() {
    let (world, mut stream) = world();
    for n in 0..4 {
        world.put(n, 1);
    }
    world.delete(0);
    world.apply(&Write::Compact(0));
    stream.create(&request(5));
    stream.create(&request(6));
    assert_eq!(
        world.story(&mut stream),
        [
            "#0 @6 created",
            "#0 @0 canceled compacted 6",
            "#1 @6 created",
            "#1 @6 DELETE a:6.0",
        ]
    );
    // The cancelled one holds up progress, and its id, until the client cancels it.
    stream.request_progress();
    stream.create(&WatchCreateRequest {
        watch_id: 0,
        ..request(0)
    });
    stream.cancel(0);
    stream.request_progress();
    assert_eq!(
        world.story(&mut stream),
        ["#2 @6 created", "#0 @6 canceled", "#-1 @6"]
    );
}

#[test]
fn compaction_leaves_watchers_that_are_up_to_date_alone() {
    let (world, mut stream) = world();
    stream.create(&request(0));
    for n in 0..9 {
        world.put(8, n);
    }
    world.apply(&Write::Compact(0));
    world.put(1, 1);
    assert_eq!(
        world.story(&mut stream),
        ["#0 @1 created", "#0 @11 PUT b:11.1"]
    );
}

#[test]
fn progress_speaks_only_when_everything_was_said() {
    let (world, mut stream) = world();
    stream.request_progress();
    stream.create(&WatchCreateRequest {
        progress_notify: true,
        ..request(0)
    });
    stream.create(&single(7, 0));
    world.put(9, 1);
    stream.request_progress();
    stream.tick();
    world.put(0, 1);
    stream.tick();
    stream.tick();
    assert_eq!(
        world.story(&mut stream),
        [
            "#0 @1 created",
            "#1 @1 created",
            "#-1 @2",
            "#0 @2",
            "#0 @3 PUT a:3.1",
            "#0 @3"
        ]
    );
    stream.create(&single(7, 99));
    stream.request_progress();
    stream.cancel(2);
    stream.create(&single(7, 2));
    stream.request_progress();
    assert_eq!(
        world.story(&mut stream),
        ["#2 @3 created", "#2 @3 canceled", "#3 @3 created"]
    );
    stream.request_progress();
    assert_eq!(world.story(&mut stream), ["#-1 @3"]);
}

#[test]
fn history_comes_in_batches_of_whole_revisions() {
    let options = WatchOptions {
        recent_revisions_max: 1,
        ..WatchOptions::default()
    };
    let world = World::new(options);
    let mut stream = world.hub.open_stream();
    for n in 0..1500 {
        world.apply(&Write::Txn(vec![(0, Some((n % 5) as u8)), (1, Some(0))]));
    }
    stream.create(&request(2));
    let answers = world.drain(&mut stream);
    let sizes: Vec<usize> = answers
        .iter()
        .filter_map(|answer| match &answer.say {
            Say::Events { batch, .. } => Some(batch.events.len()),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [2000, 1000]);
    assert!(answers.iter().all(|answer| answer.revision == 1501));
}

#[test]
fn oversized_answers_are_split_between_events_only_when_allowed() {
    let (world, mut stream) = world();
    stream.create(&WatchCreateRequest {
        fragment: true,
        ..request(0)
    });
    stream.create(&request(0));
    world.drain(&mut stream);
    world.apply(&Write::Txn((0..4).map(|k| (k, Some(100))).collect()));
    let answers = world.drain(&mut stream);
    let parts: Vec<Vec<(usize, bool)>> = answers
        .into_iter()
        .map(|answer| {
            answer
                .into_responses(ResponseHeader::default(), &world, 300)
                .expect("nothing is lost")
        })
        .map(|parts| {
            parts
                .iter()
                .map(|part| (part.events.len(), part.fragment))
                .collect()
        })
        .collect();
    assert_eq!(parts, [vec![(2, true), (2, false)], vec![(4, false)]]);
}

#[test]
fn watchers_come_and_go_and_leave_nothing() {
    let (world, mut stream) = world();
    for round in 0..20_000 {
        stream.create(&single((round % 7) as u8, round % 3));
        stream.create(&request(0));
        stream.cancel(2 * round);
        stream.cancel(2 * round + 1);
        world.drain(&mut stream);
    }
    assert_eq!(
        world.hub.stats(),
        WatchStats {
            streams: 1,
            ..WatchStats::default()
        }
    );
    stream.create(&request(0));
    world.put(0, 1);
    drop(stream);
    let left = WatchStats {
        events: 1,
        ..WatchStats::default()
    };
    assert_eq!(world.hub.stats(), left);
}

#[test]
fn watchers_of_one_key_share_one_batch() {
    let (world, mut stream) = world();
    for _ in 0..100 {
        stream.create(&single(0, 0));
        stream.create(&request(0));
    }
    world.drain(&mut stream);
    world.apply(&Write::Txn(vec![(0, Some(1)), (1, Some(1))]));
    let mut batches: Vec<*const Batch> = world
        .drain(&mut stream)
        .iter()
        .filter_map(|answer| match &answer.say {
            Say::Events { batch, .. } => Some(Arc::as_ptr(batch)),
            _ => None,
        })
        .collect();
    assert_eq!(batches.len(), 200);
    batches.sort_unstable();
    batches.dedup();
    assert_eq!(batches.len(), 2);
}

#[test]
fn an_event_whose_previous_pair_cannot_be_read_is_not_sent_without_it() {
    let world = World::new(WatchOptions::default());
    let mut stream = world.hub.open_stream();
    stream.create(&WatchCreateRequest {
        prev_kv: true,
        ..request(0)
    });
    world.drain(&mut stream);
    world.apply(&Write::Txn(vec![(0, Some(1))]));
    world.apply(&Write::Txn(vec![(0, None)]));
    let answers = world.drain(&mut stream);
    *world.lost.lock() = true;
    let told: Vec<bool> = answers
        .into_iter()
        .map(|answer| answer.into_responses(ResponseHeader::default(), &world, usize::MAX))
        .map(|responses| responses.is_ok())
        .collect();
    assert_eq!(told, [true, false], "the creation, not the deletion");
}
