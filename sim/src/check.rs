//! Room `sim`: the checkers, one file per property. They read a run's history and timeline after the run, or
//! watch a member while it runs; none changes anything. A finding is a sentence that names what was expected.
//!
//! - `timeline`: revisions without a gap, each with one content for ever, whoever watches and whenever.
//! - `model`: keys and versions as the timeline's events make them.
//! - `writes`: each acknowledged write stands at its revision, each revision has one cause.
//! - `reads`: each read shows the state at its revision, and no revision goes back.
//! - `watches`: each watcher was told exactly its part of the timeline, in order.
//! - `hashes`: one history, one hash.
//! - `leases`: none ends early, all end.
//! - `positions`: the order of DESIGN §5.
//! - `leaders`: one per term; `logs`: they match, and what is committed stays; `states`: the same entries, the
//!   same state.
//! - `appends`: lists that only grow; `locks`: no older holder writes after a newer one;
//!   `elections`: nobody rules but the oldest candidate.
//! - `modes`: hosts that switch: storage goes last, a removed id never votes, no answer goes back.
//! - `space`: bounded.

pub mod appends;
pub mod elections;
pub mod hashes;
pub mod leaders;
pub mod leases;
pub mod locks;
pub mod logs;
pub mod model;
pub mod modes;
pub mod positions;
pub mod reads;
pub mod space;
pub mod states;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod watches;
pub mod writes;

/// What a checker found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding(pub String);

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A checker's verdict.
pub type Verdict = Result<(), Finding>;

/// `Err` with the sentence unless `holds`.
pub(crate) fn require(holds: bool, sentence: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Finding(sentence()))
    }
}

/// The first finding of a run, shared by all that look.
#[derive(Clone, Debug, Default)]
pub struct Docket(std::sync::Arc<parking_lot::Mutex<Option<Finding>>>);

impl Docket {
    /// Keeps what was found, if it is the first.
    pub fn note(&self, verdict: Verdict) {
        if let Err(finding) = verdict {
            self.0.lock().get_or_insert(finding);
        }
    }

    /// The first finding so far.
    ///
    /// # Errors
    /// The finding.
    pub fn verdict(&self) -> Verdict {
        self.0.lock().clone().map_or(Ok(()), Err)
    }
}
