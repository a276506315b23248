//! Room `server/member`: compaction without being asked, by time or by number of revisions. Policies are pure
//! (time and revision go in, the revision to compact comes out); only the leader acts.

use super::config::Compaction;
use crate::service::Context;
use std::collections::VecDeque;
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::CompactionRequest;

const HOUR: Duration = Duration::from_secs(3600);
/// Time between compactions that keep a number of revisions.
const REVISION_PERIOD: Duration = Duration::from_secs(300);
/// Looks at the state in each period.
const LOOKS: u32 = 10;

/// Decides when to compact to which revision.
///
/// - The first compaction comes one period, and at least the retention, after the start.
/// - After a failure the next attempt follows after a tenth of the period.
#[derive(Debug)]
pub struct Policy {
    keep: Keep,
    period: Duration,
    next: Instant,
    compacted: i64,
}

#[derive(Debug)]
enum Keep {
    Time {
        retention: Duration,
        samples: VecDeque<(Instant, i64)>,
    },
    Revisions(i64),
}

impl Policy {
    /// The policy of a mode; none when it is off.
    pub fn new(mode: Compaction, now: Instant) -> Option<Policy> {
        let (keep, period, first) = match mode {
            Compaction::Off => return None,
            Compaction::Periodic(retention) => {
                let samples = VecDeque::new();
                (
                    Keep::Time { retention, samples },
                    retention.min(HOUR),
                    retention,
                )
            }
            Compaction::Revision(count) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                (Keep::Revisions(count), REVISION_PERIOD, REVISION_PERIOD)
            }
        };
        Some(Policy {
            keep,
            period,
            next: now + first,
            compacted: 0,
        })
    }

    /// Time between two calls of [`Policy::look`].
    pub fn pause(&self) -> Duration {
        (self.period / LOOKS).max(Duration::from_millis(1))
    }

    /// Notes the current revision and says to which one to compact now, if at all.
    pub fn look(&mut self, now: Instant, revision: i64) -> Option<i64> {
        let target = match &mut self.keep {
            Keep::Revisions(count) => revision - *count,
            Keep::Time { retention, samples } => {
                samples.push_back((now, revision));
                // The newest sample that is old enough; those before it are of no more use.
                while samples.len() > 1 && samples[1].0 + *retention <= now {
                    samples.pop_front();
                }
                match samples.front() {
                    Some((at, revision)) if *at + *retention <= now => *revision,
                    _ => 0,
                }
            }
        };
        if now < self.next || target <= self.compacted {
            return None;
        }
        Some(target)
    }

    /// Notes how the compaction to `target` ended.
    pub fn done(&mut self, now: Instant, target: i64, worked: bool) {
        if worked {
            self.compacted = target;
            self.next = now + self.period;
        } else {
            self.next = now + self.pause();
        }
    }
}

/// Compacts for as long as the member runs.
pub async fn run(context: Context) {
    let env = context.env().clone();
    let Some(mut policy) = Policy::new(context.config().compaction, env.now()) else {
        return;
    };
    loop {
        env.sleep(policy.pause()).await;
        let Some(revision) = policy.look(env.now(), context.store().revision().get()) else {
            continue;
        };
        if !context.status().is_leader {
            continue;
        }
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        let outcome = context
            .propose(request.into())
            .await
            .and_then(|r| r.into_result());
        let worked = matches!(outcome, Ok(_) | Err(Error::Compacted));
        match outcome {
            Ok(_) => tracing::info!(revision, "completed auto compaction"),
            Err(Error::Compacted) => tracing::debug!(revision, "compacted already"),
            Err(error) => tracing::warn!(revision, %error, "failed auto compaction"),
        }
        policy.done(env.now(), revision, worked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    /// Runs a policy for a while with one revision per second; what it compacted, by second.
    fn story(mode: Compaction, seconds: u64) -> Vec<(u64, i64)> {
        let mut policy = Policy::new(mode, at(0)).unwrap();
        let mut compacted = Vec::new();
        let mut now = Instant(0);
        while now < at(seconds) {
            now += policy.pause();
            let second = now.0 / SECOND;
            if let Some(target) = policy.look(now, i64::try_from(second).unwrap()) {
                compacted.push((second, target));
                policy.done(now, target, true);
            }
        }
        compacted
    }

    #[test]
    fn short_retentions_compact_once_per_retention() {
        let retention = Compaction::Periodic(Duration::from_secs(60));
        assert_eq!(story(retention, 200), [(66, 6), (126, 66), (186, 126)]);
    }

    #[test]
    fn long_retentions_compact_hourly() {
        let retention = Compaction::Periodic(Duration::from_secs(7200));
        assert_eq!(
            story(retention, 15_000),
            [(7560, 360), (11_160, 3960), (14_760, 7560)]
        );
    }

    #[test]
    fn revisions_are_looked_at_every_five_minutes() {
        let keep = Compaction::Revision(100);
        assert_eq!(story(keep, 1000), [(300, 200), (600, 500), (900, 800)]);
        assert_eq!(story(Compaction::Revision(5000), 1000), []);
    }

    #[test]
    fn an_idle_state_is_compacted_once_and_failures_are_retried_soon() {
        let mode = Compaction::Periodic(Duration::from_secs(10));
        let mut policy = Policy::new(mode, at(0)).unwrap();
        assert_eq!(policy.look(at(1), 5), None);
        assert_eq!(policy.look(at(11), 5), Some(5));
        policy.done(at(11), 5, false);
        assert_eq!(policy.look(at(11), 5), None);
        assert_eq!(policy.look(at(12), 5), Some(5));
        policy.done(at(12), 5, true);
        assert_eq!(policy.look(at(60), 5), None);
        assert!(Policy::new(Compaction::Off, at(0)).is_none());
    }
}
