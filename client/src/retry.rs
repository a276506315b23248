//! Room `client`: what a failed call means, and whether to send it again. Pure.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tonic::{ConnectError, Status};

/// Whether a request may be carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same thing again.
    Harmless,
    /// Only if it certainly was not carried out.
    Unsafe,
}

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection: it never left.
    Unsent(String),
    /// The connection broke while it was under way: its fate is unknown.
    Broken(String),
    /// No answer in time: its fate is unknown.
    Late,
    /// The server said so.
    Answered(Error),
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Tell the caller.
    Return,
    /// Send it again, elsewhere if there is an elsewhere.
    Elsewhere,
    /// Get a new token, then send it again.
    Authenticate,
}

impl Failure {
    /// Statuses made by this process have a source, those of servers have none.
    pub(crate) fn of(status: &Status) -> Failure {
        let Some(source) = status.source() else {
            return Failure::Answered(Error::from(status));
        };
        let mut text = status.message().to_owned();
        let mut next: Option<&(dyn StdError + 'static)> = Some(source);
        let mut unsent = false;
        while let Some(error) = next {
            if error.is::<tonic::TimeoutExpired>() {
                return Failure::Late;
            }
            unsent |= error.is::<ConnectError>() || is_connect_timeout(error);
            let cause = error.to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
            next = error.source();
        }
        if unsent {
            Failure::Unsent(text)
        } else {
            Failure::Broken(text)
        }
    }

    /// What to do about a request that failed so.
    pub(crate) fn verdict(&self, repeat: Repeat) -> Verdict {
        let harmless = repeat == Repeat::Harmless;
        match self {
            Failure::Unsent(_) => Verdict::Elsewhere,
            Failure::Broken(_) | Failure::Late if harmless => Verdict::Elsewhere,
            Failure::Broken(_) | Failure::Late => Verdict::Return,
            Failure::Answered(error) => match error {
                Error::InvalidAuthToken | Error::AuthOldRevision | Error::UserEmpty => {
                    Verdict::Authenticate
                }
                // Refused before anything was done.
                Error::NotSupportedForLearner => Verdict::Elsewhere,
                _ if harmless && error.code() == Code::Unavailable => Verdict::Elsewhere,
                _ => Verdict::Return,
            },
        }
    }

    /// Whether the endpoint, not the request, is to blame.
    pub(crate) fn blames_endpoint(&self) -> bool {
        match self {
            Failure::Unsent(_) | Failure::Broken(_) | Failure::Late => true,
            Failure::Answered(error) => matches!(
                error,
                Error::NoLeader
                    | Error::Stopped
                    | Error::Timeout
                    | Error::TimeoutDueToLeaderFail
                    | Error::TimeoutDueToConnectionLost
                    | Error::TimeoutWaitAppliedIndex
                    | Error::NotSupportedForLearner
            ),
        }
    }

    /// The error told to the caller.
    pub(crate) fn into_error(self, endpoint: &str) -> Error {
        match self {
            Failure::Answered(error) => error,
            Failure::Late => {
                let text = format!("context deadline exceeded: no answer from {endpoint} in time");
                Error::other(Code::DeadlineExceeded, text)
            }
            Failure::Unsent(why) => {
                let text = format!("tenon: not sent, no connection to {endpoint}: {why}");
                Error::other(Code::Unavailable, text)
            }
            Failure::Broken(why) => {
                let text = format!("tenon: the connection to {endpoint} broke: {why}");
                Error::other(Code::Unavailable, text)
            }
        }
    }
}

/// The time for a connection was over. tonic wraps only other failures to connect in [`ConnectError`]; a connection
/// that stood and died has an error of the system here, or none.
fn is_connect_timeout(error: &(dyn StdError + 'static)) -> bool {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<tokio::time::error::Elapsed>())
}

/// Whether a stream that ended so should be opened again.
pub(crate) fn reopens(failure: &Failure) -> bool {
    match failure {
        Failure::Answered(error) => {
            let passing = matches!(error.code(), Code::Unavailable | Code::Internal);
            passing || *error == Error::NotSupportedForLearner
        }
        _ => true,
    }
}

/// Pause before attempt number `attempt` (0 first), when `endpoints` can be tried in turn: none in the first
/// round, then growing up to `max`.
pub(crate) fn pause(attempt: u32, endpoints: usize, max: Duration) -> Duration {
    let endpoints = u32::try_from(endpoints.max(1)).unwrap_or(u32::MAX);
    match attempt / endpoints {
        0 => Duration::ZERO,
        round => (Duration::from_millis(25) * 2_u32.pow(round.min(8))).min(max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_again() {
        use Verdict::{Authenticate, Elsewhere, Return};
        let other = |code| Failure::Answered(Error::other(code, "x"));
        // Failure, verdict for what changes nothing, verdict for writes.
        let table = [
            (Failure::Unsent("x".into()), Elsewhere, Elsewhere),
            (Failure::Broken("x".into()), Elsewhere, Return),
            (Failure::Late, Elsewhere, Return),
            (Failure::Answered(Error::NoLeader), Elsewhere, Return),
            (Failure::Answered(Error::LeaderChanged), Elsewhere, Return),
            (Failure::Answered(Error::Stopped), Elsewhere, Return),
            (Failure::Answered(Error::Timeout), Elsewhere, Return),
            (other(Code::Unavailable), Elsewhere, Return),
            (
                Failure::Answered(Error::NotSupportedForLearner),
                Elsewhere,
                Elsewhere,
            ),
            (
                Failure::Answered(Error::InvalidAuthToken),
                Authenticate,
                Authenticate,
            ),
            (
                Failure::Answered(Error::AuthOldRevision),
                Authenticate,
                Authenticate,
            ),
            (
                Failure::Answered(Error::UserEmpty),
                Authenticate,
                Authenticate,
            ),
            (Failure::Answered(Error::Compacted), Return, Return),
            (Failure::Answered(Error::PermissionDenied), Return, Return),
            (Failure::Answered(Error::NoSpace), Return, Return),
            (other(Code::Unknown), Return, Return),
            (other(Code::DeadlineExceeded), Return, Return),
        ];
        for (failure, read, write) in table {
            assert_eq!(failure.verdict(Repeat::Harmless), read, "read, {failure:?}");
            assert_eq!(failure.verdict(Repeat::Unsafe), write, "write, {failure:?}");
        }
    }

    #[tokio::test]
    async fn what_waited_for_a_connection_in_vain_was_not_sent() {
        let never =
            crate::Connector::new(|_| std::future::pending::<io::Result<tokio::io::Empty>>());
        let settings = tonic::transport::Endpoint::from_static("http://a:1");
        let channel = never.channel(&settings.connect_timeout(Duration::from_millis(1)));
        let mut kv = tenon_proto::etcdserverpb::kv_client::KvClient::new(channel);
        let put = kv.put(crate::request::put("k", "v")).await;
        let failure = Failure::of(&put.expect_err("nobody is there"));
        assert!(matches!(failure, Failure::Unsent(_)), "{failure:?}");
    }

    #[test]
    fn a_status_of_a_server_is_its_error() {
        let status = Status::from(Error::NoLeader);
        assert_eq!(Failure::of(&status), Failure::Answered(Error::NoLeader));
    }

    #[test]
    fn the_first_round_over_the_endpoints_has_no_pause() {
        let max = Duration::from_millis(300);
        let pauses: Vec<u128> = (0..9).map(|n| pause(n, 3, max).as_millis()).collect();
        assert_eq!(pauses, [0, 0, 0, 50, 50, 50, 100, 100, 100]);
        assert_eq!(pause(u32::MAX, 0, max), max);
    }
}
