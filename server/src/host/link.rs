//! Room `server/host`: one backend's end of a client's stream: requests out, answers in. The same to the host's own
//! member, whose service runs inside, and to a member elsewhere. A client's stream outlives its links.

use super::door::{Backend, Door, Phase, Stay, admit_here};
use super::remote::{self, Answers, CallInfo, Missed, Remote, UpstreamError};
use crate::service::Services;
use crate::service::method::Method;
use crate::service::watch::NeedsLeader;
use bytes::Bytes;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;

/// Requests on their way to a service.
const REQUESTS: usize = 64;
/// Answers a service writes ahead.
const ANSWERS: usize = 16;

/// Runs a member's service of a stream between its two channels.
pub(super) type Serve<Q, R> = fn(
    Arc<Services>,
    Caller,
    NeedsLeader,
    mpsc::Receiver<Q>,
    mpsc::Sender<Result<R, Error>>,
) -> BoxFuture<'static, ()>;

/// What a client's stream is, wherever it is answered.
pub(super) struct Subject<Q, R> {
    pub(super) door: Door,
    pub(super) method: Method,
    pub(super) caller: Caller,
    pub(super) info: CallInfo,
    pub(super) serve: Serve<Q, R>,
}

/// A link being made.
pub(super) type Opening<Q, R> = BoxFuture<'static, Result<Box<Link<Q, R>>, Missed>>;

impl<Q: Message + Default + 'static, R: Message + Default + 'static> Subject<Q, R> {
    /// Makes a link to whoever answers when `pause` has passed.
    pub(super) fn open(&self, pause: Duration) -> Opening<Q, R> {
        let (door, method, serve) = (self.door.clone(), self.method, self.serve);
        let (caller, info) = (self.caller.clone(), self.info.clone());
        Box::pin(async move {
            if !pause.is_zero() {
                door.env().sleep(pause).await;
            }
            let stay = door.enter();
            match stay.backend() {
                Backend::Closed(error) => Err(Missed {
                    error: error.clone(),
                    not_done: true,
                }),
                Backend::Member(services) => {
                    let admitted = admit_here(services, method, info.needs_leader);
                    admitted.map_err(|error| Missed {
                        error,
                        not_done: true,
                    })?;
                    let (requests, taken) = mpsc::channel(REQUESTS);
                    let (out, answers) = mpsc::channel(ANSWERS);
                    let service = serve(services.clone(), caller, info.needs_leader, taken, out);
                    let from = In::Here {
                        service: Some(service),
                        answers,
                    };
                    let link = Link::new(stay, None, Out::Here(requests), from);
                    Ok(Box::new(link))
                }
                Backend::Remote(remote) => {
                    let opened = remote.open(method, info.of(&caller), Vec::new()).await?;
                    let at = Some((remote.clone(), opened.target));
                    let to = opened.requests.map_or(Out::Finished, Out::There);
                    let from = In::There(opened.answers);
                    Ok(Box::new(Link::new(stay, at, to, from)))
                }
            }
        })
    }

    /// Whether a link that ended so is to be made again; if not, what the client is told, if anything.
    pub(super) fn after(&self, link: &Link<Q, R>, ended: Ended) -> Result<(), Option<Error>> {
        let moved = !Arc::ptr_eq(&link.stay, &self.door.enter());
        let Some((remote, target)) = &link.at else {
            return match ended {
                Ended::Refused(error) if moved && error.code() == Code::Unavailable => Ok(()),
                Ended::Refused(error) => Err(Some(error)),
                Ended::Orderly | Ended::Broken(_) if moved => Ok(()),
                Ended::Orderly | Ended::Broken(_) => Err(None),
            };
        };
        let why = match ended {
            Ended::Refused(error) if !elsewhere(&error) => return Err(Some(error)),
            Ended::Refused(error) => error.message(),
            Ended::Orderly => "it ended the stream".to_owned(),
            Ended::Broken(why) => why,
        };
        remote.blame(target, why);
        Ok(())
    }

    /// Whether to try once more after no link could be made; if not, what the client is told. A client that insists
    /// on a leader is told that there is none; the others wait.
    pub(super) fn after_miss(&self, missed: Missed) -> Result<(), Error> {
        if !matches!(self.door.enter().backend(), Backend::Remote(_)) {
            return Err(missed.error);
        }
        let passing = elsewhere(&missed.error);
        match self.info.needs_leader {
            NeedsLeader::Yes if passing => Err(Error::NoLeader),
            NeedsLeader::No if passing => Ok(()),
            _ => Err(missed.error),
        }
    }
}

/// Whether another member, or the same a moment later, may say something else.
fn elsewhere(error: &Error) -> bool {
    error.code() == Code::Unavailable || *error == Error::NotSupportedForLearner
}

/// The requests' way out.
enum Out<Q> {
    Here(mpsc::Sender<Q>),
    There(mpsc::Sender<Bytes>),
    Finished,
}

/// The answers' way in.
enum In<R> {
    Here {
        /// Runs while the link is waited on.
        service: Option<BoxFuture<'static, ()>>,
        answers: mpsc::Receiver<Result<R, Error>>,
    },
    There(Answers),
}

/// A place for one request.
enum Room<'a, Q> {
    Here(mpsc::Permit<'a, Q>),
    There(mpsc::Permit<'a, Bytes>),
}

impl<Q: Message> Room<'_, Q> {
    fn send(self, request: Q) {
        match self {
            Room::Here(room) => room.send(request),
            Room::There(room) => room.send(request.encode_to_vec().into()),
        }
    }
}

