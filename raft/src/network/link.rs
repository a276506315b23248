//! Room `raft`: this member's stream to one peer. Dialled when something is to be said, shared by everything
//! small that is said, matched by request id. A stream that breaks, breaks every request on it; whether one
//! may have arrived is told apart, because only what never left may be asked again.
//!
//! - Requests leave in the order in which they were begun.
//! - After a failed dial, requests fail at once until the pause is over; pauses double.
//! - What is queued is bounded by the callers: a session's window, flights, rounds.

use super::greeting::{Identity, NoStream, Refused, greet};
use super::traffic::Traffic;
use super::wire;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::{Notify, mpsc, oneshot};
use tenon_env::{Env, Instant, NetRecv, NetSend, NetStream, StreamKind};
use tenon_proto::peer::{Request, Response, refusal, request, response};

const DIAL_WITHIN: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a stream must be silent, at least, before it is given up for a late answer.
const SILENT_MIN: Duration = Duration::from_secs(2);
/// Pause after the other side refused to talk: it will hardly change its mind.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// The request never left this member.
    NotSent(String),
    /// The request may have arrived.
    Unknown(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::NotSent(why) | Lost::Unknown(why) => f.write_str(why),
        }
    }
}

pub(crate) type Answer = Result<response::Body, Lost>;

/// What all links of a member share.
pub(crate) struct Surroundings {
    pub(crate) env: Env,
    pub(crate) me: Identity,
    /// Peer URLs of a member, looked up at every dial.
    pub(crate) addresses: Box<dyn Fn(u64) -> Vec<String> + Send + Sync>,
    /// Time between two heartbeats.
    pub(crate) heartbeat: Duration,
    /// Told when a peer refuses to talk.
    pub(crate) refused: Box<dyn Fn(&Refused) + Send + Sync>,
}

/// The stream to one peer. Clones name the same one.
#[derive(Clone)]
pub(crate) struct Link(Arc<Shared>);

struct Shared {
    around: Arc<Surroundings>,
    target: u64,
    state: Mutex<State>,
    cancel: Notify,
}

struct State {
    next_id: u64,
    next_session: u64,
    /// Counts streams, so that a task that ends late touches only its own.
    generation: u64,
    outbox: Option<mpsc::UnboundedSender<(u64, Bytes)>>,
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
    sent_through: u64,
    heard: Instant,
    /// When the first call began to which nothing came back since.
    silent_since: Option<Instant>,
    pause: Duration,
    retry_at: Instant,
    last_error: String,
    /// Whether the log says that the peer is lost.
    told_lost: bool,
    traffic: Traffic,
    /// Heartbeats that wait for their answers.
    beats: BTreeMap<u64, Instant>,
}

impl Link {
    pub(crate) fn new(around: Arc<Surroundings>, target: u64) -> Link {
        let state = State {
            next_id: 1,
            next_session: 1,
            generation: 0,
            outbox: None,
            waiting: BTreeMap::new(),
            sent_through: 0,
            heard: Instant(0),
            silent_since: None,
            pause: PAUSE_MIN,
            retry_at: Instant(0),
            last_error: String::new(),
            told_lost: false,
            traffic: Traffic::default(),
            beats: BTreeMap::new(),
        };
        Link(Arc::new(Shared {
            around,
            target,
            state: Mutex::new(state),
            cancel: Notify::new(),
        }))
    }

    pub(crate) fn target(&self) -> u64 {
        self.0.target
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.around.env
    }

    /// What went over this link and over the streams the peer opened.
    pub(crate) fn traffic(&self) -> Traffic {
        self.0.state.lock().traffic.clone()
    }

    /// A message of a stream that the peer opened.
    pub(super) fn count(&self, received: usize, sent: usize) {
        let traffic = &mut self.0.state.lock().traffic;
        traffic.received_bytes += received as u64;
        traffic.sent_bytes += sent as u64;
    }

    /// A number for appends that belong together, unlike any other on this link.
    pub(crate) fn new_session(&self) -> u64 {
        let mut state = self.0.state.lock();
        state.next_session += 1;
        state.next_session
    }

