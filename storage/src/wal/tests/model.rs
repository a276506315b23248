//! Room `storage`, WAL tests: the log as it ought to be, and a harness that drives both, crashes the real one
//! and compares.
//!
//! The rule: what comes back is the state after some number of the operations asked for, in their order, and
//! that number is no smaller than the last one acknowledged.

use super::disk::{FakeDisk, Left};
use super::world::{Dice, Hands, node};
use crate::wal::{Recovery, Wal, WalEntry, WalError, WalOptions};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tenon_proto::ids::LogIndex;
use tenon_proto::log::{LogId, Vote};

pub(super) const DIR: &str = "/data/member/wal";

pub(super) fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 4096,
        tail_bytes: 1000,
    }
}

pub(super) fn id(term: u64, index: u64) -> LogId {
    LogId {
        term,
        node_id: 7,
        index,
    }
}

/// What one asks of a log, with the randomness resolved against the state when it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Append {
        entries: u8,
        bytes: u16,
    },
    Vote,
    Committed,
    /// Keeps all but some of the last entries.
    Truncate {
        drop: u8,
    },
    TruncateAll,
    Purge {
        keep: u8,
    },
    EngineDurable {
        behind: u8,
    },
    Reset {
        ahead: u8,
    },
    /// Lets tasks run, not lanes.
    Tasks,
    /// One step of a lane.
    Job(u8),
    /// Everything until all is still.
    Run,
    Read,
}

#[derive(Clone, Default)]
pub(super) struct Model {
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// By a reset; purges move the physical position only.
    reset: Option<LogId>,
    entries: BTreeMap<u64, (LogId, Bytes)>,
    last: Option<LogId>,
}

impl Model {
    fn end(&self) -> u64 {
        self.last.map_or(0, |id| id.index + 1)
    }
}

/// A log under test with the model beside it.
pub(super) struct Harness {
    pub(super) disk: FakeDisk,
    pub(super) hands: Hands,
    pub(super) wal: Option<Wal>,
    /// The model after each operation asked for.
    states: Vec<Model>,
    /// Number of the last operation acknowledged, and whether the order of answers was kept.
    acknowledged: Arc<Mutex<usize>>,
    /// Furthest purge asked for, and what the engine holds.
    intent: Option<LogId>,
    engine: Option<u64>,
    term: u64,
    written: u64,
    seed: u64,
}

impl Harness {
    /// An empty log.
    pub(super) fn new(disk: FakeDisk, seed: u64) -> Harness {
        let mut harness = Harness {
            disk,
            hands: Hands::default(),
            wal: None,
            states: vec![Model::default()],
            acknowledged: Arc::default(),
            intent: None,
            engine: None,
            term: 1,
            written: 0,
            seed,
        };
        // A crash may fall into the first opening.
        if let Ok(recovery) = harness.open() {
            assert_eq!(recovery, Recovery::default());
        }
        harness
    }

    pub(super) fn model(&self) -> &Model {
        self.states.last().expect("never empty")
    }

    fn open(&mut self) -> Result<Recovery, WalError> {
        self.seed += 1;
        let (env, hands) = node(&self.disk, self.seed);
        self.hands = hands;
        let (wal, recovery) = Wal::open(&env, Path::new(DIR), options())?;
        self.wal = Some(wal);
        Ok(recovery)
    }

    /// A new state, and the callback that acknowledges it.
    fn next(&mut self, change: impl FnOnce(&mut Model)) -> crate::wal::Done {
        let mut model = self.model().clone();
        if let Some(wal) = &self.wal {
            // What is physically purged stays so.
            model.entries = model.entries.split_off(&wal.first_index().0);
        }
        change(&mut model);
        self.states.push(model);
        let number = self.states.len() - 1;
        let acknowledged = self.acknowledged.clone();
        Box::new(move |result| {
            if result.is_ok() {
                let mut last = acknowledged.lock();
                assert!(*last < number, "answers come in order");
                *last = number;
            }
        })
    }

