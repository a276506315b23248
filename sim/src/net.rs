//! Room `sim`: the network between nodes: directed links with delay, loss, cuts and clogs; streams over them.
//!
//! - A stream is two pipes; each keeps the order of its messages, so a lost message breaks its stream, and one
//!   that is sent again holds up those behind it.
//! - All streams of a link share its bandwidth.
//! - A cut link holds what is sent over it. When it heals, each stream that had something held either goes on
//!   (retransmission) or breaks, by seed. Dials over a cut wait until their time is up.
//! - When a node dies, the other ends of its streams break after the link's delay; over a cut link only once
//!   it heals.
//! - Messages are bytes; nothing else crosses.
//!
//! Inside a stream nothing comes twice or out of order, as over TCP, unless a link is told so: that is for
//! protocols of other projects that expect no more than datagrams. Tenon's members expect streams. Between
//! streams there is no order at all.

mod link;
mod pipe;
mod stream;
#[cfg(test)]
mod tests;

use crate::NodeId;
use crate::executor::{Life, World};
use crate::rng::SimRng;
use crate::trace::Kind;
use parking_lot::Mutex;
use pipe::{Pipe, PipeId};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;
use tenon_env::{BoxFuture, Incoming, Net, NetStream, StreamKind};
use tokio::sync::oneshot;

pub use link::{Delay, LinkConfig};

/// All links and streams of a simulation.
pub(crate) struct SimNet {
    pub(crate) world: Arc<World>,
    pub(crate) state: Mutex<NetState>,
}

pub(crate) struct NetState {
    pub(crate) rng: SimRng,
    pub(crate) default: LinkConfig,
    pub(crate) links: BTreeMap<(NodeId, NodeId), LinkConfig>,
    pub(crate) urls: BTreeMap<String, NodeId>,
    pub(crate) listeners: BTreeMap<NodeId, Listener>,
    pub(crate) pipes: BTreeMap<PipeId, Pipe>,
    pub(crate) next_pipe: u64,
    pub(crate) counts: NetCounts,
    /// Until when what was sent before occupies a link of bounded bandwidth, in nanoseconds.
    pub(crate) busy: BTreeMap<(NodeId, NodeId), u64>,
}

/// What the network did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounts {
    /// Streams opened.
    pub streams: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages lost, each with its stream.
    pub lost: u64,
    /// Messages that were lost on the way and sent again.
    pub resent: u64,
    /// Messages that came twice.
    pub duplicated: u64,
    /// Messages that were let past others of their stream.
    pub reordered: u64,
    /// Streams broken for any reason.
    pub broken: u64,
}

pub(crate) struct Listener {
    life: Life,
    waiting: VecDeque<(StreamKind, Box<dyn NetStream>)>,
    waker: Option<Waker>,
}

/// When the ends of a broken stream learn of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learn {
    AtOnce,
    AfterDelay,
}

/// How long a dial waits at most, in nanoseconds.
const DIAL_MAX: u64 = 2_000_000_000;

impl SimNet {
    pub(crate) fn new(world: Arc<World>) -> Arc<SimNet> {
        let state = NetState {
            rng: SimRng::fork(world.seed, "net", 0),
            default: LinkConfig::default(),
            links: BTreeMap::new(),
            urls: BTreeMap::new(),
            listeners: BTreeMap::new(),
            pipes: BTreeMap::new(),
            next_pipe: 1,
            counts: NetCounts::default(),
            busy: BTreeMap::new(),
        };
        Arc::new(SimNet {
            world,
            state: Mutex::new(state),
        })
    }

    /// Breaks the streams of a life that ended.
    pub(crate) fn on_death(&self, life: Life) {
        let listener = {
            let mut state = self.state.lock();
            let its = state
                .listeners
                .get(&life.node)
                .is_some_and(|l| l.life == life);
            its.then(|| state.listeners.remove(&life.node))
        };
        drop(listener);
        let its = |pipe: &Pipe| pipe.from == life || pipe.to == life;
        self.break_where(its, Learn::AfterDelay, "the peer died");
    }