impl<Q: Message> Out<Q> {
    /// Waits for room for a request; for ever when nobody takes any: the answers end too then, and say why.
    async fn room(&self) -> Room<'_, Q> {
        let room = match self {
            Out::Here(requests) => requests.reserve().await.ok().map(Room::Here),
            Out::There(requests) => requests.reserve().await.ok().map(Room::There),
            Out::Finished => None,
        };
        match room {
            Some(room) => room,
            None => std::future::pending().await,
        }
    }
}

impl<R: Message + Default> In<R> {
    fn try_next(&mut self) -> Option<Heard<R>> {
        match self {
            In::Here { answers, .. } => answers.try_recv().ok().map(heard_here),
            In::There(answers) => answers.try_recv().ok().map(heard_there),
        }
    }

    /// The next answer, or the end.
    async fn next(&mut self) -> Heard<R> {
        let end = Heard::End(Ended::Orderly);
        match self {
            In::There(answers) => answers.recv().await.map_or(end, heard_there),
            In::Here { service, answers } => {
                if let Some(running) = service {
                    tokio::select! {
                        biased;
                        () = running => *service = None,
                        answer = answers.recv() => return answer.map_or(end, heard_here),
                    }
                }
                answers.recv().await.map_or(end, heard_here)
            }
        }
    }
}

/// What a link brings.
#[derive(Debug)]
pub(super) enum Heard<R> {
    Answer(R),
    /// The stay is in this phase now.
    Phase(Phase),
    End(Ended),
}

/// How a link ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Without a word.
    Orderly,
    /// The member said so.
    Refused(Error),
    /// Nobody said anything.
    Broken(String),
}

/// See the room's words above.
pub(super) struct Link<Q, R> {
    /// Keeps the backend alive until the stream has left it.
    stay: Arc<Stay>,
    /// The member elsewhere.
    at: Option<(Arc<Remote>, String)>,
    to: Out<Q>,
    from: In<R>,
    /// Requests not taken yet.
    outbox: VecDeque<Q>,
    /// None come after those.
    finished: bool,
    /// See [`Link::may_be_behind`].
    behind: bool,
    /// Completes when the stay is in a later phase than the one told last.
    phase: BoxFuture<'static, Phase>,
}

impl<Q: Message + Default + 'static, R: Message + Default + 'static> Link<Q, R> {
    fn new(
        stay: Arc<Stay>,
        at: Option<(Arc<Remote>, String)>,
        to: Out<Q>,
        from: In<R>,
    ) -> Link<Q, R> {
        let phase = later(&stay, Phase::Open);
        let behind = at.is_some() || stay.may_be_behind();
        Link {
            behind,
            stay,
            at,
            to,
            from,
            outbox: VecDeque::new(),
            finished: false,
            phase,
        }
    }

    /// Whether a member elsewhere answers.
    pub(super) fn is_remote(&self) -> bool {
        self.at.is_some()
    }

    /// Whether what answers may be behind what this host has answered: a member elsewhere, or the host's own that took
    /// over from others a moment before the link was made. It stays so: an answer may have waited since that moment
    /// (seed 4099 of hosts).
    pub(super) fn may_be_behind(&self) -> bool {
        self.behind
    }

    /// Queues a request.
    pub(super) fn ask(&mut self, request: Q) {
        self.outbox.push_back(request);
    }

    /// Requests queued and not taken.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// No more requests will be asked.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    /// An answer that is there already.
    pub(super) fn try_next(&mut self) -> Option<Heard<R>> {
        self.from.try_next()
    }

    /// Sends what is queued and gives what comes next; not to be asked again after an end. Cancel safe.
    pub(super) async fn next(&mut self) -> Heard<R> {
        let Link {
            stay,
            to,
            from,
            outbox,
            finished,
            phase,
            ..
        } = self;
        loop {
            if let Some(heard) = from.try_next() {
                return heard;
            }
            let unsent = !outbox.is_empty();
            if *finished && !unsent {
                *to = Out::Finished;
            }
            tokio::select! {
                biased;
                seen = &mut *phase => {
                    *phase = later(stay, seen);
                    return Heard::Phase(seen);
                }
                room = to.room(), if unsent => {
                    if let Some(request) = outbox.pop_front() {
                        room.send(request);
                    }
                }
                heard = from.next() => return heard,
            }
        }
    }
}

fn later(stay: &Arc<Stay>, than: Phase) -> BoxFuture<'static, Phase> {
    let mut phases = stay.watch_phase();
    Box::pin(async move {
        let later = phases.wait_for(|phase| *phase > than).await;
        match later.map(|phase| *phase) {
            Ok(phase) => phase,
            // The stay outlives its links.
            Err(_) => std::future::pending().await,
        }
    })
}

fn heard_here<R>(answer: Result<R, Error>) -> Heard<R> {
    match answer {
        Ok(answer) => Heard::Answer(answer),
        Err(error) => Heard::End(Ended::Refused(error)),
    }
}

fn heard_there<R: Message + Default>(answer: Result<Bytes, UpstreamError>) -> Heard<R> {
    match answer {
        Ok(bytes) => match remote::read(&bytes) {
            Ok(answer) => Heard::Answer(answer),
            Err(error) => Heard::End(Ended::Broken(error.message())),
        },
        Err(UpstreamError::Status(error)) => Heard::End(Ended::Refused(error)),
        Err(UpstreamError::NotSent(why) | UpstreamError::Broken(why)) => {
            Heard::End(Ended::Broken(why))
        }
    }
}