    fn entry(&mut self, index: u64, bytes: u16) -> WalEntry {
        self.written += 1;
        let word = self.written.to_le_bytes();
        let payload: Vec<u8> = word
            .iter()
            .copied()
            .cycle()
            .take(usize::from(bytes))
            .collect();
        WalEntry {
            id: id(self.term, index),
            payload: payload.into(),
        }
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        let Some(wal) = self.wal.clone() else {
            return;
        };
        match ask {
            Ask::Append { entries, bytes } => {
                let from = self.model().end();
                let new: Vec<_> = (0..u64::from(entries))
                    .map(|n| self.entry(from + n, bytes))
                    .collect();
                // A crash may keep the first entries of one call only.
                for entry in new.iter().cloned() {
                    drop(self.next(|model| {
                        model.last = Some(entry.id);
                        model
                            .entries
                            .insert(entry.id.index, (entry.id, entry.payload));
                    }));
                }
                let done = self.next(|_| ());
                wal.append(new, done);
            }
            Ask::Vote => {
                self.term += 1;
                let vote = Vote {
                    term: self.term,
                    node_id: 3,
                    committed: self.term.is_multiple_of(2),
                };
                let done = self.next(|model| model.vote = Some(vote));
                wal.save_vote(vote, done);
            }
            Ask::Committed => {
                if let Some(last) = self.model().last {
                    drop(self.next(|model| model.committed = Some(last)));
                    wal.save_committed(last);
                }
            }
            Ask::Truncate { drop } => self.truncate(&wal, u64::from(drop)),
            Ask::TruncateAll => {
                if self.model().reset.is_none()
                    && wal.log_state().0.is_none()
                    && self.intent.is_none()
                {
                    self.term += 1;
                    let done = self.next(|model| {
                        model.entries.clear();
                        model.last = None;
                    });
                    wal.truncate_after(None, done);
                }
            }
            Ask::Purge { .. } | Ask::EngineDurable { .. } | Ask::Reset { .. } => {
                self.ask_purge(&wal, ask);
            }
            Ask::Tasks => self.hands.tasks(),
            Ask::Job(nth) => drop(self.hands.job(usize::from(nth))),
            Ask::Run => self.hands.run(),
            Ask::Read => self.check_reads(&wal),
        }
    }

    /// Entries that the engine holds or that were purged are committed: never truncated.
    fn truncate(&mut self, wal: &Wal, drop: u64) {
        let floor = self.engine.map_or(0, |index| index + 1);
        let end = self.model().end().saturating_sub(drop).max(floor);
        let first = wal.first_index().0;
        if end == 0 || end <= first || end >= self.model().end() {
            return;
        }
        let keep = self.model().entries[&(end - 1)].0;
        self.term += 1;
        let done = self.next(|model| {
            model.entries.split_off(&end);
            model.last = Some(keep);
        });
        wal.truncate_after(Some(keep), done);
    }

    fn ask_purge(&mut self, wal: &Wal, ask: Ask) {
        let Some(last) = self.model().last else {
            return;
        };
        match ask {
            Ask::Purge { keep } => {
                let index = last.index.saturating_sub(u64::from(keep));
                if let Some((upto, _)) = self.model().entries.get(&index).cloned() {
                    wal.purge(upto);
                    if self.intent.is_none_or(|intent| intent.index < upto.index) {
                        self.intent = Some(upto);
                    }
                }
            }
            // The engine drains what is flushed, and nothing of an empty log.
            Ask::EngineDurable { behind } if wal.flushed().0 >= u64::from(behind) => {
                let index = wal.flushed().0 - u64::from(behind);
                if self.model().entries.contains_key(&index)
                    && self.engine.is_none_or(|e| e < index)
                {
                    self.engine = Some(index);
                    wal.set_engine_durable(LogIndex(index));
                }
            }
            Ask::Reset { ahead } => {
                // A snapshot is never older than what the engine holds.
                let index = (last.index + u64::from(ahead)).max(self.engine.unwrap_or(0));
                let to = id(self.term, index);
                self.engine = Some(to.index);
                self.intent = Some(to);
                wal.set_engine_durable(LogIndex(to.index));
                let done = self.next(|model| {
                    model.entries.clear();
                    model.reset = Some(to);
                    model.last = Some(to);
                });
                wal.reset(to, done);
            }
            _ => {}
        }
    }

