//! Room `env`: streams between members. Messages are whole byte strings in order; a stream breaks as a whole
//! and is then gone for ever. Addresses are looked up by the caller at every dial.

use crate::BoxFuture;
use bytes::Bytes;
use std::io;

/// What a stream carries; a separate channel keeps bulk data from delaying heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamKind {
    /// Raft messages and small calls between members.
    Peer,
    /// Snapshots.
    Bulk,
}

/// One end of a two-way stream of messages.
pub trait NetStream: Send + 'static {
    /// Queues one message; waits while the other side is slow. An error means the stream is broken and the
    /// fate of messages sent before is unknown.
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>>;
    /// The next message; `None` after an orderly end.
    fn recv(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>>;
    /// Both halves, so that one task may send while another receives.
    fn split(self: Box<Self>) -> (Box<dyn NetSend>, Box<dyn NetRecv>);
}

/// The sending half of a stream.
pub trait NetSend: Send + 'static {
    /// As [`NetStream::send`].
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>>;
}

/// The receiving half of a stream.
pub trait NetRecv: Send + 'static {
    /// As [`NetStream::recv`].
    fn recv(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>>;
}

/// Streams that others opened to this node.
pub trait Incoming: Send + 'static {
    /// The next stream; `None` once the node stops listening.
    fn accept(&mut self) -> BoxFuture<'_, Option<(StreamKind, Box<dyn NetStream>)>>;
}

/// A node's access to its peers.
pub trait Net: Send + Sync + 'static {
    /// Opens a stream to the first of `urls` (peer URLs, tried in order) that answers.
    fn connect(
        &self,
        urls: Vec<String>,
        kind: StreamKind,
    ) -> BoxFuture<'static, io::Result<Box<dyn NetStream>>>;
    /// Tells the transport who this node is, so that peers of another cluster are refused at the first word.
    /// 0 means unknown, which passes every check. Transports that need no such check ignore it.
    fn identify(&self, cluster: u64, member: u64) {
        let _ = (cluster, member);
    }
    /// Streams opened to this node. One at a time: a further one gets streams once the one before is dropped, so
    /// that a node may stop being a member and become another.
    fn incoming(&self) -> Box<dyn Incoming>;
}
