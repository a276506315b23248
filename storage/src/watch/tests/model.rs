//! Room storage, watches: random interleavings of writes, compactions, snapshots, creations, cancels,
//! progress requests and slow readers, with writes falling between the hub's reading and its locking.
//! Each watcher must see exactly the filtered history from its start, or be told of a compaction.

use super::world::Past;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;
use tenon_proto::mvccpb::event::EventType;

#[derive(Clone, Debug)]
enum Op {
    Write(Write),
    Create {
        stream: usize,
        range: u8,
        start: i64,
        options: u8,
    },
    Cancel {
        stream: usize,
        nth: usize,
    },
    Read {
        stream: usize,
        answers: usize,
    },
    Ambush(Write),
    Progress(usize),
    Tick(usize),
}

fn write() -> impl Strategy<Value = Write> {
    let change = (0..5u8, proptest::option::weighted(0.7, 0..60u8));
    prop_oneof![
        12 => proptest::collection::vec(change, 1..4).prop_map(|mut changes| {
            let mut seen = std::collections::BTreeSet::new();
            changes.retain(|(k, _)| seen.insert(*k));
            Write::Txn(changes)
        }),
        2 => (0..6i64).prop_map(Write::Compact),
        1 => (1..4u8).prop_map(Write::Snapshot),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let stream = 0..2usize;
    prop_oneof![
        8 => write().prop_map(Op::Write),
        3 => (stream.clone(), 0..6u8, -6..4i64, 0..32u8).prop_map(
            |(stream, range, start, options)| Op::Create { stream, range, start, options }
        ),
        1 => (stream.clone(), 0..8usize).prop_map(|(stream, nth)| Op::Cancel { stream, nth }),
        4 => (stream.clone(), 1..6usize).prop_map(|(stream, answers)| Op::Read { stream, answers }),
        3 => write().prop_map(Op::Ambush),
        1 => stream.clone().prop_map(Op::Progress),
        1 => stream.prop_map(Op::Tick),
    ]
}

struct Expected {
    range: KeyRange,
    from: i64,
    request: WatchCreateRequest,
    created: bool,
    canceled: bool,
    compacted: bool,
    got: Vec<(EventType, KeyValue)>,
}

struct Reader {
    stream: WatchStream,
    watchers: BTreeMap<i64, Expected>,
}

fn small() -> WatchOptions {
    WatchOptions {
        queue_bytes_max: 500,
        queue_events_max: 6,
        recent_revisions_max: 3,
        recent_bytes_max: 1000,
        batch_revisions_max: 3,
        batch_bytes_max: 600,
        scan_records_max: 5,
    }
}

impl Expected {
    fn wanted(&self, past: &Past) -> Vec<(EventType, KeyValue)> {
        let drops = |kind: EventType| self.request.filters.contains(&(kind as i32));
        let all = past.changes.iter();
        all.filter(|(kind, kv)| {
            kv.mod_revision >= self.from && self.range.contains(&kv.key) && !drops(*kind)
        })
        .cloned()
        .collect()
    }

    /// Everything up to `revision` was delivered.
    fn is_complete_to(&self, past: &Past, revision: i64) -> bool {
        let wanted = self.wanted(past);
        let due = wanted
            .iter()
            .filter(|(_, kv)| kv.mod_revision <= revision)
            .count();
        self.got.len() >= due
    }
}

impl Reader {
    fn create(&mut self, world: &World, range: u8, start: i64, options: u8) {
        let current = world.past.lock().current;
        let start = if start == 3 {
            0
        } else {
            (current + start).max(1)
        };
        let bit = |n: u8| options & (1 << n) != 0;
        let filters = [
            (bit(0) && bit(1)).then_some(0),
            (bit(2) && bit(3)).then_some(1),
        ];
        let request = WatchCreateRequest {
            progress_notify: bit(0),
            prev_kv: bit(4),
            filters: filters.into_iter().flatten().collect(),
            ..match range {
                0..4 => single(range, start),
                4 => request(start),
                _ => WatchCreateRequest {
                    range_end: Bytes::from_static(b"\0"),
                    start_revision: start,
                    ..WatchCreateRequest::default()
                },
            }
        };
        let key = if request.key.is_empty() {
            b"\0"[..].into()
        } else {
            request.key.clone()
        };
        let expected = Expected {
            range: KeyRange::new(key, request.range_end.clone()),
            from: if start == 0 { current + 1 } else { start },
            request: request.clone(),
            created: false,
            canceled: false,
            compacted: false,
            got: Vec::new(),
        };
        let id = self.watchers.keys().next_back().map_or(0, |last| last + 1);
        self.watchers.insert(id, expected);
        self.stream.create(&request);
    }

    fn read(&mut self, world: &World, answers: usize) -> Result<bool, TestCaseError> {
        for _ in 0..answers {
            match self.stream.next(world) {
                Next::Empty => return Ok(false),
                Next::Again => {}
                Next::Answer(answer) => self.hear(world, answer)?,
            }
        }
        Ok(true)
    }

    fn hear(&mut self, world: &World, answer: Answer) -> Result<(), TestCaseError> {
        if answer.watch_id == -1 {
            prop_assert!(matches!(answer.say, Say::Progress));
            let past = world.past.lock();
            for watcher in self.watchers.values().filter(|w| w.created && !w.canceled) {
                prop_assert!(!watcher.compacted);
                prop_assert!(watcher.is_complete_to(&past, answer.revision));
            }
            return Ok(());
        }
        let watcher = self.watchers.get_mut(&answer.watch_id).expect("known id");
        prop_assert!(!watcher.canceled, "nothing after a cancel");
        match &answer.say {
            Say::Created => {
                prop_assert!(!watcher.created);
                watcher.created = true;
            }
            Say::Refused(reason) => prop_assert!(false, "refused: {}", reason),
            Say::Canceled => watcher.canceled = true,
            Say::Compacted { revision } => {
                prop_assert_eq!(answer.revision, 0);
                prop_assert!(!watcher.compacted && watcher.created);
                let last = watcher.got.last().map_or(0, |(_, kv)| kv.mod_revision);
                prop_assert!(watcher.from < *revision && last < *revision);
                watcher.compacted = true;
            }
            Say::Progress => {
                prop_assert!(
                    watcher.request.progress_notify && watcher.from <= answer.revision + 1
                );
                prop_assert!(watcher.is_complete_to(&world.past.lock(), answer.revision));
            }
            Say::Events { batch, .. } => {
                prop_assert!(watcher.created && !watcher.compacted && !batch.events.is_empty());
                let last = watcher.got.last().map_or(0, |(_, kv)| kv.mod_revision);
                prop_assert!(
                    batch.events[0].revision() > last,
                    "a revision is never split"
                );
                let newest = batch.events.last().map_or(0, |event| event.revision());
                prop_assert!(answer.revision >= newest);
                for event in &batch.events {
                    check_prev(world, event, watcher.request.prev_kv)?;
                    watcher.got.push((event.kind(), event.kv().clone()));
                }
            }
        }
        Ok(())
    }
}

fn check_prev(world: &World, event: &Event, asked: bool) -> Result<(), TestCaseError> {
    let sent = event.to_wire(asked, world).expect("nothing is lost");
    let at = event.revision() - 1;
    let past = world.past.lock();
    let right = past.pair_at(&event.kv().key, at).filter(|_| asked);
    let gone = sent.prev_kv.is_none() && at < past.compacted;
    prop_assert!(gone || sent.prev_kv == right);
    Ok(())
}

fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let world = World::new(small());
    let mut readers: Vec<Reader> = (0..2)
        .map(|_| Reader {
            stream: world.hub.open_stream(),
            watchers: BTreeMap::new(),
        })
        .collect();
    for op in ops {
        match op {
            Op::Write(write) => world.apply(&write),
            Op::Ambush(write) => world.ambush.lock().push_back(write),
            Op::Create {
                stream,
                range,
                start,
                options,
            } => {
                readers[stream].create(&world, range, start, options);
            }
            Op::Cancel { stream, nth } => {
                let id = readers[stream].watchers.keys().nth(nth).copied();
                readers[stream].stream.cancel(id.unwrap_or(1000));
            }
            Op::Read { stream, answers } => {
                readers[stream].read(&world, answers)?;
            }
            Op::Progress(stream) => readers[stream].stream.request_progress(),
            Op::Tick(stream) => readers[stream].stream.tick(),
        }
    }
    for reader in &mut readers {
        while reader.read(&world, 100)? {}
    }
    // An ambush in the last reading may have queued more for the other stream.
    for reader in &mut readers {
        while reader.read(&world, 100)? {}
    }
    let past = world.past.lock();
    let mut alive = 0;
    for watcher in readers.iter().flat_map(|reader| reader.watchers.values()) {
        let wanted = watcher.wanted(&past);
        prop_assert!(watcher.created);
        if watcher.canceled || watcher.compacted {
            prop_assert_eq!(&watcher.got[..], &wanted[..watcher.got.len()]);
        } else {
            prop_assert_eq!(&watcher.got, &wanted);
            alive += 1;
        }
    }
    drop(past);
    let stats = world.hub.stats();
    prop_assert_eq!(
        (stats.watchers, stats.slow_watchers, stats.pending),
        (alive, 0, 0)
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn every_watcher_sees_its_history_exactly_once(ops in proptest::collection::vec(op(), 1..120)) {
        run(ops)?;
    }
}
