//! The write-ahead log alone: random work, a crash at any disk operation, recovery.
//!
//! The property: everything becomes durable in the order of the calls, so what recovery finds is the state
//! after some first part of the calls, and that part holds every call that was acknowledged. An append counts
//! as one call for each of its entries. Only the purge may lag, and only the committed position may be lost.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenon_env::Env;
use tenon_proto::ids::LogIndex;
use tenon_proto::log::{LogId, Vote};
use tenon_sim::{CrashMode, Sim, SimRng};
use tenon_storage::wal::{Done, Recovery, Wal, WalEntry, WalOptions};

const DIR: &str = "/data/member/wal";

/// What the log should hold after some of the calls.
#[derive(Clone, Debug, Default)]
struct Model {
    vote: Option<Vote>,
    /// Where the log was reset to or has been found to begin after.
    base: Option<LogId>,
    log: BTreeMap<u64, (LogId, Bytes)>,
    intent: u64,
    engine: u64,
    committed: Option<LogId>,
    term: u64,
}

fn at(id: &Option<LogId>) -> u64 {
    id.as_ref().map_or(0, |id| id.index)
}

impl Model {
    fn last(&self) -> u64 {
        self.log
            .keys()
            .next_back()
            .copied()
            .unwrap_or(at(&self.base))
    }

    /// The log begins anew after `to`. What the engine holds it keeps, also where that is before it.
    fn reset(&mut self, to: LogId) {
        self.base = Some(to);
        self.log.clear();
        self.intent = to.index;
        self.engine = self.engine.max(to.index);
    }

    /// The difference to what was found, if any.
    fn differs(&self, found: &Recovery, read: &[(LogId, Bytes)]) -> Option<String> {
        let purged = at(&found.purged);
        let floor = self.intent.min(self.engine).max(at(&self.base));
        if found.vote != self.vote {
            return Some(format!("vote {:?}, expected {:?}", found.vote, self.vote));
        }
        if purged < at(&self.base) || purged > floor {
            let base = at(&self.base);
            return Some(format!("purged to {purged}, expected {base} to {floor}"));
        }
        if at(&found.last) != self.last() {
            return Some(format!("last {:?}, expected {}", found.last, self.last()));
        }
        let expected: Vec<_> = self
            .log
            .range(purged + 1..)
            .map(|(_, e)| e.clone())
            .collect();
        (read != expected).then(|| {
            format!(
                "{} entries from {}, expected {}",
                read.len(),
                purged + 1,
                expected.len()
            )
        })
    }
}

/// One life's calls: the model after each of them, and how many were acknowledged.
struct Calls {
    states: Vec<Model>,
    acknowledged: Arc<AtomicUsize>,
}

