//! Room `server/host`: a client's stream of lease renewals, which goes on wherever the endpoint moves. One answer for
//! each request, in order: requests without an answer are asked again when their link is gone, which does no harm.
//!
//! On a move no new request goes to the old backend; once it has answered what it has, the stream goes on at the new.

use super::door::{Door, Phase, Visit};
use super::link::{Ended, Heard, Link, Opening, Subject};
use super::remote::Missed;
use crate::service::method::Method;
use std::collections::VecDeque;
use std::time::Duration;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{
    LeaseKeepAliveRequest as Request, LeaseKeepAliveResponse as Response,
};

/// Requests without an answer at most; a client with more waits.
const UNANSWERED_MAX: usize = 256;
/// Pause before a link is made again.
const PAUSE: Duration = Duration::from_millis(50);

/// One client's stream.
pub(super) struct KeepAlive {
    subject: Subject<Request, Response>,
    requests: mpsc::Receiver<Request>,
    /// The client may ask more.
    more: bool,
    link: Option<Box<Link<Request, Response>>>,
    opening: Option<Opening<Request, Response>>,
    /// The link's backend is about to go.
    leaving: bool,
    unanswered: VecDeque<Request>,
}

enum Turn {
    Requests(Vec<Request>),
    Heard(Heard<Response>),
    Opened(Result<Box<Link<Request, Response>>, Missed>),
}

impl KeepAlive {
    pub(super) fn new(door: &Door, visit: Visit, requests: mpsc::Receiver<Request>) -> KeepAlive {
        let subject = Subject {
            door: door.clone(),
            method: Method::LeaseLeaseKeepAlive,
            caller: visit.caller,
            info: visit.info,
            serve: |services, caller, needs_leader, requests, out| {
                let lease = services.lease.clone();
                Box::pin(
                    async move { lease.keep_alive(&caller, needs_leader, requests, out).await },
                )
            },
        };
        KeepAlive {
            opening: Some(subject.open(Duration::ZERO)),
            subject,
            requests,
            more: true,
            link: None,
            leaving: false,
            unanswered: VecDeque::new(),
        }
    }

    /// The next answer; an error is the last.
    pub(super) async fn next(&mut self) -> Option<Result<Response, Error>> {
        loop {
            let error = match self.turn().await? {
                Turn::Requests(requests) => {
                    self.on_requests(requests);
                    continue;
                }
                Turn::Heard(Heard::Answer(answer)) => {
                    self.unanswered.pop_front();
                    self.maybe_leave();
                    return Some(Ok(self.not_back(answer)));
                }
                Turn::Heard(Heard::Phase(phase)) => {
                    self.leaving = true;
                    if phase == Phase::Cut {
                        self.reopen(Duration::ZERO);
                    }
                    self.maybe_leave();
                    continue;
                }
                Turn::Heard(Heard::End(ended)) => self.on_end(ended),
                Turn::Opened(Ok(link)) => {
                    self.on_opened(link);
                    continue;
                }
                Turn::Opened(Err(missed)) => match self.subject.after_miss(missed) {
                    Ok(()) => {
                        self.reopen(PAUSE);
                        continue;
                    }
                    Err(error) => Some(error),
                },
            };
            if let Some(error) = error {
                (self.link, self.opening) = (None, None);
                return Some(Err(error));
            }
        }
    }

    /// What happens next; `None` when nothing can any more.
    async fn turn(&mut self) -> Option<Turn> {
        if let Some(opening) = &mut self.opening {
            let opened = opening.await;
            self.opening = None;
            return Some(Turn::Opened(opened));
        }
        let link = self.link.as_mut()?;
        if let Some(heard) = link.try_next() {
            return Some(Turn::Heard(heard));
        }
        let room = UNANSWERED_MAX.saturating_sub(self.unanswered.len());
        let taking = self.more && !self.leaving && room > 0;
        let mut taken = Vec::new();
        Some(tokio::select! {
            biased;
            _ = self.requests.recv_many(&mut taken, room), if taking => Turn::Requests(taken),
            heard = link.next() => Turn::Heard(heard),
        })
    }

    fn on_requests(&mut self, requests: Vec<Request>) {
        self.more = !requests.is_empty();
        let Some(link) = &mut self.link else { return };
        for request in requests {
            self.unanswered.push_back(request);
            link.ask(request);
        }
        if !self.more {
            link.finish();
        }
    }

    fn on_opened(&mut self, mut link: Box<Link<Request, Response>>) {
        for request in &self.unanswered {
            link.ask(*request);
        }
        if !self.more {
            link.finish();
        }
        self.leaving = false;
        self.link = Some(link);
    }

    /// Moves on once the old backend has answered what it was asked.
    fn maybe_leave(&mut self) {
        if self.leaving && self.unanswered.is_empty() && self.link.is_some() {
            self.reopen(Duration::ZERO);
        }
    }

    /// What the client is told of the link's end; nothing when the stream goes on, or is over in order.
    fn on_end(&mut self, ended: Ended) -> Option<Error> {
        let link = self.link.take()?;
        if !self.more && self.unanswered.is_empty() {
            return None;
        }
        match self.subject.after(&link, ended) {
            Ok(()) => {
                self.reopen(Duration::ZERO);
                None
            }
            Err(error) => error,
        }
    }

    fn reopen(&mut self, pause: Duration) {
        self.link = None;
        self.opening = Some(self.subject.open(pause));
    }

    /// A member elsewhere may be a moment behind what this host answered already.
    fn not_back(&self, mut answer: Response) -> Response {
        let behind = self.link.as_ref().is_some_and(|link| link.may_be_behind());
        if let (true, Some(header)) = (behind, &mut answer.header) {
            self.subject.door.answered(header);
        }
        answer
    }
}
