//! Room `raft`: messages between members. (Grows with the peer protocol.)

use crate::state_machine::View;
use crate::types::{Birth, Config, Vote};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;

/// Makes clients for peers.
pub(crate) struct Factory;

/// One peer as openraft addresses it.
pub(crate) struct Peer {
    target: u64,
}

impl RaftNetworkFactory<Config> for Factory {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &Birth) -> Peer {
        Peer { target }
    }
}

impl Peer {
    fn unreachable(&self) -> Unreachable<Config> {
        Unreachable::from_string(format!("no stream to member {:x}", self.target))
    }
}

impl RaftNetworkV2<Config> for Peer {
    type SnapshotData = View;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Config>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Config>, RPCError<Config>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Config>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        Err(self.unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<Config>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: SnapshotOf<Config, View>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Config>, StreamingError<Config>> {
        Err(self.unreachable().into())
    }
}