    /// Queues a request at once; the reply is awaited by [`Reply::within`].
    pub(crate) fn begin(&self, body: request::Body) -> Reply {
        let env = self.env();
        let (tx, rx) = oneshot::channel();
        let now = env.now();
        let mut state = self.0.state.lock();
        if state.outbox.is_none() {
            if now < state.retry_at {
                let _ = tx.send(Err(Lost::NotSent(state.last_error.clone())));
                return Reply {
                    link: self.clone(),
                    id: 0,
                    generation: 0,
                    begun: now,
                    rx,
                };
            }
            self.open(&mut state);
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.insert(id, tx);
        if matches!(&body, request::Body::Append(append) if append.entries.is_empty()) {
            state.beats.insert(id, now);
        }
        let bytes = Request {
            id,
            body: Some(body),
        }
        .encode_to_vec()
        .into();
        if let Some(outbox) = &state.outbox {
            // A closed outbox belongs to a task that is about to fail everything that waits.
            let _ = outbox.send((id, bytes));
        }
        Reply {
            link: self.clone(),
            id,
            generation: state.generation,
            begun: now,
            rx,
        }
    }

    /// As [`Link::begin`] and [`Reply::within`] together.
    pub(crate) async fn call(&self, body: request::Body, within: Duration) -> Answer {
        self.begin(body).within(within).await
    }

    fn open(&self, state: &mut State) {
        let (tx, rx) = mpsc::unbounded_channel();
        state.outbox = Some(tx);
        state.silent_since = None;
        state.generation += 1;
        let (link, generation) = (self.clone(), state.generation);
        self.env().spawn("peer-link", async move {
            let ended = {
                let run = std::pin::pin!(link.run(rx));
                let cancel = std::pin::pin!(link.0.cancel.notified());
                match futures_util::future::select(run, cancel).await {
                    futures_util::future::Either::Left((ended, _)) => ended,
                    futures_util::future::Either::Right(_) => return,
                }
            };
            link.close(generation, &ended);
        });
    }

    /// One stream from dial to end.
    async fn run(&self, outbox: mpsc::UnboundedReceiver<(u64, Bytes)>) -> NoStream {
        let stream = match self.dial(StreamKind::Peer).await {
            Ok(stream) => stream,
            Err(ended) => return ended,
        };
        {
            let mut state = self.0.state.lock();
            state.pause = PAUSE_MIN;
            if std::mem::take(&mut state.told_lost) {
                tracing::info!("member {:x} is reached again", self.0.target);
            }
        }
        let (send, recv) = stream.split();
        let send = std::pin::pin!(self.send(outbox, send));
        let recv = std::pin::pin!(self.recv(recv));
        let (Ok(error) | Err(error)) = match futures_util::future::select(send, recv).await {
            futures_util::future::Either::Left((ended, _)) => Ok::<_, std::io::Error>(ended),
            futures_util::future::Either::Right((ended, _)) => Err(ended),
        };
        NoStream::Broken(error)
    }

    /// A greeted stream to the peer.
    pub(crate) async fn dial(&self, kind: StreamKind) -> Result<Box<dyn NetStream>, NoStream> {
        let around = &self.0.around;
        let urls = (around.addresses)(self.0.target);
        if urls.is_empty() {
            return Err(std::io::Error::other("no address is known").into());
        }
        let dial = async {
            let mut stream = around.env.net.connect(urls, kind).await?;
            greet(&around.me, self.0.target, &mut *stream).await?;
            Ok(stream)
        };
        match around.env.timeout(DIAL_WITHIN, dial).await {
            Some(result) => result,
            None => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    async fn send(
        &self,
        mut outbox: mpsc::UnboundedReceiver<(u64, Bytes)>,
        mut to: Box<dyn NetSend>,
    ) -> std::io::Error {
        while let Some((id, bytes)) = outbox.recv().await {
            {
                let mut state = self.0.state.lock();
                state.sent_through = id;
                state.traffic.sent_bytes += bytes.len() as u64;
            }
            if let Err(error) = to.send(bytes).await {
                return error;
            }
        }
        std::io::Error::other("the link was given up")
    }

    async fn recv(&self, mut from: Box<dyn NetRecv>) -> std::io::Error {
        loop {
            let bytes = match from.recv().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return std::io::Error::from(std::io::ErrorKind::UnexpectedEof),
                Err(error) => return error,
            };
            let length = bytes.len() as u64;
            let response: Response = match wire::decode(bytes) {
                Ok(response) => response,
                Err(text) => return std::io::Error::new(std::io::ErrorKind::InvalidData, text),
            };
            let now = self.env().now();
            let mut state = self.0.state.lock();
            state.heard = now;
            state.silent_since = None;
            state.traffic.received_bytes += length;
            if let Some(begun) = state.beats.remove(&response.id) {
                let interval = self.0.around.heartbeat;
                state.traffic.answered(now - begun, interval);
            }
            let waiting = state.waiting.remove(&response.id);
            drop(state);
            let answer = match response.body {
                Some(response::Body::Failed(why)) => Err(Lost::Unknown(why)),
                Some(body) => Ok(body),
                None => Err(Lost::Unknown("an empty response".to_owned())),
            };
            if let Some(waiting) = waiting {
                let _ = waiting.send(answer);
            }
        }
    }

    /// Fails what waits on stream `generation` and sets the pause before the next.
    fn close(&self, generation: u64, ended: &NoStream) {
        if let NoStream::Refused(refused) = ended {
            tracing::warn!("peer {:x} refuses: {}", self.0.target, refused.text);
            (self.0.around.refused)(refused);
        }
        let now = self.env().now();
        let mut state = self.0.state.lock();
        if state.generation != generation {
            return;
        }
        // Once for each time it is lost, not for each attempt.
        if !std::mem::replace(&mut state.told_lost, true) && !matches!(ended, NoStream::Refused(_))
        {
            tracing::warn!("member {:x} cannot be reached: {ended}", self.0.target);
        }
        let settled = matches!(ended, NoStream::Refused(r) if r.kind != refusal::Kind::Unspecified);
        let pause = if settled { REFUSED_PAUSE } else { state.pause };
        state.retry_at = now + pause;
        state.pause = (state.pause * 2).min(PAUSE_MAX);
        self.fail_waiting(
            state,
            format!("stream to member {:x}: {ended}", self.0.target),
        );
    }

    fn fail_waiting(&self, mut state: parking_lot::MutexGuard<'_, State>, why: String) {
        state.outbox = None;
        state.traffic.sent_failures += 1;
        state.traffic.late_heartbeats += state.beats.len() as u64;
        state.beats.clear();
        state.last_error.clone_from(&why);
        let sent_through = state.sent_through;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (id, tx) in waiting {
            let lost = if id <= sent_through {
                Lost::Unknown
            } else {
                Lost::NotSent
            };
            let _ = tx.send(Err(lost(why.clone())));
        }
    }

    /// Ends the stream for good.
    pub(super) fn shut(&self) {
        let mut state = self.0.state.lock();
        state.retry_at = Instant(u64::MAX);
        state.generation += 1;
        self.0.cancel.notify_waiters();
        self.fail_waiting(state, "this member is stopping".to_owned());
    }

    /// Gives up a stream on which nothing was heard since `begun`, and for long enough: it may hang for ever.
    /// A peer that is merely busy must not lose, with one late answer, everything else that is under way.
    fn give_up(&self, generation: u64, begun: Instant) {
        let now = self.env().now();
        let mut state = self.0.state.lock();
        if state.generation != generation || state.heard >= begun || state.outbox.is_none() {
            return;
        }
        let since = *state.silent_since.get_or_insert(begun);
        if now - since < SILENT_MIN {
            return;
        }
        self.0.cancel.notify_waiters();
        self.fail_waiting(
            state,
            format!("stream to member {:x} is silent", self.0.target),
        );
    }
}

/// A request under way. Dropping it gives up the answer, not the request.
pub(crate) struct Reply {
    link: Link,
    id: u64,
    generation: u64,
    begun: Instant,
    rx: oneshot::Receiver<Answer>,
}

impl Reply {
    /// The answer, or the lack of one, after `within` at the latest.
    pub(crate) async fn within(mut self, within: Duration) -> Answer {
        let env = self.link.env().clone();
        match env.timeout(within, &mut self.rx).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(Lost::Unknown("the link ended".to_owned())),
            None => {
                self.link.give_up(self.generation, self.begun);
                Err(Lost::Unknown(format!(
                    "no answer from member {:x}",
                    self.link.target()
                )))
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let mut state = self.link.0.state.lock();
        state.waiting.remove(&self.id);
        state.traffic.late_heartbeats += u64::from(state.beats.remove(&self.id).is_some());
    }
}
