//! Room `server/host`: one request of a client, sent to a member, elsewhere if need be. A request that may have been
//! carried out is never sent twice unless that does no harm.

use super::{CallInfo, HOPS_MAX, Missed, Remote, UpstreamError, until};
use crate::host::floor::Floor;
use crate::service::method::{Method, Repeat};
use bytes::Bytes;
use prost::Message;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::ResponseHeader;

/// How long a member is looked for that answers a request; as long as a member takes for one at most.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(7);
/// How long one attempt may take after which the request is sent elsewhere: reads of one key are answered or refused
/// long before.
pub(super) const ATTEMPT_TIME: Duration = Duration::from_secs(3);
/// How long an attempt may take that is not made twice, or that reads much.
const LONG_TIME: Duration = Duration::from_secs(60);
/// Pause before the next attempt when nobody is to blame: a leader is being elected, or a member is a moment behind.
const PAUSE: Duration = Duration::from_millis(10);

/// What to do after an attempt.
pub(super) enum Verdict {
    Give(Result<Bytes, Error>),
    /// Not done, or harmless: ask again. The target is left alone for a while when it is to blame.
    Again(Error, Option<String>),
    /// The answer is older than others this host gave.
    Behind(Floor),
    /// It may have been carried out.
    Unknown(String),
}

impl Remote {
    pub(super) async fn forward_until(
        &self,
        method: Method,
        call: CallInfo,
        request: Bytes,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Bytes, Missed> {
        check_hops(&call)?;
        let sent = AtomicBool::new(false);
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            answer = self.attempts(method, call, request, repeat, deadline, &sent) => answer,
            () = until(&mut stopping, |stopping| *stopping) => Err(Missed {
                error: Error::Stopped,
                not_done: repeat == Repeat::Harmless || !sent.load(Ordering::Relaxed),
            }),
        }
    }

    async fn attempts(
        &self,
        method: Method,
        call: CallInfo,
        request: Bytes,
        repeat: Repeat,
        deadline: Instant,
        sent: &AtomicBool,
    ) -> Result<Bytes, Missed> {
        let mut last = None;
        let mut other_than: Option<String> = None;
        loop {
            if self.env.now() >= deadline {
                return Err(not_done(last.unwrap_or(Error::Timeout)));
            }
            let target = if method.of_one_member() {
                self.leader(deadline, call.hops).await
            } else {
                self.pick(deadline, other_than.as_deref(), call.hops).await
            };
            let target = target.map_err(|error| not_done(last.take().unwrap_or(error)))?;
            let (floor, now) = (self.floor.now(), self.env.now());
            let time = match repeat {
                Repeat::Harmless if !reads_much(method) => ATTEMPT_TIME.min(deadline - now),
                _ => LONG_TIME,
            };
            sent.store(true, Ordering::Relaxed);
            let attempt = self
                .upstream
                .unary(&target, method, call.clone(), request.clone());
            let answered = self.env.timeout(time, attempt).await;
            sent.store(false, Ordering::Relaxed);
            if answered.is_none() && repeat == Repeat::Harmless && time < ATTEMPT_TIME {
                // The caller's time is over, which says nothing of the member.
                return Err(not_done(last.unwrap_or(Error::Timeout)));
            }
            match judge(method, repeat, floor, answered) {
                Verdict::Give(answer) => {
                    if let Some(header) = answer.as_ref().ok().and_then(|b| header_of(method, b)) {
                        self.floor.raise(Floor::from(&header));
                    }
                    return answer.map_err(refused);
                }
                Verdict::Again(error, blame) => {
                    last = Some(error);
                    self.after(&target, blame).await;
                }
                Verdict::Behind(at) => {
                    let why = format!("it is behind, at revision {}", at.revision);
                    last = Some(unavailable(&format!("{target}: {why}")));
                    other_than = Some(target);
                    self.env.sleep(PAUSE).await;
                }
                Verdict::Unknown(why) => {
                    self.blame(&target, why);
                    return Err(refused(Error::TimeoutDueToConnectionLost));
                }
            }
        }
    }

    pub(super) async fn after(&self, target: &str, blame: Option<String>) {
        match blame {
            Some(why) => self.blame(target, why),
            None => self.env.sleep(PAUSE).await,
        }
    }

    /// Leaves a target alone for a while, and looks up whether the members are still the same.
    pub(in crate::host) fn blame(&self, target: &str, why: String) {
        tracing::debug!(target_url = target, why, "a member does not answer");
        self.targets.lock().failed(target, self.env.now(), why);
        self.lookup.notify_one();
    }
}

pub(super) fn check_hops(call: &CallInfo) -> Result<(), Missed> {
    if call.hops > HOPS_MAX {
        let text = "the hosts asked forward this call in a circle; none of them knows a member";
        return Err(refused(unavailable(text)));
    }
    Ok(())
}

pub(super) fn refused(error: Error) -> Missed {
    Missed {
        error,
        not_done: false,
    }
}

pub(super) fn not_done(error: Error) -> Missed {
    Missed {
        error,
        not_done: true,
    }
}

pub(super) fn unavailable(text: &str) -> Error {
    Error::other(Code::Unavailable, format!("tenon: {text}"))
}

/// Whether an answer may take long because of what must be read for it.
fn reads_much(method: Method) -> bool {
    matches!(method, Method::MaintenanceHash | Method::MaintenanceHashKv)
}

