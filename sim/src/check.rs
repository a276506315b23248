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

pub mod hashes;
pub mod leases;
pub mod model;
pub mod positions;
pub mod reads;
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
