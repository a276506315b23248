//! Room `sim`, L2: what clients saw, and when. Two runs of one seed must tell the same story to the letter.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// One thing seen: simulated time, who, what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Since the start of the run.
    pub at: Duration,
    /// Whose line it is.
    pub who: &'static str,
    /// What was seen.
    pub what: String,
}

/// The lines so far, in the order they were told. Clones name the same.
#[derive(Clone, Default)]
pub struct Story(Arc<Mutex<Vec<Line>>>);

impl Story {
    /// Adds a line at the current simulated time.
    pub fn tell(&self, who: &'static str, what: impl Into<String>) {
        let what = what.into();
        let at = turmoil::sim_elapsed().unwrap_or_default();
        self.0.lock().push(Line { at, who, what });
    }

    /// All lines.
    pub fn lines(&self) -> Vec<Line> {
        self.0.lock().clone()
    }

    /// The first line of `who` that begins so.
    pub fn find(&self, who: &str, begin: &str) -> Option<Line> {
        let lines = self.0.lock();
        let mut own = lines.iter().filter(|line| line.who == who);
        own.find(|line| line.what.starts_with(begin)).cloned()
    }

    /// The first line of `who` that begins so.
    ///
    /// # Panics
    /// When there is none.
    pub fn line(&self, who: &str, begin: &str) -> Line {
        let found = self.find(who, begin);
        found.unwrap_or_else(|| panic!("{who} never told {begin:?}:\n{}", self.text()))
    }

    /// A hash of all lines with their times, the same in every process.
    pub fn hash(&self) -> u64 {
        let prime = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.text().bytes().fold(0xcbf2_9ce4_8422_2325, prime)
    }

    /// As text for people.
    pub fn text(&self) -> String {
        let lines = self.lines();
        let text = lines
            .iter()
            .map(|l| format!("{:?} {}: {}\n", l.at, l.who, l.what));
        text.collect()
    }
}

/// Where two stories part, for people.
pub fn parting(one: &Story, other: &Story) -> Option<String> {
    let (one, other) = (one.lines(), other.lines());
    let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at))?;
    Some(format!(
        "line {at}: {:?} against {:?}",
        one.get(at),
        other.get(at)
    ))
}
