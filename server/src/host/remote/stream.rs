//! Room `server/host`: opening a stream at a member, at another one when that fails.

use super::forward::{ATTEMPT_TIME, REQUEST_TIME, Verdict, check_hops, judge, not_done, refused};
use super::{Answers, CallInfo, Missed, Remote, until};
use crate::host::floor::Floor;
use crate::service::method::{Kind, Method, Repeat};
use bytes::Bytes;
use tenon_env::Instant;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;

/// Requests of a stream on their way.
const AHEAD: usize = 64;

/// A stream that a member has taken.
pub(in crate::host) struct Opened {
    /// Which member.
    pub(in crate::host) target: String,
    /// To the member, when it takes more.
    pub(in crate::host) requests: Option<mpsc::Sender<Bytes>>,
    /// From the member.
    pub(in crate::host) answers: Answers,
}

impl Remote {
    /// Opens a stream at a member; `first` are its first requests.
    pub(in crate::host) async fn open(
        &self,
        method: Method,
        call: CallInfo,
        first: Vec<Bytes>,
    ) -> Result<Opened, Missed> {
        check_hops(&call)?;
        let deadline = self.env.now() + REQUEST_TIME;
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            opened = self.open_until(method, call, first, deadline) => opened,
            () = until(&mut stopping, |stopping| *stopping) => Err(not_done(Error::Stopped)),
        }
    }

    async fn open_until(
        &self,
        method: Method,
        call: CallInfo,
        first: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Opened, Missed> {
        let mut last = None;
        loop {
            let target = self.pick(deadline, None, call.hops).await;
            let target = target.map_err(|error| not_done(last.take().unwrap_or(error)))?;
            let (requests, from) = mpsc::channel(first.len() + AHEAD);
            for request in &first {
                requests
                    .try_send(request.clone())
                    .expect("there is room for the first");
            }
            // One request is all there is, and a member may wait for the end before it answers.
            let requests = (method.row().2 == Kind::BidiStream).then_some(requests);
            let opening = self.upstream.stream(&target, method, call.clone(), from);
            let opened = self.env.timeout(ATTEMPT_TIME, opening).await;
            let outcome = match opened {
                Some(Ok(answers)) => {
                    return Ok(Opened {
                        target,
                        requests,
                        answers,
                    });
                }
                Some(Err(error)) => Some(Err(error)),
                None => None,
            };
            match judge(method, Repeat::Harmless, Floor::default(), outcome) {
                Verdict::Again(error, blame) => {
                    last = Some(error);
                    self.after(&target, blame).await;
                }
                Verdict::Give(Err(error)) => return Err(refused(error)),
                _ => unreachable!("no answer was judged"),
            }
        }
    }
}
