//! Room `sim`, world: members that come and go, as an operator has them: the cluster is asked, then the
//! process starts or ends.

use super::client::{CallError, Client};
use super::{State, World};
use crate::NodeId;
use crate::disk::CrashMode;
use tenon_proto::caller::Caller;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::MemberId;

/// As what a member is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// With a vote.
    Voter,
    /// Without one, until it is promoted.
    Learner,
}

impl World {
    /// Adds a member on `node` to the cluster through `client` and starts it. The node must be down and is
    /// wiped first: whoever is added is new.
    ///
    /// # Errors
    /// What the cluster answered; the member is not started then, though an unknown outcome may have added it.
    ///
    /// # Panics
    /// When the node is alive.
    pub async fn join(
        &self,
        client: &Client,
        node: impl Into<NodeId>,
        joins: Joins,
    ) -> Result<(), CallError> {
        let node = node.into();
        assert_eq!(self.state(node), State::Down, "{node} is alive");
        let request = pb::MemberAddRequest {
            peer_urls: vec![crate::default_url(node)],
            is_learner: joins == Joins::Learner,
        };
        let add = client.call(|services| async move {
            let caller = Caller::default();
            services.cluster.member_add(&caller, request).await
        });
        add.await?;
        self.begin_anew(node);
        Ok(())
    }

    /// Starts the member that the cluster lists under the node's URL and `id`: as it is when it was here, as a
    /// new one otherwise. For additions whose outcome was unknown. Nothing when it is alive.
    pub fn adopt(&self, node: impl Into<NodeId>, id: MemberId) {
        let node = node.into();
        if self.state(node) != State::Down {
            return;
        }
        let held = self.0.places.lock().get(&node).and_then(|place| place.id);
        match held == Some(id) {
            true => self.start(node),
            false => self.begin_anew(node),
        }
    }

    /// Starts a member that was just added, on an empty disk.
    fn begin_anew(&self, node: NodeId) {
        if self.0.sim.is_known(node) {
            self.kill(node, CrashMode::Kept);
            self.wipe(node);
        }
        let mut places = self.0.places.lock();
        let place = places.entry(node).or_default();
        (place.joined, place.id) = (true, None);
        drop(places);
        self.start(node);
    }

    /// Removes the node's member from the cluster through `client`. Its process ends once it hears of it; the
    /// node can be used for [`World::join`] again.
    ///
    /// # Errors
    /// What the cluster answered; [`CallError::NotSent`] when the cluster does not list the node.
    pub async fn remove(&self, client: &Client, node: impl Into<NodeId>) -> Result<(), CallError> {
        let id = self.listed(client, node.into()).await?;
        let remove = client.call(move |services| async move {
            let (caller, request) = (Caller::default(), pb::MemberRemoveRequest { id });
            services.cluster.member_remove(&caller, request).await
        });
        remove.await.map(|_| ())
    }

    /// Gives the node's learner a vote.
    ///
    /// # Errors
    /// What the cluster answered; [`CallError::NotSent`] when the cluster does not list the node.
    pub async fn promote(&self, client: &Client, node: impl Into<NodeId>) -> Result<(), CallError> {
        let id = self.listed(client, node.into()).await?;
        let promote = client.call(move |services| async move {
            let (caller, request) = (Caller::default(), pb::MemberPromoteRequest { id });
            services.cluster.member_promote(&caller, request).await
        });
        promote.await.map(|_| ())
    }

    /// Moves leadership to the node's member, asked of whoever leads.
    ///
    /// # Errors
    /// What the leader answered; [`CallError::NotSent`] without a leader, or when the node does not run.
    pub async fn move_leader(
        &self,
        client: &Client,
        node: impl Into<NodeId>,
    ) -> Result<(), CallError> {
        let leader = self.leader().ok_or(CallError::NotSent)?;
        let target = self.member_id(node).ok_or(CallError::NotSent)?.get();
        let request = pb::MoveLeaderRequest { target_id: target };
        let moved = client.call_at(leader, move |services| async move {
            let caller = Caller::default();
            services.maintenance.move_leader(&caller, request).await
        });
        moved.await.map(|_| ())
    }

    /// The id under which the cluster lists a node's member.
    async fn listed(&self, client: &Client, node: NodeId) -> Result<u64, CallError> {
        let list = client.call(move |services| async move {
            let (caller, request) = (Caller::default(), pb::MemberListRequest::default());
            services.cluster.member_list(&caller, request).await
        });
        let own = [crate::default_url(node)];
        let members = list.await?.members;
        let found = members.into_iter().find(|m| m.peer_urls == own);
        found.map(|m| m.id).ok_or(CallError::NotSent)
    }
}