impl Calls {
    fn new(start: Model) -> Calls {
        Calls {
            states: vec![start],
            acknowledged: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn now(&self) -> &Model {
        self.states.last().expect("never empty")
    }

    /// Notes a call; its `Done` checks that acknowledgements come in the order of the calls.
    fn call(&mut self, change: impl FnOnce(&mut Model)) -> Done {
        let mut next = self.now().clone();
        change(&mut next);
        self.states.push(next);
        let (number, acknowledged) = (self.states.len() - 1, self.acknowledged.clone());
        Box::new(move |done| {
            if done.is_ok() {
                let before = acknowledged.swap(number, Ordering::SeqCst);
                assert!(
                    before < number,
                    "call {number} acknowledged after call {before}"
                );
            }
        })
    }
}

fn entries(model: &Model, rng: &mut SimRng) -> Vec<WalEntry> {
    let mut index = model.last();
    let count = rng.between(1, 6);
    (0..count)
        .map(|_| {
            index += 1;
            let len = match rng.below(20) {
                0 => rng.between(4_000, 9_000),
                1 => 0,
                _ => rng.between(1, 400),
            };
            let byte = rng.next_u64() as u8;
            let payload = Bytes::from(vec![byte; len as usize]);
            WalEntry {
                id: LogId {
                    term: model.term,
                    node_id: 1,
                    index,
                },
                payload,
            }
        })
        .collect()
}

fn step(wal: &Wal, calls: &mut Calls, rng: &mut SimRng) {
    let model = calls.now().clone();
    match rng.below(100) {
        0..55 => {
            let new = entries(&model, rng);
            let mut done: Option<Done> = None;
            for entry in new.clone() {
                done = Some(calls.call(|m| {
                    m.log.insert(entry.id.index, (entry.id, entry.payload));
                }));
            }
            wal.append(new, done.expect("at least one entry"));
        }
        55..65 => {
            let vote = Vote {
                term: model.term + 1,
                node_id: rng.below(3),
                committed: true,
            };
            let done = calls.call(|m| {
                m.vote = Some(vote);
                m.term += 1;
            });
            wal.save_vote(vote, done);
        }
        65..75 => {
            if let Some((id, _)) = model.log.values().next_back() {
                wal.save_committed(*id);
                drop(calls.call(|m| m.committed = Some(*id)));
            }
        }
        75..82 => {
            let low = at(&model.base).max(model.intent);
            let keep = rng.between(low, model.last());
            let id = model.log.get(&keep).map(|(id, _)| *id).or(model.base);
            let done = calls.call(|m| {
                m.log.split_off(&(keep + 1));
                m.term += 1;
            });
            wal.truncate_after(id, done);
        }
        82..90 if !model.log.is_empty() => {
            let low = at(&model.base).max(model.intent);
            let upto = rng.between(low, model.last());
            if let Some((id, _)) = model.log.get(&upto) {
                wal.purge(*id);
                drop(calls.call(|m| m.intent = upto));
            }
        }
        90..98 => {
            let index = rng.between(model.engine, model.last().max(model.engine));
            wal.set_engine_durable(LogIndex(index));
            drop(calls.call(|m| m.engine = index));
        }
        98.. => {
            let to = LogId {
                term: model.term,
                node_id: 2,
                index: model.last() + rng.between(1, 50),
            };
            let done = calls.call(|m| m.reset(to));
            wal.reset(to, done);
        }
        _ => {}
    }
}

/// Works until the node dies or `steps` are done, then until all is acknowledged; the calls made.
async fn work(sim: &Sim, env: Env, start: Model, steps: usize, rng: &mut SimRng) -> Option<Calls> {
    let options = WalOptions {
        segment_bytes: 8 << 10,
        tail_bytes: 2 << 10,
    };
    // The folders above are the member's business.
    let folders = env.disk.create_dir_all_synced(Path::new(DIR));
    let opened = Wal::open(&env, Path::new(DIR), options);
    let (wal, found) = match (folders, opened) {
        (Ok(()), Ok(open)) => open,
        _ if !sim.is_alive(1) => return None,
        (folders, opened) => panic!("seed {}: {folders:?} {opened:?}", sim.seed()),
    };
    let mut start = start;
    if at(&found.purged) > at(&start.base) {
        start.log = start.log.split_off(&(at(&found.purged) + 1));
        start.base = found.purged;
    }
    let mut calls = Calls::new(start);
    for _ in 0..steps {
        if !sim.is_alive(1) {
            break;
        }
        step(&wal, &mut calls, rng);
        if rng.below(3) == 0 {
            sim.sleep(Duration::from_micros(rng.below(3_000))).await;
        }
    }
    sim.sleep(Duration::from_millis(rng.below(40))).await;
    Some(calls)
}

/// Opens the log after a crash and finds the part of the calls that it holds.
fn recover(sim: &Sim, calls: &Calls) -> Model {
    let env = sim.restart(1);
    let options = WalOptions {
        segment_bytes: 8 << 10,
        tail_bytes: 2 << 10,
    };
    let seed = sim.seed();
    let (wal, found) = Wal::open(&env, Path::new(DIR), options)
        .unwrap_or_else(|error| panic!("seed {seed}: does not open: {error}"));
    let read = wal.read(wal.first_index(), usize::MAX, usize::MAX).unwrap();
    let acknowledged = calls.acknowledged.load(Ordering::SeqCst);
    let mut differences = Vec::new();
    for (number, state) in calls.states.iter().enumerate().skip(acknowledged) {
        match state.differs(&found, &read) {
            None => {
                let known = |m: &Model| m.committed == found.committed;
                let committed = found.committed.is_none() || calls.states.iter().any(known);
                assert!(
                    committed,
                    "seed {seed}: committed {:?} was never saved",
                    found.committed
                );
                let mut state = state.clone();
                state.term = state.term.max(calls.now().term) + 1;
                state.committed = found.committed;
                return state;
            }
            Some(difference) => {
                differences.push(format!("after call {number}: {difference}"));
            }
        }
    }
    let calls = calls.states.len() - 1;
    let all = differences.join("\n  ");
    panic!(
        "seed {seed}: recovery finds no state between call {acknowledged} and {calls}:\n  {all}\n\
         found {found:?}"
    );
}

/// One life with a crash at disk operation `crash_at` from its start (or at its end), and its recovery.
fn live_and_crash(
    sim: &Sim,
    start: Model,
    (steps, crash_at, mode): (usize, u64, CrashMode),
    rng: &mut SimRng,
) -> Model {
    let env = if sim.is_alive(1) {
        sim.node(1)
    } else {
        sim.restart(1)
    };
    let disk = sim.disk(1);
    disk.crash_at(disk.ops() + crash_at, mode);
    let calls = sim
        .run_until(work(sim, env, start.clone(), steps, rng))
        .unwrap();
    sim.kill(1, mode);
    disk.no_crash();
    let calls = calls.unwrap_or_else(|| Calls::new(start));
    let model = recover(sim, &calls);
    // The next life opens it anew.
    sim.kill(1, mode);
    model
}

const MODES: [CrashMode; 3] = [CrashMode::Kept, CrashMode::Lost, CrashMode::Torn];

#[test]
fn a_crash_at_every_disk_operation_loses_no_acknowledged_call() {
    let length = {
        let sim = Sim::new(1);
        let mut rng = sim.rng("calls");
        live_and_crash(
            &sim,
            Model::default(),
            (40, u64::MAX / 2, CrashMode::Kept),
            &mut rng,
        );
        sim.disk(1).ops()
    };
    assert!(length > 60, "the work has only {length} disk operations");
    for n in 1..=length {
        for mode in MODES {
            let sim = Sim::new(1);
            let mut rng = sim.rng("calls");
            live_and_crash(&sim, Model::default(), (40, n, mode), &mut rng);
        }
    }
}

#[test]
fn many_lives_of_many_seeds() {
    for seed in 0..200 {
        let sim = Sim::new(seed);
        let mut rng = sim.rng("calls");
        let mut model = Model::default();
        for _ in 0..5 {
            let mode = *rng.pick(&MODES);
            let crash_at = rng.between(1, 150);
            model = live_and_crash(&sim, model, (60, crash_at, mode), &mut rng);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = || {
        let sim = Sim::new(77);
        let mut rng = sim.rng("calls");
        let mut model = Model::default();
        for crash_at in [40, 90, 70] {
            model = live_and_crash(&sim, model, (60, crash_at, CrashMode::Torn), &mut rng);
        }
        sim.trace()
    };
    assert_eq!(trace(), trace());
}