    /// Changes a link and wakes who waits on it; decides which held streams break when a cut heals.
    pub(crate) fn change_link(&self, from: NodeId, to: NodeId, change: impl Fn(&mut LinkConfig)) {
        let now = self.world.now();
        let mut doomed = Vec::new();
        let mut woken = Vec::new();
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let was = state.link(from, to).is_open(now);
            let mut link = state.link(from, to).clone();
            change(&mut link);
            let healed = !was && link.is_open(now);
            let survival = link.survives_cut_ppm;
            let told = link.told(state.link(from, to), (from, to), now);
            told.into_iter().for_each(|what| self.world.tell(what));
            state.links.insert((from, to), link);
            for (id, pipe) in &mut state.pipes {
                if (pipe.from.node, pipe.to.node) != (from, to) {
                    continue;
                }
                if healed && pipe.holds() && !state.rng.chance(survival) {
                    doomed.push(*id);
                }
                woken.extend(pipe.wakers());
            }
        }
        for id in doomed {
            let both = |pipe: &Pipe| pipe.id == id || pipe.other == id;
            self.break_where(both, Learn::AtOnce, "lost in a cut");
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Breaks streams; what has not been received when an end learns of it is lost.
    pub(crate) fn break_where(
        &self,
        matching: impl Fn(&Pipe) -> bool,
        learn: Learn,
        why: &'static str,
    ) {
        let now = self.world.now();
        let mut woken = Vec::new();
        let mut broken = Vec::new();
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let ids: Vec<PipeId> = state
                .pipes
                .values()
                .filter(|p| matching(p))
                .map(|p| p.id)
                .collect();
            for id in ids {
                let Some(pipe) = state.pipes.get(&id) else {
                    continue;
                };
                let (from, to) = (pipe.from.node, pipe.to.node);
                let delay = match learn {
                    Learn::AtOnce => 0,
                    Learn::AfterDelay => state.draw_delay(from, to),
                };
                let pipe = state.pipes.get_mut(&id).expect("present");
                if pipe.break_at(now + delay, why) {
                    broken.push((id, delay));
                    state.counts.broken += 1;
                }
                woken.extend(pipe.wakers());
            }
        }
        for (id, delay) in broken {
            self.world.note(Kind::Broken, &[id.0, now + delay]);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// The time a lone message takes; `None` when it is lost or the link is closed.
    pub(crate) fn passage(&self, from: NodeId, to: NodeId) -> Option<std::time::Duration> {
        let now = self.world.now();
        let mut state = self.state.lock();
        if !state.link(from, to).is_open(now) || state.links_lose(from, to) {
            return None;
        }
        let delay = state.draw_delay(from, to);
        Some(std::time::Duration::from_nanos(delay))
    }

    fn accept_later(self: &Arc<Self>, from: Life, to: NodeId, kind: StreamKind) -> Dial {
        let (tx, rx) = oneshot::channel();
        let delay = self.state.lock().draw_delay(from.node, to);
        let net = self.clone();
        let action = move || {
            let _ = tx.send(net.accept_now(from, to, kind));
        };
        self.world.after(delay, None, Box::new(action));
        rx
    }

    /// The dial arrives: `None` when the link is cut, so that the dialler hears nothing.
    fn accept_now(self: &Arc<Self>, from: Life, to: NodeId, kind: StreamKind) -> Option<Accepted> {
        let now = self.world.now();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.link(from.node, to).is_open(now) || !state.link(to, from.node).is_open(now) {
            return None;
        }
        if state.links_lose(from.node, to) {
            return None;
        }
        let listening = state.listeners.get(&to).map(|l| l.life);
        let Some(life) = listening.filter(|l| self.world.is_alive(*l)) else {
            return Some(Err(io::Error::from(ErrorKind::ConnectionRefused)));
        };
        if !self.world.is_alive(from) {
            return None;
        }
        let (there, back) = state.add_pipes(from, life);
        state.counts.streams += 1;
        self.world.note(Kind::Dial, &[from.node.0, to.0, there.0]);
        let mine = stream::SimStream::new(self.clone(), there, back);
        let theirs = stream::SimStream::new(self.clone(), back, there);
        let listener = state.listeners.get_mut(&to).expect("listening");
        listener.waiting.push_back((kind, Box::new(theirs)));
        let waker = listener.waker.take();
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(Ok(Box::new(mine)))
    }
}

type Accepted = io::Result<Box<dyn NetStream>>;
type Dial = oneshot::Receiver<Option<Accepted>>;

/// The network as one life of its node sees it.
pub(crate) struct LifeNet {
    pub(crate) net: Arc<SimNet>,
    pub(crate) life: Life,
}

async fn dial(
    net: Arc<SimNet>,
    life: Life,
    urls: Vec<String>,
    kind: StreamKind,
) -> io::Result<Box<dyn NetStream>> {
    let mut last = io::Error::new(ErrorKind::InvalidInput, "no URL to dial");
    for url in urls {
        let known = net.state.lock().urls.get(&url).copied();
        let Some(to) = known else {
            last = io::Error::new(ErrorKind::NotFound, format!("no host of the name {url}"));
            continue;
        };
        let arrived = net.accept_later(life, to, kind).await.ok().flatten();
        match arrived {
            Some(Ok(stream)) => {
                let back = net.state.lock().draw_delay(to, life.node);
                let at = net.world.now() + back;
                crate::executor::timers::WorldSleep::new(net.world.clone(), at).await;
                return Ok(stream);
            }
            Some(Err(refused)) => last = refused,
            None => {
                let wait = net.state.lock().rng.between(DIAL_MAX / 4, DIAL_MAX);
                let at = net.world.now() + wait;
                crate::executor::timers::WorldSleep::new(net.world.clone(), at).await;
                last = io::Error::from(ErrorKind::TimedOut);
            }
        }
    }
    Err(last)
}

impl Net for LifeNet {
    fn connect(
        &self,
        urls: Vec<String>,
        kind: StreamKind,
    ) -> BoxFuture<'static, io::Result<Box<dyn NetStream>>> {
        Box::pin(dial(self.net.clone(), self.life, urls, kind))
    }

    fn incoming(&self) -> Box<dyn Incoming> {
        let mut state = self.net.state.lock();
        let taken = state
            .listeners
            .get(&self.life.node)
            .is_some_and(|l| l.life == self.life);
        if !taken && self.net.world.is_alive(self.life) {
            let listener = Listener {
                life: self.life,
                waiting: VecDeque::new(),
                waker: None,
            };
            state.listeners.insert(self.life.node, listener);
        }
        Box::new(SimIncoming {
            net: self.net.clone(),
            life: self.life,
            mine: !taken,
        })
    }
}

struct SimIncoming {
    net: Arc<SimNet>,
    life: Life,
    mine: bool,
}

impl Incoming for SimIncoming {
    fn accept(&mut self) -> BoxFuture<'_, Option<(StreamKind, Box<dyn NetStream>)>> {
        if !self.mine {
            return Box::pin(std::future::ready(None));
        }
        Box::pin(std::future::poll_fn(|cx| {
            let mut state = self.net.state.lock();
            let its = state
                .listeners
                .get_mut(&self.life.node)
                .filter(|l| l.life == self.life);
            let Some(listener) = its else {
                return std::task::Poll::Ready(None);
            };
            match listener.waiting.pop_front() {
                Some(stream) => std::task::Poll::Ready(Some(stream)),
                None => {
                    listener.waker = Some(cx.waker().clone());
                    std::task::Poll::Pending
                }
            }
        }))
    }
}

impl Drop for SimIncoming {
    fn drop(&mut self) {
        if !self.mine {
            return;
        }
        let listener = {
            let mut state = self.net.state.lock();
            let its = state
                .listeners
                .get(&self.life.node)
                .is_some_and(|l| l.life == self.life);
            its.then(|| state.listeners.remove(&self.life.node))
        };
        // Dropping the streams not taken locks the network again.
        drop(listener);
    }
}
