//! Room `raft`: how proposals and reads can end without an answer, and why a member cannot start. Words
//! only; the services turn them into etcd's errors.

use std::fmt;
use tenon_proto::ids::MemberId;

/// Why something was not done, or why nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No leader was known until the deadline.
    NoLeader,
    /// The deadline passed first.
    Timeout,
    /// The leader changed while the entry was under way.
    LeaderChanged,
    /// The stream to the leader broke after the request was handed to it.
    StreamBroken,
    /// This member is stopping, or has been removed.
    Stopping,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NoLeader => "no leader",
            Reason::Timeout => "the deadline passed",
            Reason::LeaderChanged => "the leader changed",
            Reason::StreamBroken => "the stream to the leader broke",
            Reason::Stopping => "the member is stopping",
        })
    }
}

/// A proposal without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The command is in no log and will never be applied; asking again is safe.
    #[error("not proposed: {0}")]
    NotProposed(Reason),
    /// The command may be applied, now or later, or never. Asking again may apply it twice.
    #[error("outcome unknown: {0}")]
    Unknown(Reason),
}

/// A linearizable read that could not be confirmed. Nothing was changed; asking again is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read not confirmed: {0}")]
pub struct ReadError(pub Reason);

/// A change of members that was not made, or of which nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// This member does not lead; the leader it knows.
    #[error("not the leader; the leader is {0:?}")]
    NotLeader(Option<MemberId>),
    /// The member is in no configuration.
    #[error("member {0} not found")]
    NotFound(MemberId),
    /// The member is there already.
    #[error("member {0} exists")]
    Exists(MemberId),
    /// Only learners are promoted.
    #[error("member {0} is not a learner")]
    NotLearner(MemberId),
    /// Only a voter can lead.
    #[error("member {0} is not a voter")]
    NotVoter(MemberId),
    /// Nobody would be left to vote.
    #[error("the last voter cannot be removed")]
    LastVoter,
    /// The learner's log is too far behind the leader's.
    #[error("learner {0} is not in sync with the leader")]
    NotReady(MemberId),
    /// The membership is not, or not any more, the one that the change was judged by. The change is in no log.
    #[error("the membership is not the one that the change was judged by")]
    Outdated,
    /// The change is in no log.
    #[error("not changed: {0}")]
    NotChanged(Reason),
    /// The change may come into force, or not.
    #[error("outcome unknown: {0}")]
    Unknown(Reason),
}

/// Why a member's raft cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The timings contradict each other.
    #[error("raft timings: {0}")]
    Timings(String),
    /// Log, vote or state could not be read, or do not fit together.
    #[error("raft cannot start from what is on disk: {0}")]
    Storage(String),
    /// The first configuration cannot be used.
    #[error("bootstrap: {0}")]
    Bootstrap(String),
}
