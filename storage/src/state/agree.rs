//! Room storage, state: whether the engine and the log found beside it belong together. Pure; decides, and
//! touches nothing.
//!
//! The engine never runs ahead of what the log has durably, and the log lets go only of what the engine has.
//! So after any crash the log reaches at least as far as the engine, and begins no later than one behind it.
//! There is one exception: a crash between taking over a received snapshot and the log's reset to it, which
//! the engine's row `received` tells. Files put back from elsewhere, a log that was removed, and a log folder
//! named wrongly break the rule; going on would lose what was acknowledged, or a vote.

use crate::wal::Recovery;
use tenon_proto::log::LogId;

/// How engine and log contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// The engine holds entries, and there is no log.
    #[error(
        "the storage engine holds the log up to index {applied}, but there is no write-ahead log: its files \
         were removed, or its folder is not the one named. Bring them back, or replace this member from its \
         peers or a snapshot"
    )]
    NoLog {
        /// Index the engine stands at.
        applied: u64,
    },
    /// The log ends before what the engine holds.
    #[error(
        "the write-ahead log ends at index {last}, but the storage engine holds it up to {applied}: files of \
         the log are missing, cut short or older than the engine's. Bring them back, or replace this member \
         from its peers or a snapshot"
    )]
    LogEnds {
        /// Index of the log's last entry; 0 without.
        last: u64,
        /// Index the engine stands at.
        applied: u64,
    },
    /// The log begins after what the engine lacks.
    #[error(
        "the write-ahead log begins after index {purged}, but the storage engine holds it only up to \
         {applied}: the engine's file is missing or older than the log. Bring it back, or replace this member \
         from its peers or a snapshot"
    )]
    EngineEnds {
        /// Index the log was purged up to.
        purged: u64,
        /// Index the engine stands at; 0 when it is empty.
        applied: u64,
    },
}

/// Compares the engine's position, and the snapshot it was received with, to the log as found.
pub(crate) fn check(
    applied: Option<LogId>,
    received: Option<LogId>,
    log: &Recovery,
) -> Result<(), Disagreement> {
    let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
    if let Some(purged) = log.purged
        && index(applied) < purged.index
    {
        return Err(Disagreement::EngineEnds {
            purged: purged.index,
            applied: index(applied),
        });
    }
    let Some(applied_id) = applied else {
        return Ok(());
    };
    // Nothing is ever applied before a vote was saved.
    if log.vote.is_none() {
        return Err(Disagreement::NoLog {
            applied: applied_id.index,
        });
    }
    if index(log.last) < applied_id.index && received != applied {
        return Err(Disagreement::LogEnds {
            last: index(log.last),
            applied: applied_id.index,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::log::Vote;

    fn id(index: u64) -> Option<LogId> {
        Some(LogId {
            term: 1,
            node_id: 7,
            index,
        })
    }

    fn log(purged: Option<LogId>, last: Option<LogId>) -> Recovery {
        Recovery {
            vote: Some(Vote::default()),
            committed: None,
            purged,
            last: last.or(purged),
            truncated_tail: false,
            begun: true,
        }
    }

    #[test]
    fn a_log_that_reaches_as_far_as_the_engine_is_its_own() {
        for (applied, purged, last) in [
            (None, None, None),
            (None, None, id(5)),
            (id(5), None, id(5)),
            (id(5), id(5), id(5)),
            (id(5), id(3), id(9)),
        ] {
            assert_eq!(check(applied, None, &log(purged, last)), Ok(()));
        }
    }

    #[test]
    fn a_log_that_is_shorter_is_not_but_for_a_snapshot_just_taken_over() {
        let shorter = log(None, id(4));
        let refused = Err(Disagreement::LogEnds {
            last: 4,
            applied: 5,
        });
        assert_eq!(check(id(5), None, &shorter), refused);
        assert_eq!(check(id(5), id(3), &shorter), refused);
        assert_eq!(check(id(5), id(5), &shorter), Ok(()));
        let mut gone = log(None, None);
        gone.vote = None;
        let refused = Err(Disagreement::NoLog { applied: 5 });
        assert_eq!(check(id(5), id(5), &gone), refused);
        assert_eq!(check(None, None, &gone), Ok(()));
    }

    #[test]
    fn a_log_that_begins_later_is_not() {
        for (applied, index) in [(None, 0), (id(4), 4)] {
            let refused = Err(Disagreement::EngineEnds {
                purged: 5,
                applied: index,
            });
            assert_eq!(check(applied, None, &log(id(5), id(9))), refused);
        }
    }
}
