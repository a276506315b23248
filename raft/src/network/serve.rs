//! Room `raft`: what peers ask of this member. Each stream opened by a peer has a task that reads it; slow
//! requests are served on tasks of their own, so that a heartbeat never waits behind them.

use super::receive::receive;
use super::session::Session;
use super::{greeting, wire};
use crate::node::Node;
use bytes::Bytes;
use prost::Message;
use std::time::Duration;
use tenon_env::sync::mpsc;
use tenon_env::{NetSend, NetStream, Plant, StreamKind};
use tenon_proto::ids::MemberId;
use tenon_proto::peer::{Append, Request, Response, request, response};

/// Time a peer has for its greeting.
const GREET_WITHIN: Duration = Duration::from_secs(5);

/// The way back on one stream.
#[derive(Clone)]
pub(super) struct Replies(mpsc::UnboundedSender<Bytes>);

impl Replies {
    pub(super) fn send(&self, id: u64, body: response::Body) {
        // When the stream is gone, so is whoever asked.
        let _ = self.0.send(
            Response {
                id,
                body: Some(body),
            }
            .encode_to_vec()
            .into(),
        );
    }
}

/// Takes streams for as long as the node listens.
pub(crate) async fn serve(node: Node) {
    let mut incoming = node.env().net.incoming();
    while let Some((kind, stream)) = incoming.accept().await {
        let serving = node.clone();
        node.env().spawn("peer-stream", async move {
            let stopped = std::pin::pin!(serving.stopped());
            let served = std::pin::pin!(accept(serving.clone(), kind, stream));
            futures_util::future::select(served, stopped).await;
        });
    }
}

async fn accept(node: Node, kind: StreamKind, mut stream: Box<dyn NetStream>) {
    let removed = |member| node.is_removed(member);
    let greet = greeting::answer(node.links().me(), removed, &mut *stream);
    let peer = match node.env().timeout(GREET_WITHIN, greet).await {
        Some(Ok(peer)) => peer,
        Some(Err(error)) => return tracing::warn!("refused a peer's stream: {error}"),
        None => return tracing::warn!("a peer's stream brought no greeting"),
    };
    match kind {
        StreamKind::Peer => {
            let ended = read(&node, peer, stream).await;
            tracing::debug!("the stream from member {peer} ended: {ended}");
        }
        StreamKind::Bulk if node.is_admitted() => receive(&node, peer, stream).await,
        StreamKind::Bulk => {}
    }
}

/// Serves one stream until it ends; why it did.
async fn read(node: &Node, peer: MemberId, stream: Box<dyn NetStream>) -> String {
    let (to, mut from) = stream.split();
    let (tx, rx) = mpsc::unbounded_channel();
    let link = node.links().to(peer.0);
    let sender = node
        .env()
        .spawn("peer-replies", write(rx, to, link.clone()));
    let replies = Replies(tx);
    let mut session = None;
    let ended = loop {
        let bytes = match from.recv().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break "closed".to_owned(),
            Err(error) => break error.to_string(),
        };
        link.count(bytes.len(), 0);
        let request: Request = match wire::decode(bytes) {
            Ok(request) => request,
            Err(text) => break text,
        };
        match request.body {
            Some(request::Body::Append(append)) if append.session != 0 && node.is_admitted() => {
                push(node, &mut session, &replies, request.id, append).await;
            }
            // Its next greeting is told so.
            Some(_) if node.is_removed(peer) => break "the member was removed".to_owned(),
            Some(body) => {
                let (node, replies) = (node.clone(), replies.clone());
                node.env().clone().spawn("peer-request", async move {
                    let answer = node_answers(&node, body).await;
                    replies.send(request.id, answer.unwrap_or_else(response::Body::Failed));
                });
            }
            None => {
                let text = "a request of a kind this version does not know".to_owned();
                replies.send(request.id, response::Body::Failed(text));
            }
        }
    };
    sender.abort();
    ended
}

async fn write(
    mut replies: mpsc::UnboundedReceiver<Bytes>,
    mut to: Box<dyn NetSend>,
    link: super::link::Link,
) {
    while let Some(bytes) = replies.recv().await {
        link.count(0, bytes.len());
        if to.send(bytes).await.is_err() {
            return;
        }
    }
}

async fn push(
    node: &Node,
    session: &mut Option<Session>,
    replies: &Replies,
    id: u64,
    append: Append,
) {
    let number = append.session;
    let append = match wire::read_append(append) {
        Ok(append) => append,
        Err(text) => return replies.send(id, response::Body::Failed(text)),
    };
    node.heard();
    let open = session.take_if(|s| s.number() == number);
    let open = open.unwrap_or_else(|| Session::open(node, replies.clone(), number));
    open.push(id, append).await;
    *session = Some(open);
}

/// Requests that stand alone.
async fn node_answers(node: &Node, body: request::Body) -> Result<response::Body, String> {
    if !node.is_admitted() && !matches!(body, request::Body::Acquaintance(_)) {
        return Err("this member is still asking its peers who it is".to_owned());
    }
    Ok(match body {
        request::Body::Append(append) => {
            let append = wire::read_append(append)?;
            node.heard();
            let result = node.append(append).await?;
            response::Body::Append(wire::append_reply(&result))
        }
        request::Body::Vote(request) => {
            let rpc = wire::read_vote_request(&request)?;
            let response = node.raft().vote(rpc).await.map_err(|e| e.to_string())?;
            response::Body::Vote(wire::vote_reply(&response))
        }
        request::Body::PreVote(request) => {
            let rpc = wire::read_vote_request(&request)?;
            let mut response = node.raft().pre_vote(rpc).await.map_err(|e| e.to_string())?;
            response.vote_granted |= node.env().plant == Plant::GrantPreVote;
            response::Body::PreVote(wire::vote_reply(&response))
        }
        request::Body::Transfer(transfer) => {
            let rpc = wire::read_transfer(&transfer)?;
            let response = node.raft().handle_transfer_leader(rpc).await;
            let response = response.map_err(|e| e.to_string())?;
            response::Body::Transfer(wire::transfer_reply(&response))
        }
        request::Body::Forward(forward) => {
            let outcomes = node.take_forwarded(forward).await;
            let outcomes = outcomes.into_iter().map(wire::outcome).collect();
            response::Body::Forward(tenon_proto::peer::ForwardReply { outcomes })
        }
        request::Body::ReadIndex(ask) => {
            use tenon_proto::peer::read_index_reply::Outcome;
            let outcome = match node
                .confirm_here(Duration::from_millis(ask.within_ms))
                .await
            {
                Ok(index) => Outcome::Index(index),
                Err(why) => Outcome::NotConfirmed(wire::reason(why).into()),
            };
            let reply = tenon_proto::peer::ReadIndexReply {
                outcome: Some(outcome),
            };
            response::Body::ReadIndex(reply)
        }
        request::Body::Change(change) => {
            use tenon_proto::peer::change_reply::Outcome;
            let outcome = match node.take_change(change).await {
                Ok(index) => Outcome::Index(index),
                Err(error) => Outcome::Error(wire::change_error(&error)),
            };
            response::Body::Change(tenon_proto::peer::ChangeReply {
                outcome: Some(outcome),
            })
        }
        request::Body::Ask(ask) => response::Body::Ask(node.take_ask(ask).await?),
        request::Body::Acquaintance(ask) => {
            response::Body::Acquaintance(node.acquaintance(ask.member))
        }
    })
}
