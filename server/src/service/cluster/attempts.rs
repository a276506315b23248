//! Room `server/service`: a change of members is judged by the list as it is and made only while that list is the
//! newest: of two changes asked at once the second is judged again, with the first in the list. Bounded by one
//! deadline for all attempts.

use super::{Cluster, change_error};
use std::time::Duration;
use tenon_env::{Env, Instant};
use tenon_proto::error::Error;
use tenon_proto::ids::LogIndex;
use tenon_raft::{MemberError, Premise};

/// Pause before a change is judged again.
const PAUSE: Duration = Duration::from_millis(20);

/// The attempts of one change.
pub(super) struct Attempts {
    env: Env,
    /// When the last one must have ended.
    pub(super) deadline: Instant,
    made: u32,
}

impl Attempts {
    /// Whether no attempt was made yet.
    pub(super) fn is_first(&self) -> bool {
        self.made == 0
    }

    /// Where the change stands in the log; `None` when it is to be judged again, after a pause.
    pub(super) async fn settle(
        &mut self,
        outcome: Result<LogIndex, MemberError>,
    ) -> Result<Option<LogIndex>, Error> {
        match outcome {
            Ok(index) => Ok(Some(index)),
            Err(MemberError::Outdated) if self.env.now() < self.deadline => {
                self.made += 1;
                self.env.sleep(PAUSE).await;
                Ok(None)
            }
            Err(error) => Err(change_error(error)),
        }
    }
}

impl Cluster {
    pub(super) fn attempts(&self) -> Attempts {
        Attempts {
            env: self.context.env().clone(),
            deadline: self.deadline(),
            made: 0,
        }
    }

    /// The membership that this member knows. Taken before a judgement, never after: a change that is applied in
    /// between makes the judgement count for nothing.
    pub(super) async fn premise(&self) -> Result<Premise, Error> {
        let known = || self.context.store().membership().0.map(Premise::At);
        if let Some(premise) = known() {
            return Ok(premise);
        }
        self.context.read_barrier().await?;
        known().ok_or(Error::Timeout)
    }
}