    /// Every entry the log says it has is the model's, in one read and in small ones.
    fn check_reads(&self, wal: &Wal) {
        if self.disk.is_dead() {
            return;
        }
        let (purged, last) = wal.log_state();
        assert_eq!(last, self.model().last, "the last entry");
        let begin = wal.first_index().0;
        if let Some(purged) = purged {
            assert_eq!(begin, purged.index + 1);
        }
        let want: Vec<_> = self
            .model()
            .entries
            .range(begin..)
            .map(|(_, e)| e.clone())
            .collect();
        let all = wal.read(LogIndex(begin), 1000, 1 << 20).unwrap();
        assert_eq!(all, want, "one read of the log from {begin}");
        let mut small = Vec::new();
        while small.len() < want.len() {
            let next = LogIndex(begin + small.len() as u64);
            let some = wal.read(next, 3, 300).unwrap();
            let bytes: usize = some.iter().map(|(_, payload)| payload.len()).sum();
            assert!(some.len() <= 3 && (bytes <= 300 || some.len() == 1));
            small.extend(some);
        }
        assert_eq!(small, want, "small reads of the log from {begin}");
    }

    /// The machine dies here, comes back with `left` of what was not durable, and is compared. `again`: dies
    /// at these steps of the openings that follow, too.
    pub(super) fn crash(&mut self, left: Left, dice: &mut Dice, again: &[u64]) {
        let flushed = self.wal.as_ref().map(|wal| wal.flushed().0);
        let promised: Vec<_> = match flushed {
            // 0 also says "nothing".
            Some(flushed) => self
                .model()
                .entries
                .range(1.min(flushed)..=flushed)
                .filter(|_| flushed > 0)
                .map(|(_, e)| e.clone())
                .collect(),
            None => Vec::new(),
        };
        let mut again = again.iter();
        let recovery = loop {
            self.hands.kill();
            self.wal = None;
            self.disk.restart(left, dice.next());
            let dies_at = again.next();
            if let Some(step) = dies_at {
                self.disk.crash_at(*step);
            }
            match self.open() {
                Ok(_) if self.disk.is_dead() => {}
                Ok(recovery) => break recovery,
                Err(error) => assert!(self.disk.is_dead(), "after a crash: {error}"),
            }
        };
        // A step of the opening that was not reached must not hit what follows.
        self.disk.crash_at(u64::MAX);
        self.compare(&recovery, &promised);
    }

    fn compare(&mut self, recovery: &Recovery, promised: &[(LogId, Bytes)]) {
        let wal = self.wal.clone().expect("just opened");
        let begin = wal.first_index().0;
        let entries = wal.read(LogIndex(begin), 1000, 1 << 20).unwrap();
        let acknowledged = *self.acknowledged.lock();
        let fits = |model: &Model| {
            let want = model.entries.range(begin..).map(|(_, entry)| entry);
            let purge_known = match recovery.purged {
                None => model.reset.is_none(),
                Some(id) => model.reset.is_none_or(|reset| reset.index <= id.index),
            };
            recovery.vote == model.vote
                && recovery.committed == model.committed
                && recovery.last == model.last
                && purge_known
                && want.eq(entries.iter())
        };
        let found = (acknowledged..self.states.len())
            .rev()
            .find(|at| fits(&self.states[*at]));
        let Some(at) = found else {
            let show =
                |e: &(LogId, Bytes)| format!("{}/{}:{:.8?}", e.0.term, e.0.index, e.1.first());
            let show_all = |model: &Model| model.entries.values().map(show).collect::<Vec<_>>();
            panic!(
                "no state from {acknowledged} on fits {recovery:?} with entries {:?}; acknowledged: {:?} {:?}; \
                 last: {:?}",
                entries.iter().map(show).collect::<Vec<_>>(),
                self.states[acknowledged].vote,
                show_all(&self.states[acknowledged]),
                show_all(self.model()),
            );
        };
        if let Some(purged) = recovery.purged
            && self.states[at].reset != Some(purged)
        {
            let bound = self.intent.map(|id| id.index).min(self.engine);
            assert!(
                Some(purged.index) <= bound,
                "purged {purged:?} beyond {bound:?}"
            );
        }
        if self.states[at].reset == self.model().reset {
            for (id, payload) in promised {
                let kept = wal.read(LogIndex(id.index), 1, 0);
                let kept = kept.map(|kept| kept == [(*id, payload.clone())]);
                let purged = recovery.purged.is_some_and(|p| p.index >= id.index);
                assert!(purged || kept.unwrap(), "flushed entry {id:?} is gone");
            }
        }
        let model = self.states[at].clone();
        self.states = vec![model];
        *self.acknowledged.lock() = 0;
        self.intent = self.intent.filter(|_| recovery.purged.is_some());
        if let Some(engine) = self.engine {
            // What the engine held before is still there.
            wal.set_engine_durable(LogIndex(engine));
        }
        self.check_reads(&wal);
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.hands.kill();
    }
}
