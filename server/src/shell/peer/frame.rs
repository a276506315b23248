//! Room `server/shell`: messages as bytes of an HTTP body. Each is a 4-byte big-endian length and that many
//! bytes; the length `u32::MAX` is the end mark. Knows bodies, not sockets.

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Length that stands for an orderly end.
const END: u32 = u32::MAX;

/// Messages up to this size are copied together into one chunk; larger ones go out as they are.
const COPY_BYTES_MAX: usize = 8 << 10;

/// A chunk of copied messages is passed on at this size.
const CHUNK_BYTES: usize = 64 << 10;

/// Memory taken in advance for a message that has announced its length but not sent it.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// The error for a message above the limit, at either end.
pub(super) fn too_long(bytes: usize, max: usize) -> io::Error {
    let text = format!("a message of {bytes} bytes exceeds the limit of {max} between members");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// What is sent, as a body. Ends with the end mark once the queue's senders are gone.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: mpsc::Receiver<Bytes>,
    taken: Vec<Bytes>,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Outgoing {
    pub(super) fn new(queue: mpsc::Receiver<Bytes>) -> Outgoing {
        Outgoing {
            queue,
            taken: Vec::new(),
            ready: VecDeque::new(),
            ended: false,
        }
    }

    fn pack(&mut self) {
        let mut chunk = BytesMut::new();
        for message in self.taken.drain(..) {
            let length = u32::try_from(message.len()).expect("the sender checked the length");
            assert_ne!(length, END, "the limit lies below the end mark");
            chunk.put_u32(length);
            if message.len() <= COPY_BYTES_MAX {
                chunk.put_slice(&message);
            } else {
                self.ready.push_back(chunk.split().freeze());
                self.ready.push_back(message);
            }
            if chunk.len() >= CHUNK_BYTES {
                self.ready.push_back(chunk.split().freeze());
            }
        }
        if !chunk.is_empty() {
            self.ready.push_back(chunk.freeze());
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        loop {
            if let Some(chunk) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let taken = this.queue.poll_recv_many(cx, &mut this.taken, super::QUEUE);
            if ready!(taken) == 0 {
                this.ended = true;
                this.ready
                    .push_back(Bytes::copy_from_slice(&END.to_be_bytes()));
            } else {
                this.pack();
            }
        }
    }
}

/// Messages out of a body. Dropping the future of [`Reader::next`] loses nothing.
#[derive(Debug)]
pub(super) struct Reader<B> {
    body: B,
    message_bytes_max: usize,
    /// Received and not looked at.
    chunk: Bytes,
    /// The length that is arriving.
    length: [u8; 4],
    length_got: usize,
    /// The message that is arriving, and its full length.
    message: Option<(Vec<u8>, usize)>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    Broken,
}

impl<B> Reader<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    pub(super) fn new(body: B, message_bytes_max: usize) -> Reader<B> {
        Reader {
            body,
            message_bytes_max,
            chunk: Bytes::new(),
            length: [0; 4],
            length_got: 0,
            message: None,
            state: State::Open,
        }
    }

    /// The next message; `None` after the end mark; an error if the body ended or broke without it.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self.state {
            State::Ended => return Ok(None),
            State::Broken => {
                let text = "the peer stream is broken";
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
            }
            State::Open => {}
        }
        let result = self.read().await;
        match &result {
            Ok(Some(_)) => {}
            Ok(None) => self.state = State::Ended,
            Err(_) => self.state = State::Broken,
        }
        result
    }

    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            while !self.chunk.is_empty() {
                if self.message.is_none() && !self.take_length()? {
                    return Ok(None);
                }
                if let Some(message) = self.take_message() {
                    return Ok(Some(message));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    let text = format!("the peer stream broke: {}", causes(&error));
                    return Err(io::Error::new(io::ErrorKind::ConnectionReset, text));
                }
                None => {
                    let text = "the peer stream was cut before its end";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
            }
        }
    }

    /// Moves bytes from the chunk into the length; opens a message once it is whole. False: the end mark.
    fn take_length(&mut self) -> io::Result<bool> {
        let take = self.chunk.len().min(4 - self.length_got);
        let bytes = self.chunk.split_to(take);
        self.length[self.length_got..self.length_got + take].copy_from_slice(&bytes);
        self.length_got += take;
        if self.length_got < 4 {
            return Ok(true);
        }
        self.length_got = 0;
        let length = u32::from_be_bytes(self.length);
        if length == END {
            return Ok(false);
        }
        let length = usize::try_from(length).expect("at least 32 bits");
        if length > self.message_bytes_max {
            return Err(too_long(length, self.message_bytes_max));
        }
        let buffer = Vec::with_capacity(length.min(RESERVE_BYTES_MAX));
        self.message = Some((buffer, length));
        Ok(true)
    }

    /// Moves bytes from the chunk into the open message; the message once it is whole. Copies, because a slice
    /// of a chunk would keep all of the chunk in memory as long as the message lives.
    fn take_message(&mut self) -> Option<Bytes> {
        let (buffer, length) = self.message.as_mut()?;
        let take = self.chunk.len().min(*length - buffer.len());
        buffer.extend_from_slice(&self.chunk.split_to(take));
        if buffer.len() < *length {
            return None;
        }
        self.message.take().map(|(buffer, _)| buffer.into())
    }
}

/// An error with what caused it, which HTTP libraries leave out of their own text.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
