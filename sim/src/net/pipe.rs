//! Room `sim`: one direction of a stream.

use crate::executor::Life;
use bytes::Bytes;
use std::collections::VecDeque;
use std::task::Waker;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipeId(pub(crate) u64);

/// Bytes on their way at most before a sender waits.
const WINDOW: usize = 1 << 20;

/// Messages on their way from one life to another.
///
/// - `queue` is sorted by arrival: each message arrives no earlier than the one before it, but for those that a
///   link lets past others.
/// - A broken pipe gives an error at both ends from `broken_at` on; what had not arrived is lost.
pub(crate) struct Pipe {
    pub(crate) id: PipeId,
    pub(crate) other: PipeId,
    pub(crate) from: Life,
    pub(crate) to: Life,
    pub(super) queue: VecDeque<(u64, Bytes)>,
    pub(super) bytes: usize,
    last_arrival: u64,
    pub(super) broken: Option<(u64, &'static str)>,
    /// When the receiver learns of an orderly end.
    pub(super) end_at: Option<u64>,
    /// When the sender learns that nobody receives.
    pub(super) refused_at: Option<u64>,
    /// Ends whose handle is dropped; of both, the pipe goes.
    pub(super) ends_dropped: u8,
    pub(super) receiver: Option<Waker>,
    pub(super) sender: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(id: PipeId, other: PipeId, from: Life, to: Life) -> Pipe {
        Pipe {
            id,
            other,
            from,
            to,
            queue: VecDeque::new(),
            bytes: 0,
            last_arrival: 0,
            broken: None,
            end_at: None,
            refused_at: None,
            ends_dropped: 0,
            receiver: None,
            sender: None,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes < WINDOW
    }

    /// Whether something is on its way.
    pub(super) fn holds(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn push(&mut self, arrival: u64, message: Bytes) {
        self.last_arrival = self.last_arrival.max(arrival);
        self.bytes += message.len();
        self.queue.push_back((self.last_arrival, message));
    }

    /// As [`Pipe::push`], but the message may come before others that were sent earlier; whether it does.
    pub(super) fn push_past(&mut self, arrival: u64, message: Bytes) -> bool {
        self.bytes += message.len();
        let behind = self.queue.partition_point(|(at, _)| *at <= arrival);
        let passes = behind < self.queue.len();
        self.queue.insert(behind, (arrival, message));
        passes
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let (_, message) = self.queue.pop_front()?;
        self.bytes -= message.len();
        Some(message)
    }

    /// Has the pipe break at `at`; false when it breaks no later already.
    pub(super) fn break_at(&mut self, at: u64, why: &'static str) -> bool {
        let sooner = self.broken.is_none_or(|(held, _)| at < held);
        if sooner {
            self.broken = Some((at, why));
        }
        sooner
    }

    /// Whoever waits, to look again.
    pub(super) fn wakers(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.receiver.take().into_iter().chain(self.sender.take())
    }
}
