//! Room `env`: faults planted on purpose, the proof that the simulator would notice such mistakes. A room asks for
//! one in a single word, at the very line where the mistake would stand. [`crate::real`] always says
//! [`Plant::None`], and nothing in the product sets another: no flag, no file, no variable (`tidy` holds the tree
//! to that). Only the simulator does.

/// A mistake that could be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plant {
    /// None: the product.
    #[default]
    None,
    /// The log acknowledges before it syncs.
    AcknowledgeBeforeSync,
    /// A vote is answered before it is durable.
    SkipVoteSync,
    /// Whoever asks whether it could win an election is told yes.
    GrantPreVote,
    /// Now and then two writes get one revision.
    ReuseRevision,
    /// Now and then an event reaches no watch.
    DropWatchEvent,
    /// A learner gets its vote however far it is behind.
    PromoteEmptyLearner,
    /// Reads are not confirmed by the leader.
    StaleRead,
    /// The engine is drained past the flushed log.
    DrainPastLog,
    /// A restarted leader resumes its term.
    RestoreLeader,
}

impl Plant {
    /// All mistakes.
    pub const ALL: [Plant; 9] = [
        Plant::AcknowledgeBeforeSync,
        Plant::SkipVoteSync,
        Plant::GrantPreVote,
        Plant::ReuseRevision,
        Plant::DropWatchEvent,
        Plant::PromoteEmptyLearner,
        Plant::StaleRead,
        Plant::DrainPastLog,
        Plant::RestoreLeader,
    ];
}
