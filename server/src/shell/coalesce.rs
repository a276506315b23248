//! Room `server/shell`: a connection whose answers to pings wait a moment, so that they leave with the next
//! answer to a call.
//!
//! etcd's Go client measures its bandwidth by an HTTP/2 ping after nearly every answer it gets, and the ping
//! arrives with its next call. Answered at once, that is a system call and a packet for 17 bytes, a sixth of
//! what a put costs. Nothing else is held back, and nothing for longer than [`HOLD`].

#![allow(clippy::disallowed_methods, reason = "the shell's timers are tokio's")]

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long an answer to a ping may wait; clients allow seconds.
const HOLD: Duration = Duration::from_millis(1);

/// A PING frame with the ACK flag on stream 0: length 8, type 6, flags 1; then 8 bytes of the ping's own.
const PONG: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];
const PONG_BYTES: usize = 17;

/// Slices given to one write at most.
const SLICES_MAX: usize = 64;

/// The connection `S` with delayed answers to pings.
#[derive(Debug)]
pub struct Coalesce<S> {
    inner: S,
    held: Vec<u8>,
    due: Pin<Box<Sleep>>,
}

impl<S> Coalesce<S> {
    /// Wraps a connection.
    pub fn new(inner: S) -> Coalesce<S> {
        let due = Box::pin(tokio::time::sleep(Duration::ZERO));
        Coalesce {
            inner,
            held: Vec::with_capacity(PONG_BYTES),
            due,
        }
    }
}

fn is_pong(bufs: &[IoSlice<'_>]) -> bool {
    let mut filled = bufs.iter().filter(|buf| !buf.is_empty());
    match (filled.next(), filled.next()) {
        (Some(only), None) => only.len() == PONG_BYTES && only.starts_with(&PONG),
        _ => false,
    }
}

impl<S: AsyncWrite + Unpin> Coalesce<S> {
    /// Writes what is held alone.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesce<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesce<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.held.is_empty() {
            if !is_pong(bufs) {
                return Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
            }
            bufs.iter().for_each(|buf| this.held.extend_from_slice(buf));
            this.due.as_mut().reset(Instant::now() + HOLD);
            return Poll::Ready(Ok(PONG_BYTES));
        }
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            slices[0] = IoSlice::new(&this.held);
            let more = bufs.len().min(SLICES_MAX - 1);
            slices[1..=more].copy_from_slice(&bufs[..more]);
            let write = Pin::new(&mut this.inner).poll_write_vectored(cx, &slices[..=more]);
            let written = ready!(write)?;
            let of_held = written.min(this.held.len());
            this.held.drain(..of_held);
            if written > of_held || written == 0 {
                return Poll::Ready(Ok(written - of_held));
            }
            if this.held.is_empty() {
                return Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// While an answer to a ping is held, a flush returns early and comes again when the time is up.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.held.is_empty() && this.due.as_mut().poll(cx).is_ready() {
            ready!(this.poll_release(cx))?;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pong(payload: u8) -> Vec<u8> {
        let mut frame = PONG.to_vec();
        frame.extend([payload; 8]);
        frame
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_ping_leaves_with_the_next_bytes() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut near = Coalesce::new(near);
        near.write_all(&pong(7)).await.unwrap();
        near.flush().await.unwrap();
        let nothing = tokio::time::timeout(Duration::ZERO, far.read_u8()).await;
        assert!(nothing.is_err(), "held back");
        near.write_all(b"answer").await.unwrap();
        let mut got = [0; PONG_BYTES + 6];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(got[..PONG_BYTES], pong(7));
        assert_eq!(&got[PONG_BYTES..], b"answer");
    }

    #[tokio::test(start_paused = true)]
    async fn it_leaves_alone_when_its_time_is_up() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut near = Coalesce::new(near);
        near.write_all(&pong(1)).await.unwrap();
        near.flush().await.unwrap();
        tokio::time::sleep(2 * HOLD).await;
        near.flush().await.unwrap();
        let mut got = [0; PONG_BYTES];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(got[..], pong(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_narrow_pipe_loses_and_repeats_nothing() {
        let (near, mut far) = tokio::io::duplex(5);
        let mut near = Coalesce::new(near);
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            all
        });
        let mut expected = Vec::new();
        for part in [
            pong(1),
            b"first".to_vec(),
            pong(2),
            pong(3),
            b"last".to_vec(),
            pong(4),
        ] {
            near.write_all(&part).await.unwrap();
            near.flush().await.unwrap();
            expected.extend(part);
        }
        near.shutdown().await.unwrap();
        drop(near);
        assert_eq!(reader.await.unwrap(), expected);
    }
}
