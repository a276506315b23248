//! Room `server/shell`: the real [`Net`] between members: streams of messages over HTTP/2 on the peer URLs.
//!
//! Each stream is one HTTP/2 connection of its own carrying one `POST /tenon.peer.v1.Peer/Stream` whose two
//! bodies are the two directions ([`frame`]). So a snapshot never delays a heartbeat, flow control is HTTP/2's,
//! and a host that died without a word is noticed by HTTP/2 pings. Headers say who calls and from which
//! cluster ([`hello`]). The same port answers plain HTTP/1 and HTTP/2 through the caller's router.
//!
//! - Order within a stream is the order of sends; there is none between streams.
//! - A stream breaks as a whole: after an error either side gets errors only.
//! - Dropping a stream, or its sending half, is an orderly end: what was sent still arrives. Dropping the
//!   receiving half discards what arrives.
//! - An end is orderly only if the end mark arrived; a cut connection is an error, never an end.
//!
//! It may touch sockets and spawn tokio tasks. It must not look into messages, keep addresses, or retry: the
//! raft room dials again. It speaks no TLS yet; `https` and `unixs` are refused with that text.
#![allow(
    clippy::disallowed_methods,
    reason = "the real network lives outside Env"
)]

mod dial;
mod frame;
mod hello;
#[cfg(test)]
mod proxy;
mod serve;
#[cfg(test)]
mod tests;

use crate::shell::flags::url::FlagUrl;
use bytes::Bytes;
use frame::Reader;
use hello::{Hello, Identity};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenon_env::net::{NetRecv, NetSend};
use tenon_env::{BoxFuture, Incoming, Net, NetStream, StreamKind};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot, watch};

/// Messages queued on one stream ahead of the socket. Raft's batches stay near 1 MiB, so a slow peer holds
/// some 16 MiB of ours at most; small messages leave in one write together, which needs a queue at all.
const QUEUE: usize = 16;

/// Streams opened to this node that nobody has accepted yet; further ones are told to come back.
const BACKLOG: usize = 64;

/// What the transport allows itself.
#[derive(Clone, Debug)]
pub struct PeerLimits {
    /// Longest message either way, in bytes; at most `u32::MAX - 1`. A longer one is refused at the sender
    /// and breaks the stream at a receiver.
    pub message_bytes_max: usize,
    /// Time for one URL's TCP or unix connection.
    pub connect_timeout: Duration,
    /// Time for the greeting after that.
    pub hello_timeout: Duration,
    /// Between pings on a connection.
    pub ping_interval: Duration,
    /// Silence after a ping until the connection counts as dead.
    pub ping_timeout: Duration,
    /// Bytes in flight that a receiver has not taken yet, per stream; less than 2 GiB.
    pub window_bytes: u32,
    /// Time that messages already sent get to leave when the listener closes or a stream is dropped.
    pub close_grace: Duration,
}

impl Default for PeerLimits {
    fn default() -> PeerLimits {
        PeerLimits {
            message_bytes_max: 64 << 20,
            connect_timeout: Duration::from_secs(1),
            hello_timeout: Duration::from_secs(3),
            ping_interval: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(5),
            window_bytes: 8 << 20,
            close_grace: Duration::from_secs(1),
        }
    }
}

/// State of one member's transport.
#[derive(Debug)]
struct Shared {
    limits: PeerLimits,
    cluster: AtomicU64,
    member: AtomicU64,
    /// Where accepted streams go; gone once the listener closed.
    arrivals: parking_lot::Mutex<Option<mpsc::Sender<Arrival>>>,
    /// Held by whoever accepts; the next one waits for its turn.
    waiting: Arc<Mutex<mpsc::Receiver<Arrival>>>,
}

/// A stream that another member opened.
#[derive(Debug)]
struct Arrival {
    hello: Hello,
    stream: PeerStream,
}

