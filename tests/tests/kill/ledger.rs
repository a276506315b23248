//! Room `tests`: what was promised in the kill test. Pure; panics with what was broken.
//!
//! - `floor`: no answer to a request sent later may show an older revision;
//! - per key: the last sequence number tried and the last acknowledged; what is read lies between them;
//! - all writes are single puts of these keys, so history holds each revision from 2 exactly once.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Everything promised so far.
#[derive(Default)]
pub struct Ledger(Mutex<Books>);

#[derive(Default)]
struct Books {
    floor: i64,
    keys: BTreeMap<String, Sequence>,
    /// Revision to key and sequence number, as acknowledged.
    acknowledged: BTreeMap<i64, (String, u64)>,
    /// The last revision seen in history.
    told: i64,
    /// What history told of revisions that were not acknowledged by then.
    told_early: BTreeMap<i64, (String, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Sequence {
    tried: u64,
    acknowledged: u64,
}

/// What held when a request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    floor: i64,
    acknowledged: u64,
}

impl Ledger {
    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0.lock().expect("no panic while booking")
    }

    /// Notes what holds before a request about `key` is sent.
    pub fn before(&self, key: &str) -> Before {
        let books = self.books();
        let acknowledged = books.keys.get(key).map_or(0, |s| s.acknowledged);
        Before {
            floor: books.floor,
            acknowledged,
        }
    }

    /// The sequence number of the next write of `key`.
    pub fn try_next(&self, key: &str) -> u64 {
        let mut books = self.books();
        let sequence = books.keys.entry(key.to_owned()).or_default();
        sequence.tried += 1;
        sequence.tried
    }

    /// A write was acknowledged at `revision`.
    pub fn acknowledge(&self, key: &str, number: u64, revision: i64, before: Before) {
        let mut books = self.books();
        assert!(
            revision > before.floor,
            "put of {key} at {revision}, but {} was seen",
            before.floor
        );
        let twice = books
            .acknowledged
            .insert(revision, (key.to_owned(), number));
        assert!(
            twice.is_none(),
            "revision {revision} given to {key} and to {twice:?}"
        );
        if let Some(told) = books.told_early.remove(&revision) {
            assert_eq!(
                told,
                (key.to_owned(), number),
                "history told of revision {revision}"
            );
        }
        books.floor = books.floor.max(revision);
        books.keys.entry(key.to_owned()).or_default().acknowledged = number;
    }

    /// A read of `key` answered with `number` (0: absent) at `revision`.
    pub fn read(&self, key: &str, number: u64, revision: i64, before: Before) {
        let mut books = self.books();
        assert!(
            revision >= before.floor,
            "read of {key} at {revision}, but {} was seen",
            before.floor
        );
        assert!(
            number >= before.acknowledged,
            "{key} is {number}, but {} was acknowledged",
            before.acknowledged
        );
        let tried = books.keys.get(key).map_or(0, |s| s.tried);
        assert!(
            number <= tried,
            "{key} is {number}, but only {tried} were written"
        );
        books.floor = books.floor.max(revision);
    }

    /// History told of a put.
    pub fn tell(&self, key: &str, number: u64, revision: i64) {
        let mut books = self.books();
        let next = books.told.max(1) + 1;
        assert_eq!(
            revision, next,
            "history goes on with {key} at {revision} instead of {next}"
        );
        books.told = revision;
        if let Some(promised) = books.acknowledged.get(&revision) {
            assert_eq!(
                *promised,
                (key.to_owned(), number),
                "revision {revision} was promised to another write"
            );
        } else {
            books.told_early.insert(revision, (key.to_owned(), number));
        }
    }

    /// The revision from which history is still to be told.
    pub fn untold(&self) -> i64 {
        self.books().told.max(1) + 1
    }

    /// The highest revision any answer has shown.
    pub fn floor(&self) -> i64 {
        self.books().floor
    }

    /// All keys ever written.
    pub fn keys(&self) -> Vec<String> {
        self.books().keys.keys().cloned().collect()
    }

    /// Number of acknowledged writes, and the last revision.
    pub fn size(&self) -> (usize, i64) {
        let books = self.books();
        (books.acknowledged.len(), books.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn broken(step: impl Fn(&Ledger)) -> bool {
        let ledger = Ledger::default();
        let number = ledger.try_next("a");
        ledger.acknowledge("a", number, 2, ledger.before("a"));
        ledger.tell("a", 1, 2);
        catch_unwind(AssertUnwindSafe(|| step(&ledger))).is_err()
    }

    #[test]
    fn broken_promises_are_found() {
        assert!(
            !broken(|l| l.read("a", 1, 2, l.before("a"))),
            "what is right passes"
        );
        assert!(broken(|l| l.read("a", 0, 2, l.before("a"))), "a lost write");
        assert!(
            broken(|l| l.read("a", 2, 2, l.before("a"))),
            "a write nobody made"
        );
        assert!(
            broken(|l| l.read("a", 1, 1, l.before("a"))),
            "a revision that goes back"
        );
        assert!(
            broken(|l| l.acknowledge("a", l.try_next("a"), 2, l.before("a"))),
            "a revision twice"
        );
        assert!(broken(|l| l.tell("a", 2, 4)), "a hole in history");
        assert!(broken(|l| l.tell("a", 1, 2)), "history told twice");
        assert!(
            broken(|l| {
                l.acknowledge("a", l.try_next("a"), 3, l.before("a"));
                l.tell("b", 1, 3);
            }),
            "another write at an acknowledged revision"
        );
        assert!(
            broken(|l| {
                l.tell("b", 1, 3);
                l.acknowledge("a", l.try_next("a"), 3, l.before("a"));
            }),
            "the same, told first"
        );
    }
}
