//! Room `raft`: appends that a peer sends in a row. They go to openraft as one stream, so that several can be
//! under way, and their results go back in the same order. The first that fails ends the session: what the
//! peer sent behind it is dropped, and the peer begins another.

use super::serve::Replies;
use super::wire;
use crate::node::Node;
use crate::types::Config;
use futures_util::StreamExt;
use openraft::raft::AppendEntriesRequest;
use tenon_env::sync::mpsc;
use tenon_proto::peer::response;

/// Appends that wait for openraft; the sender's window is no larger, so the stream never stalls on it.
const WAITING_MAX: usize = 64;

type Append = AppendEntriesRequest<Config>;

/// The side that takes in.
pub(super) struct Session {
    number: u64,
    appends: mpsc::Sender<Append>,
    ids: mpsc::UnboundedSender<u64>,
}

impl Session {
    pub(super) fn open(node: &Node, replies: Replies, number: u64) -> Session {
        let (appends, rx) = mpsc::channel(WAITING_MAX);
        let (ids, id_rx) = mpsc::unbounded_channel();
        node.env()
            .spawn("peer-appends", answer(node.clone(), rx, id_rx, replies));
        Session {
            number,
            appends,
            ids,
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Hands an append over; dropped when the session has ended.
    pub(super) async fn push(&self, id: u64, append: Append) {
        let _ = self.ids.send(id);
        let _ = self.appends.send(append).await;
    }
}

async fn answer(
    node: Node,
    appends: mpsc::Receiver<Append>,
    mut ids: mpsc::UnboundedReceiver<u64>,
    replies: Replies,
) {
    let appends = futures_util::stream::unfold(appends, |mut appends| async move {
        let append = appends.recv().await?;
        Some((append, appends))
    });
    let mut results = std::pin::pin!(node.raft().stream_append(appends));
    while let Some(result) = results.next().await {
        let Some(id) = ids.recv().await else { return };
        match result {
            Ok(result) => replies.send(id, response::Body::Append(wire::append_reply(&result))),
            Err(fatal) => replies.send(id, response::Body::Failed(fatal.to_string())),
        }
    }
}
