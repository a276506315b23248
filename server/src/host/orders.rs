//! Room `server/host`: what a host may be told, and how it answers. Plain data.

use super::config::FaultTolerance;
use super::edges::{Mode, Step};
use std::fmt;
use std::time::Duration;
use tenon_env::sync::oneshot;
use tenon_proto::code::Code;
use tenon_proto::error::Error;

/// How a switch is to be made; the default leaves all to the host's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// How long it may take.
    pub within: Option<Duration>,
    /// What happens when it leaves no fault tolerance.
    pub fault_tolerance: Option<FaultTolerance>,
}

/// Why a switch was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError {
    /// The mode that was asked for.
    pub to: Mode,
    /// The step that did not succeed; none when the switch did not begin.
    pub step: Option<Step>,
    /// What is in the way.
    pub why: String,
    /// What to do.
    pub remedy: String,
    /// The mode the host is in.
    pub mode: Mode,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, why, mode) = (self.to, &self.why, self.mode);
        match self.step {
            Some(step) => write!(
                f,
                "the switch to {to} failed at step {}: {why}",
                step.name()
            )?,
            None => write!(f, "{why}")?,
        }
        write!(f, ". The host is a {mode}.")?;
        match self.remedy.as_str() {
            "" => Ok(()),
            // Whoever reads this wants to know it before anything else.
            NOTHING => f.write_str(" Nothing was changed."),
            remedy => write!(f, " To do: {remedy}."),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<ChangeError> for Error {
    fn from(error: ChangeError) -> Error {
        Error::other(Code::FailedPrecondition, format!("tenon: {error}"))
    }
}

/// The remedy of a switch that was refused before it began.
pub(super) const NOTHING: &str = "nothing was changed";

/// What a switch would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its steps, each by name and what it does.
    pub steps: Vec<String>,
    /// What to know before.
    pub warnings: Vec<String>,
}

pub(super) type Outcome = Result<(), ChangeError>;

/// What the host's task is told.
pub(super) enum Order {
    /// Switch. `accepted` is answered at once, `ended` when it is over.
    Change {
        to: Mode,
        options: ChangeOptions,
        accepted: oneshot::Sender<Outcome>,
        ended: oneshot::Sender<Outcome>,
    },
    /// Say what a switch would do.
    Plan {
        to: Mode,
        options: ChangeOptions,
        answer: oneshot::Sender<Result<Plan, ChangeError>>,
    },
    /// Take the switch under way back. Answered when the host is what it was.
    Abort(oneshot::Sender<Outcome>),
    /// End. Answered when all is closed.
    Shutdown(oneshot::Sender<()>),
}

/// Why a host is none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Shutdown,
    /// Its disk, its member or its journal failed.
    Failed(String),
    /// Its member was removed from the cluster by somebody else.
    Removed(String),
}