pub(super) fn judge(
    method: Method,
    repeat: Repeat,
    floor: Floor,
    answered: Option<Result<Bytes, UpstreamError>>,
) -> Verdict {
    let harmless = repeat == Repeat::Harmless;
    let error = match answered {
        Some(Ok(bytes)) => {
            return match header_of(method, &bytes) {
                Some(header) if harmless && !floor.allows(&header) => {
                    Verdict::Behind(Floor::from(&header))
                }
                _ => Verdict::Give(Ok(bytes)),
            };
        }
        Some(Err(UpstreamError::Status(error))) => error,
        Some(Err(UpstreamError::NotSent(why))) => {
            return Verdict::Again(unavailable(&why), Some(why));
        }
        Some(Err(UpstreamError::Broken(why))) if harmless => {
            return Verdict::Again(unavailable(&why), Some(why));
        }
        Some(Err(UpstreamError::Broken(why))) => return Verdict::Unknown(why),
        None if harmless => {
            return Verdict::Again(Error::Timeout, Some("no answer in time".to_owned()));
        }
        None => return Verdict::Unknown("no answer in time".to_owned()),
    };
    match error {
        // Refused at the member's door, before anything was done.
        Error::NotSupportedForLearner | Error::NoLeader => {
            let why = error.message();
            Verdict::Again(error, Some(why))
        }
        Error::NotLeader if method.of_one_member() => Verdict::Again(error, None),
        Error::Stopped if harmless => {
            let why = error.message();
            Verdict::Again(error, Some(why))
        }
        _ if harmless && error.code() == Code::Unavailable => Verdict::Again(error, None),
        _ => Verdict::Give(Err(error)),
    }
}

/// The header of an answer, which stands first in every message that has one.
pub(in crate::host) fn header_of(method: Method, bytes: &Bytes) -> Option<ResponseHeader> {
    if matches!(method, Method::HealthCheck | Method::HealthWatch) {
        return None;
    }
    let first = first_message(bytes)?;
    let header = match method {
        Method::KvRangeStream => first_message(first)?,
        _ => first,
    };
    ResponseHeader::decode(header).ok()
}

/// The bytes of field 1, when a message begins with that and it is a message too.
fn first_message(bytes: &[u8]) -> Option<&[u8]> {
    const FIELD_1_OF_BYTES: u8 = 1 << 3 | 2;
    let mut rest = bytes.strip_prefix(&[FIELD_1_OF_BYTES])?;
    let length = prost::decode_length_delimiter(&mut rest).ok()?;
    rest.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::etcdserverpb as pb;

    fn header(revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: 7,
            member_id: 1,
            revision,
            raft_term: 2,
        }
    }

    #[test]
    fn headers_are_found_without_reading_the_rest() {
        let answer = pb::RangeResponse {
            header: Some(header(300)),
            more: true,
            ..Default::default()
        };
        let bytes = Bytes::from(answer.encode_to_vec());
        assert_eq!(header_of(Method::KvRange, &bytes), Some(header(300)));
        let part = pb::RangeStreamResponse {
            range_response: Some(answer),
        };
        let bytes = Bytes::from(part.encode_to_vec());
        assert_eq!(header_of(Method::KvRangeStream, &bytes), Some(header(300)));
        for bytes in [&b""[..], &b"\x08\x01"[..], &b"\x0a\x7f"[..]] {
            let bytes = Bytes::copy_from_slice(bytes);
            assert_eq!(header_of(Method::KvPut, &bytes), None);
        }
    }

    #[test]
    fn only_what_was_not_done_or_does_no_harm_is_sent_again() {
        let answer = |revision| {
            let answer = pb::PutResponse {
                header: Some(header(revision)),
                prev_kv: None,
            };
            Some(Ok(Bytes::from(answer.encode_to_vec())))
        };
        let status = |error| Some(Err(UpstreamError::Status(error)));
        let floor = Floor::from(&header(10));
        // Answer, then what becomes of a read and of a write: given, again, behind, unknown.
        let table = [
            (answer(10), "given", "given"),
            (answer(9), "behind", "given"),
            (
                Some(Err(UpstreamError::NotSent("x".into()))),
                "again",
                "again",
            ),
            (
                Some(Err(UpstreamError::Broken("x".into()))),
                "again",
                "unknown",
            ),
            (None, "again", "unknown"),
            (status(Error::NotSupportedForLearner), "again", "again"),
            (status(Error::NoLeader), "again", "again"),
            (status(Error::Stopped), "again", "given"),
            (status(Error::Timeout), "again", "given"),
            (status(Error::LeaderChanged), "again", "given"),
            (status(Error::Compacted), "given", "given"),
            (status(Error::InvalidAuthToken), "given", "given"),
        ];
        let name = |verdict| match verdict {
            Verdict::Give(_) => "given",
            Verdict::Again(..) => "again",
            Verdict::Behind(_) => "behind",
            Verdict::Unknown(_) => "unknown",
        };
        for (answered, read, write) in table {
            let text = format!("{answered:?}");
            let judged = judge(Method::KvPut, Repeat::Harmless, floor, answered.clone());
            assert_eq!(name(judged), read, "read: {text}");
            let judged = judge(Method::KvPut, Repeat::Unsafe, floor, answered);
            assert_eq!(name(judged), write, "write: {text}");
        }
        let leader = status(Error::NotLeader);
        let judged = judge(
            Method::MaintenanceMoveLeader,
            Repeat::Unsafe,
            floor,
            leader.clone(),
        );
        assert_eq!(name(judged), "again");
        let judged = judge(Method::KvPut, Repeat::Unsafe, floor, leader);
        assert_eq!(name(judged), "given");
    }
}