impl Shared {
    fn identity(&self) -> Identity {
        Identity {
            cluster: self.cluster.load(Ordering::Acquire),
            member: self.member.load(Ordering::Acquire),
        }
    }
}

/// The transport of one member. Made by [`PeerNet::bind`], used as [`Net`].
#[derive(Debug)]
pub struct PeerNet {
    shared: Arc<Shared>,
}

/// The listening side of a [`PeerNet`]. Dropping it closes it without waiting.
#[derive(Debug)]
pub struct PeerListener {
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    listeners: Vec<serve::Listening>,
}

impl PeerNet {
    /// Listens on `urls` (`http://address:port` or `unix://path`; port 0 takes a free one) and answers every
    /// request that is not a peer stream by `router`. Must run inside a tokio runtime.
    ///
    /// # Errors
    /// A URL that cannot be read or bound; the text names it. Nothing stays bound then.
    pub async fn bind(
        urls: &[String],
        router: axum::Router,
        limits: PeerLimits,
    ) -> io::Result<(Arc<dyn Net>, PeerListener)> {
        let (tx, rx) = mpsc::channel(BACKLOG);
        let shared = Arc::new(Shared {
            limits,
            cluster: AtomicU64::new(0),
            member: AtomicU64::new(0),
            arrivals: parking_lot::Mutex::new(Some(tx)),
            waiting: Arc::new(Mutex::new(rx)),
        });
        let mut bound = Vec::new();
        for url in urls {
            let bind = async { serve::Socket::bind(&read_url(url)?).await };
            bound.push(bind.await.map_err(|e| naming(url, &e))?);
        }
        let (closing, closed) = watch::channel(false);
        let start =
            |socket| serve::Listening::start(socket, &shared, router.clone(), closed.clone());
        let listener = PeerListener {
            listeners: bound.into_iter().map(start).collect(),
            shared: shared.clone(),
            closing,
        };
        Ok((Arc::new(PeerNet { shared }), listener))
    }
}

impl Net for PeerNet {
    fn connect(
        &self,
        urls: Vec<String>,
        kind: StreamKind,
    ) -> BoxFuture<'static, io::Result<Box<dyn NetStream>>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let stream = dial::first(&shared, &urls, kind).await?;
            Ok(Box::new(stream) as Box<dyn NetStream>)
        })
    }

    fn incoming(&self) -> Box<dyn Incoming> {
        Box::new(PeerIncoming {
            shared: self.shared.clone(),
            queue: None,
        })
    }

    fn identify(&self, cluster: u64, member: u64) {
        self.shared.identify(cluster, member);
    }
}

impl Shared {
    fn identify(&self, cluster: u64, member: u64) {
        self.cluster.store(cluster, Ordering::Release);
        self.member.store(member, Ordering::Release);
    }
}

impl PeerListener {
    /// Says who this member is; as [`Net::identify`].
    pub fn identify(&self, cluster: u64, member: u64) {
        self.shared.identify(cluster, member);
    }

    /// The URLs really listened on, in the order given to `bind`, with port 0 replaced by the port taken.
    pub fn urls(&self) -> Vec<String> {
        self.listeners.iter().map(|l| l.url.clone()).collect()
    }

    /// Stops listening, ends the queue of incoming streams, lets open connections flush for a moment and cuts
    /// what is still open then. End the raft room first, so that its streams end in order.
    pub async fn close(self) {
        self.shared.arrivals.lock().take();
        self.closing.send_replace(true);
        for listener in self.listeners {
            listener.ended().await;
        }
    }
}

struct PeerIncoming {
    shared: Arc<Shared>,
    queue: Option<OwnedMutexGuard<mpsc::Receiver<Arrival>>>,
}

