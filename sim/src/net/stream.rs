//! Room `sim`: the ends of a stream.

use super::pipe::{Pipe, PipeId};
use super::{Learn, SimNet};
use crate::executor::timers::WorldSleep;
use crate::trace::{Kind, hash_bytes};
use bytes::Bytes;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tenon_env::net::{NetRecv, NetSend};
use tenon_env::{BoxFuture, NetStream};

pub(super) struct SimStream {
    send: SendEnd,
    recv: RecvEnd,
}

impl SimStream {
    pub(super) fn new(net: Arc<SimNet>, out: PipeId, back: PipeId) -> SimStream {
        let recv = RecvEnd {
            net: net.clone(),
            pipe: back,
            timer: None,
        };
        SimStream {
            send: SendEnd {
                net,
                pipe: out,
                timer: None,
            },
            recv,
        }
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, why.to_owned())
}

impl NetStream for SimStream {
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

struct SendEnd {
    net: Arc<SimNet>,
    pipe: PipeId,
    timer: Option<WorldSleep>,
}

struct RecvEnd {
    net: Arc<SimNet>,
    pipe: PipeId,
    timer: Option<WorldSleep>,
}

/// Polls (or sets) the timer that has an end look again at `at`.
fn look_again(net: &SimNet, timer: &mut Option<WorldSleep>, at: u64, cx: &mut Context<'_>) {
    let mut sleep = WorldSleep::new(net.world.clone(), at);
    let polled = Pin::new(&mut sleep).poll(cx);
    *timer = Some(sleep);
    if polled.is_ready() {
        cx.waker().wake_by_ref();
    }
}

impl SendEnd {
    fn poll_send(&mut self, message: &Bytes, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = self.net.world.now();
        let mut guard = self.net.state.lock();
        let state = &mut *guard;
        let Some(pipe) = state.pipes.get_mut(&self.pipe) else {
            return Poll::Ready(Err(broken("the stream is gone")));
        };
        match pipe.broken {
            Some((at, why)) if at <= now => return Poll::Ready(Err(broken(why))),
            _ if pipe.refused_at.is_some_and(|at| at <= now) => {
                return Poll::Ready(Err(broken("the peer closed")));
            }
            _ if pipe.has_room() => {}
            broken => {
                pipe.sender = Some(cx.waker().clone());
                let next = broken
                    .map(|(at, _)| at)
                    .into_iter()
                    .chain(pipe.refused_at)
                    .min();
                drop(guard);
                if let Some(at) = next {
                    look_again(&self.net, &mut self.timer, at, cx);
                }
                return Poll::Pending;
            }
        }
        let (from, to) = (pipe.from.node, pipe.to.node);
        let waker = pipe.receiver.take();
        let lost = state.links_lose(from, to);
        match lost {
            true => state.counts.lost += 1,
            false => state.carry(self.pipe, message, now),
        }
        drop(guard);
        if lost {
            let id = self.pipe;
            let both = |p: &Pipe| p.id == id || p.other == id;
            self.net
                .break_where(both, Learn::AfterDelay, "a message was lost");
        }
        waker.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl NetSend for SendEnd {
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(std::future::poll_fn(move |cx| self.poll_send(&message, cx)))
    }
}

impl RecvEnd {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let now = self.net.world.now();
        let mut guard = self.net.state.lock();
        let state = &mut *guard;
        let Some(pipe) = state.pipes.get(&self.pipe) else {
            return Poll::Ready(Err(broken("the stream is gone")));
        };
        let (from, to) = (pipe.from.node, pipe.to.node);
        let link = state.link(from, to);
        let (open, clogged_until, cut) = (link.is_open(now), link.clogged_until, link.cut);
        let pipe = state.pipes.get_mut(&self.pipe).expect("present");
        let next = match (open, pipe.broken, pipe.queue.front()) {
            (true, Some((at, why)), _) if at <= now => return Poll::Ready(Err(broken(why))),
            (true, _, Some((at, _))) if *at <= now => {
                let message = pipe.pop().expect("there is one");
                let waker = pipe.sender.take();
                state.counts.delivered += 1;
                drop(guard);
                let words = [from.0, to.0, self.pipe.0, hash_bytes(&message)];
                self.net.world.note(Kind::Message, &words);
                waker.into_iter().for_each(Waker::wake);
                return Poll::Ready(Ok(Some(message)));
            }
            (true, _, None) if pipe.end_at.is_some_and(|at| at <= now) => {
                return Poll::Ready(Ok(None));
            }
            (true, broken, front) => {
                let first = front.map(|(at, _)| *at).or(pipe.end_at);
                broken.map(|(at, _)| at).into_iter().chain(first).min()
            }
            (false, ..) if cut => None,
            (false, ..) => Some(clogged_until),
        };
        pipe.receiver = Some(cx.waker().clone());
        drop(guard);
        match next {
            Some(at) => look_again(&self.net, &mut self.timer, at, cx),
            None => self.timer = None,
        }
        Poll::Pending
    }
}

impl NetRecv for RecvEnd {
    fn recv(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>> {
        Box::pin(std::future::poll_fn(|cx| self.poll_recv(cx)))
    }
}

impl SimNet {
    /// An end was dropped: an orderly end of a living node. A dying one has broken the pipe before.
    fn end_dropped(&self, id: PipeId, is_sender: bool) {
        let now = self.world.now();
        let waker = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(pipe) = state.pipes.get(&id) else {
                return;
            };
            let (from, to) = (pipe.from.node, pipe.to.node);
            let delay = match is_sender {
                true => state.draw_delay(from, to),
                false => state.draw_delay(to, from),
            };
            let pipe = state.pipes.get_mut(&id).expect("present");
            pipe.ends_dropped += 1;
            if pipe.ends_dropped == 2 {
                state.pipes.remove(&id);
                return;
            }
            let (end, waker) = match is_sender {
                true => (&mut pipe.end_at, pipe.receiver.take()),
                false => (&mut pipe.refused_at, pipe.sender.take()),
            };
            if pipe.broken.is_none() {
                *end = Some(now + delay);
            }
            waker
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for SendEnd {
    fn drop(&mut self) {
        self.net.end_dropped(self.pipe, true);
    }
}

impl Drop for RecvEnd {
    fn drop(&mut self) {
        self.net.end_dropped(self.pipe, false);
    }
}
