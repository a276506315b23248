//! Room `raft`: a peer as openraft addresses it: one client for replication, one for heartbeats, one for
//! snapshots, all over the peer's one link (snapshots over a stream of their own).

use super::bulk::Sending;
use super::link::{Link, Lost};
use super::{Links, wire};
use crate::types::{Birth, Config, Vote};
use futures_util::future::{Either, select};
use futures_util::{FutureExt, Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use std::sync::Arc;
use std::time::Duration;
use tenon_proto::peer::{request, response};
use tenon_storage::state::SnapshotView;

/// Appends of one session under way; with what one append may hold this bounds what a slow peer costs.
const WINDOW: usize = 16;

type Failure = RPCError<Config>;

/// Makes clients for peers.
pub(crate) struct Factory {
    links: Arc<Links>,
    /// How long an append may take before its stream counts as stuck.
    patience: Duration,
    /// Bytes per second of a snapshot; 0 = as fast as it goes.
    snapshot_rate: u64,
}

impl Factory {
    pub(crate) fn new(links: Arc<Links>, patience: Duration, snapshot_rate: u64) -> Factory {
        Factory {
            links,
            patience,
            snapshot_rate,
        }
    }

    fn peer(&self, target: u64, use_for: Use) -> Peer {
        Peer {
            link: self.links.to(target),
            patience: self.patience,
            snapshot_rate: self.snapshot_rate,
            use_for,
        }
    }
}

impl RaftNetworkFactory<Config> for Factory {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &Birth) -> Peer {
        self.links.learn(target, &node.0);
        self.peer(target, Use::Sessions)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Birth) -> Peer {
        self.links.learn(target, &node.0);
        self.peer(target, Use::Single)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Appends that follow each other.
    Sessions,
    /// Appends that stand alone.
    Single,
}

/// One peer.
pub(crate) struct Peer {
    link: Link,
    patience: Duration,
    snapshot_rate: u64,
    use_for: Use,
}

fn unreachable(lost: &Lost) -> Unreachable<Config> {
    Unreachable::from_string(lost)
}

fn failure(lost: Lost) -> Failure {
    match lost {
        Lost::NotSent(_) => unreachable(&lost).into(),
        Lost::Unknown(why) => NetworkError::from_string(why).into(),
    }
}

fn nonsense(what: impl ToString) -> Failure {
    NetworkError::from_string(what).into()
}

impl Peer {
    async fn call(
        &self,
        body: request::Body,
        option: &RPCOption,
    ) -> Result<response::Body, Failure> {
        self.link
            .call(body, option.hard_ttl())
            .await
            .map_err(failure)
    }

    /// Sends an append now; its result later.
    fn begin_append(
        &self,
        rpc: AppendEntriesRequest<Config>,
        session: u64,
    ) -> impl Future<Output = Result<StreamAppendResult<Config>, Failure>> + Send + use<> {
        let reply = self
            .link
            .begin(request::Body::Append(wire::append(rpc, session)));
        reply
            .within(self.patience)
            .map(|answer| match answer.map_err(failure)? {
                response::Body::Append(reply) => wire::read_append_reply(&reply).map_err(nonsense),
                other => Err(nonsense(format!("an append was answered by {other:?}"))),
            })
    }
}

impl RaftNetworkV2<Config> for Peer {
    type SnapshotData = SnapshotView;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Config>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Config>, Failure> {
        Ok(self.begin_append(rpc, 0).await?.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<Config>, Failure>>, Failure>>
    where
        S: Stream<Item = AppendEntriesRequest<Config>> + Send + Unpin + 'static,
    {
        let session = match self.use_for {
            Use::Sessions => self.link.new_session(),
            Use::Single => 0,
        };
        let this = &*self;
        let results = input
            .map(move |rpc| this.begin_append(rpc, session))
            .buffered(WINDOW);
        let results: BoxStream<'s, _> = Box::pin(results);
        Box::pin(std::future::ready(Ok(results)))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Config>,
        option: RPCOption,
    ) -> Result<VoteResponse<Config>, Failure> {
        match self
            .call(request::Body::Vote(wire::vote_request(&rpc)), &option)
            .await?
        {
            response::Body::Vote(reply) => wire::read_vote_reply(&reply).map_err(nonsense),
            other => Err(nonsense(format!("a vote was answered by {other:?}"))),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Config>,
        option: RPCOption,
    ) -> Result<VoteResponse<Config>, Failure> {
        match self
            .call(request::Body::PreVote(wire::vote_request(&rpc)), &option)
            .await?
        {
            response::Body::PreVote(reply) => wire::read_vote_reply(&reply).map_err(nonsense),
            other => Err(nonsense(format!("a pre-vote was answered by {other:?}"))),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Config>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Config>, Failure> {
        match self
            .call(request::Body::Transfer(wire::transfer(&request)), &option)
            .await?
        {
            response::Body::Transfer(reply) => {
                wire::read_transfer_reply(&request, &reply).map_err(nonsense)
            }
            other => Err(nonsense(format!("a transfer was answered by {other:?}"))),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Config, SnapshotView>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Config>, StreamingError<Config>> {
        let sending = Sending {
            link: self.link.clone(),
            vote,
            view: snapshot.snapshot,
            rate: self.snapshot_rate,
        };
        let (send, cancel) = (std::pin::pin!(sending.run()), std::pin::pin!(cancel));
        match select(send, cancel).await {
            Either::Left((Ok(vote), _)) => Ok(SnapshotResponse { vote }),
            Either::Left((Err(why), _)) => Err(Unreachable::from_string(why).into()),
            Either::Right((closed, _)) => Err(closed.into()),
        }
    }
}