impl Incoming for PeerIncoming {
    fn accept(&mut self) -> BoxFuture<'_, Option<(StreamKind, Box<dyn NetStream>)>> {
        Box::pin(async move {
            if self.queue.is_none() {
                self.queue = Some(self.shared.waiting.clone().lock_owned().await);
            }
            let queue = self.queue.as_mut()?;
            loop {
                let Arrival { hello, stream } = queue.recv().await?;
                // A stream may have waited here since before this member knew its cluster.
                match hello.check(&self.shared.identity()) {
                    Ok(()) => return Some((hello.kind, Box::new(stream) as Box<dyn NetStream>)),
                    Err(reason) => tracing::warn!(%reason, "a peer's stream was dropped"),
                }
            }
        })
    }
}

/// One stream, dialled or accepted.
#[derive(Debug)]
struct PeerStream {
    send: PeerSend,
    recv: PeerRecv,
}

#[derive(Debug)]
struct PeerSend {
    queue: mpsc::Sender<Bytes>,
    message_bytes_max: usize,
    /// Never sent on: its end tells [`PeerRecv`] that this half is gone.
    _alive: oneshot::Sender<Infallible>,
}

#[derive(Debug)]
struct PeerRecv {
    /// Taken on drop only.
    open: Option<(Reader<hyper::body::Incoming>, oneshot::Receiver<Infallible>)>,
    close_grace: Duration,
}

/// A [`PeerSend`] whose answering body is not known yet.
struct Opening {
    send: PeerSend,
    sender_gone: oneshot::Receiver<Infallible>,
    close_grace: Duration,
}

impl Opening {
    /// The half that sends, and the body that carries what it sends.
    fn new(limits: &PeerLimits) -> (Opening, frame::Outgoing) {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let (alive, sender_gone) = oneshot::channel();
        let opening = Opening {
            send: PeerSend {
                queue,
                message_bytes_max: limits.message_bytes_max,
                _alive: alive,
            },
            sender_gone,
            close_grace: limits.close_grace,
        };
        (opening, frame::Outgoing::new(outgoing))
    }

    fn join(self, body: hyper::body::Incoming) -> PeerStream {
        let reader = Reader::new(body, self.send.message_bytes_max);
        PeerStream {
            send: self.send,
            recv: PeerRecv {
                open: Some((reader, self.sender_gone)),
                close_grace: self.close_grace,
            },
        }
    }
}

/// A body dropped unread makes h2 throw away what the *other* direction still has queued. So the body is read
/// and discarded while our sending half lives, and for a moment after it so that its messages get out.
impl Drop for PeerRecv {
    fn drop(&mut self) {
        let (Some((mut reader, sender_gone)), Ok(runtime)) =
            (self.open.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let grace = self.close_grace;
        runtime.spawn(async move {
            let discard = async { while let Ok(Some(_)) = reader.next().await {} };
            let enough = async {
                let _ = sender_gone.await;
                tokio::time::sleep(grace).await;
            };
            tokio::select! { _ = discard => {} _ = enough => {} }
        });
    }
}

impl NetSend for PeerSend {
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            if message.len() > self.message_bytes_max {
                return Err(frame::too_long(message.len(), self.message_bytes_max));
            }
            let sent = self.queue.send(message).await;
            sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the peer stream is broken"))
        })
    }
}

impl NetRecv for PeerRecv {
    fn recv(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>> {
        let (reader, _) = self.open.as_mut().expect("taken on drop only");
        Box::pin(reader.next())
    }
}

impl NetStream for PeerStream {
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>> {
        self.send.send(message)
    }

    fn recv(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>> {
        self.recv.recv()
    }

    fn split(self: Box<Self>) -> (Box<dyn NetSend>, Box<dyn NetRecv>) {
        (Box::new(self.send), Box::new(self.recv))
    }
}

/// Reads a peer URL that this transport can serve or dial.
fn read_url(text: &str) -> io::Result<FlagUrl> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let url = FlagUrl::read(text).map_err(invalid)?;
    if url.scheme.secure() {
        let why = "TLS between members is not built in yet; use http or unix";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(url)
}

fn naming(url: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{url}: {error}"))
}
