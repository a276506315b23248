//! Room `sim`: the chronicle: what happened in a run, for people and for counting. Lives, faults and roles are noted
//! as they come, a few hundred words a run; calls of clients stand in their own history. It has no effect on a run
//! and no place in its trace.

use crate::NodeId;
use crate::disk::CrashMode;
use std::collections::BTreeMap;

/// What a member is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It follows a leader that it knows.
    Follower,
    /// It knows no leader and seeks one.
    Seeker,
    /// It leads.
    Leader,
    /// It learns and has no vote.
    Learner,
    /// It is in no configuration that it knows.
    Outside,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A node began a life.
    Began(NodeId, u64),
    /// A node died; what its disk kept.
    Died(NodeId, CrashMode),
    /// A node does nothing from now on.
    Paused(NodeId),
    /// A node goes on.
    Resumed(NodeId),
    /// A node's clocks changed.
    Clock(NodeId, String),
    /// A disk was disturbed, or is whole again.
    Disk(NodeId, String),
    /// Nothing passes from one node to another.
    Cut(NodeId, NodeId),
    /// A link that was cut is open again.
    Mended(NodeId, NodeId),
    /// Nothing passes for so many nanoseconds.
    Clogged(NodeId, NodeId, u64),
    /// A link became worse, or better.
    Link(NodeId, NodeId, String),
    /// The streams between two nodes were broken.
    Reset(NodeId, NodeId),
    /// A member's role and term, as it sees itself.
    Role(NodeId, Role, u64),
    /// A word of the run's own, of a node or of all.
    Note(Option<NodeId>, String),
    /// A promise was broken.
    Violation(String),
}

impl What {
    /// The kind of fault for the sums of many runs; `None` for what is none.
    pub fn fault(&self) -> Option<&'static str> {
        let fault = match self {
            What::Died(_, CrashMode::Kept) => "kill",
            What::Died(_, CrashMode::Lost) => "power cut",
            What::Died(_, CrashMode::Torn) => "torn power cut",
            What::Paused(_) => "pause",
            What::Clock(_, text) if text.contains("drift") => "drift",
            What::Clock(..) => "clock jump",
            What::Disk(_, text) => disk_fault(text)?,
            What::Cut(..) => "cut",
            What::Clogged(..) => "clog",
            What::Link(..) => "bad link",
            What::Reset(..) => "stream reset",
            _ => return None,
        };
        Some(fault)
    }
}

/// The kinds of disk faults by the first word of their text.
fn disk_fault(text: &str) -> Option<&'static str> {
    const KINDS: [(&str, &str); 8] = [
        ("EIO", "disk error"),
        ("lost", "failed sync"),
        ("full", "full disk"),
        ("slow", "slow disk"),
        ("rot", "bit rot"),
        ("misdirected", "misdirected write"),
        ("lies", "lying sync"),
        ("crash", "crash in a disk operation"),
    ];
    let kind = KINDS.iter().find(|(word, _)| text.starts_with(word))?;
    Some(kind.1)
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Nanoseconds since the start of the simulation.
    pub at: u64,
    /// What.
    pub what: What,
}

/// Happenings kept at most; a run that has more is none that anybody reads.
const KEPT_MAX: usize = 200_000;

/// What happened in a run, in its order.
#[derive(Clone, Debug, Default)]
pub struct Chronicle {
    happenings: Vec<Happening>,
}

impl Chronicle {
    pub(crate) fn tell(&mut self, at: u64, what: What) {
        if self.happenings.len() < KEPT_MAX {
            self.happenings.push(Happening { at, what });
        }
    }

    /// All of it, by time.
    pub fn happenings(&self) -> &[Happening] {
        &self.happenings
    }

    /// How often each kind of fault came, and under `"election"` how often a member began to lead.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for happening in &self.happenings {
            let elected = matches!(happening.what, What::Role(_, Role::Leader, _));
            let kind = happening.what.fault().or(elected.then_some("election"));
            if let Some(kind) = kind {
                *counts.entry(kind).or_default() += 1;
            }
        }
        counts
    }
}
