//! Room `tests`: what the run over mode switches saw: every request's time, what went wrong, the newest answer.
//! Pure but for its clock.

use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The newest answer: no later one may be behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// Its revision.
    pub revision: i64,
    /// Its raft term.
    pub term: u64,
}

#[derive(Clone, Copy)]
struct Timed {
    /// Both since the record began.
    from: Duration,
    to: Duration,
}

struct Switched {
    what: String,
    from: Duration,
    to: Duration,
    took: Duration,
}

#[derive(Default)]
struct Seen {
    newest: Newest,
    requests: Vec<Timed>,
    switches: Vec<Switched>,
    troubles: Vec<String>,
    events: u64,
    kept_alive: u64,
    /// When the clients were told to stop; what follows is no stall.
    stopped: Option<Duration>,
}

/// The run's record.
pub struct Record {
    began: Instant,
    seen: Mutex<Seen>,
}

impl Record {
    /// An empty one.
    pub fn new() -> Record {
        Record {
            began: Instant::now(),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic while recording")
    }

    /// What a request sent now may not go back behind.
    pub fn newest(&self) -> Newest {
        self.seen().newest
    }

    /// A request sent at `sent`, when `before` was the newest, was answered with this.
    pub fn answered(&self, what: &str, sent: Instant, before: Newest, answer: Newest) {
        let mut seen = self.seen();
        let (from, to) = (sent - self.began, self.began.elapsed());
        seen.requests.push(Timed { from, to });
        if answer.revision < before.revision || answer.term < before.term {
            let trouble = format!("{what} went back: {answer:?} after {before:?}");
            seen.troubles.push(trouble);
        }
        seen.newest.revision = seen.newest.revision.max(answer.revision);
        seen.newest.term = seen.newest.term.max(answer.term);
    }

    /// An event was delivered.
    pub fn event(&self) {
        self.seen().events += 1;
    }

    /// A lease was kept alive.
    pub fn kept_alive(&self) {
        self.seen().kept_alive += 1;
    }

    /// Something that must not be.
    pub fn trouble(&self, what: String) {
        let at = self.began.elapsed();
        self.seen().troubles.push(format!("{at:.3?}: {what}"));
    }

    /// The clients are told to stop now.
    pub fn stopped(&self) {
        self.seen().stopped = Some(self.began.elapsed());
    }

    /// A switch that began at `began` is over.
    pub fn switched(&self, what: &str, began: Instant, took: Duration) {
        self.seen().switches.push(Switched {
            what: what.to_owned(),
            from: began - self.began,
            to: self.began.elapsed(),
            took,
        });
    }

    /// All that must not be.
    pub fn troubles(&self) -> Vec<String> {
        self.seen().troubles.clone()
    }

    /// The run as a table in Markdown.
    pub fn table(&self, megabytes: usize, clients: u64) -> String {
        let seen = self.seen();
        let during = |request: &&Timed| {
            let mut switches = seen.switches.iter();
            switches.any(|s| request.from < s.to && request.to > s.from)
        };
        let all: Vec<Timed> = seen.requests.clone();
        let across: Vec<Timed> = seen.requests.iter().filter(during).copied().collect();
        let mut out = format!(
            "Three hosts, {megabytes} MB of data, {clients} clients with a deadline of 5 s, all through the endpoint of \
             the host that switches.\n\n| | count | p50 ms | p99 ms | p99.9 ms | longest ms |\n|---|---:|---:|---:|---:|---:|\n"
        );
        for (name, list) in [("requests", &all), ("of them during a switch", &across)] {
            let _ = writeln!(out, "| {name} | {} |{}", list.len(), latencies(list));
        }
        let in_time = |end: &Duration| seen.stopped.is_none_or(|stopped| *end <= stopped);
        let mut ends: Vec<Duration> = all.iter().map(|t| t.to).filter(in_time).collect();
        ends.sort_unstable();
        let stall = ends.windows(2).map(|w| w[1] - w[0]).max();
        let _ = writeln!(
            out,
            "\nLongest time without any answer {:.1} ms; {} events delivered; {} leases kept alive; {} troubles.\n\n\
             | switch | count | shortest ms | median ms | longest ms |\n|---|---:|---:|---:|---:|",
            ms(stall.unwrap_or_default()),
            seen.events,
            seen.kept_alive,
            seen.troubles.len(),
        );
        let mut names: Vec<&String> = seen.switches.iter().map(|s| &s.what).collect();
        names.sort();
        names.dedup();
        for name in names {
            let of = seen.switches.iter().filter(|s| &s.what == name);
            let mut took: Vec<Duration> = of.map(|s| s.took).collect();
            took.sort_unstable();
            let (first, last) = (took[0], took[took.len() - 1]);
            let (first, middle, last) = (ms(first), ms(took[took.len() / 2]), ms(last));
            let _ = writeln!(
                out,
                "| {name} | {} | {first:.0} | {middle:.0} | {last:.0} |",
                took.len()
            );
        }
        out
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Cells of the table: three quantiles and the longest.
fn latencies(list: &[Timed]) -> String {
    let mut took: Vec<Duration> = list.iter().map(|t| t.to - t.from).collect();
    took.sort_unstable();
    let at = |part: f64| {
        let index = (took.len() as f64 * part) as usize;
        took.get(index.min(took.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    };
    [0.5, 0.99, 0.999, 1.0]
        .map(|part| format!(" {:.1} |", ms(at(part))))
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_goes_back_is_a_trouble() {
        let record = Record::new();
        let now = Instant::now();
        let at = |revision, term| Newest { revision, term };
        record.answered("a", now, record.newest(), at(5, 2));
        record.answered("b", now, record.newest(), at(5, 2));
        assert!(record.troubles().is_empty());
        record.answered("c", now, record.newest(), at(4, 2));
        record.answered("d", now, record.newest(), at(6, 1));
        assert_eq!(record.troubles().len(), 2, "revision and term");
        let table = record.table(1, 1);
        assert!(table.contains("| requests | 4 |"), "{table}");
    }
}
