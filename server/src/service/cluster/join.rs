//! Room `server/service`: what members answer hosts: one that wants to join comes in as a learner that the leader
//! promotes, and the standing of all members tells which changes the cluster survives.

use super::attempts::Attempts;
use super::{Cluster, check_peer_urls, places, wire};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::host as pb;
use tenon_proto::ids::{MemberId, member_id};
use tenon_proto::log::Node;
use tenon_raft::Premise;

impl Cluster {
    /// Adds a host as a learner. While another learner takes the only place it is refused with etcd's error; the
    /// host comes again.
    pub async fn join(
        &self,
        caller: &Caller,
        mut request: pb::JoinRequest,
    ) -> Result<pb::JoinResponse, Error> {
        check_peer_urls(&request.peer_urls)?;
        self.context.authorise(caller)?;
        request.peer_urls.sort();
        let mut attempts = self.attempts();
        let (mut fresh, mut announced) = (None, false);
        let (id, index) = loop {
            let premise = self.premise().await?;
            if let Some(dead) = self.to_replace(&request) {
                self.replace(dead, premise, &mut attempts).await?;
                continue;
            }
            self.look(|view| view.check_add(true)).await?;
            self.context.read_barrier().await?;
            places::check_place(&self.context.store().members(), request.voters_target)?;
            self.check_urls_free(&request.peer_urls, 0)?;
            self.check_room_for_learner()?;
            let node = fresh.get_or_insert_with(|| self.fresh_node(request.peer_urls.clone()));
            let id = member_id(&node.peer_urls, &node.birth);
            if !announced {
                self.announce(id, node, "auto").await?;
                announced = true;
            }
            let (raft, node) = (self.context.raft(), node.clone());
            let added = raft.add_learner(id, node, premise, attempts.deadline);
            if let Some(index) = attempts.settle(added.await).await? {
                break (id, index);
            }
        };
        self.wait_applied(index).await;
        tracing::info!(member = %id, name = request.name, "a host joins");
        let members = self.members();
        Ok(pb::JoinResponse {
            header: self.header(),
            member: members.iter().find(|m| m.id == id.get()).cloned(),
            members,
        })
    }

    /// The member whose place the host wants, while it still is one.
    fn to_replace(&self, request: &pb::JoinRequest) -> Option<MemberId> {
        let members = self.context.store().members();
        let mut ids = members.iter().map(|m| m.id);
        ids.find(|id| id.get() == request.replaces)
    }

    /// Removes a dead member, if it is one and the others can do without it.
    async fn replace(
        &self,
        dead: MemberId,
        premise: Premise,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        self.context.read_barrier().await?;
        let election = self.context.config().election;
        let heard = self.context.raft().heard_by_leader(election, election);
        let heard = heard.await.map_err(super::reason_error)?;
        places::check_replace(&self.context.store().members(), &heard, dead)?;
        let removed = self.context.raft().remove(dead, premise, attempts.deadline);
        if let Some(index) = attempts.settle(removed.await).await? {
            tracing::warn!(member = %dead, "removed a dead member: a standby takes its place");
            self.wait_applied(index).await;
            self.tell_removed(dead);
        }
        Ok(())
    }

    /// A birth record whose id was never a member's: a host may leave and come back within one second.
    fn fresh_node(&self, peer_urls: Vec<String>) -> Node {
        let store = self.context.store();
        let (members, removed) = (store.members(), store.removed_members());
        let mut seconds = self.context.env().clock.wall_ms() / 1000;
        loop {
            let birth = seconds.to_string();
            let id = member_id(&peer_urls, &birth);
            if !removed.contains(&id) && !members.iter().any(|m| m.id == id) {
                return Node { peer_urls, birth };
            }
            seconds += 1;
        }
    }

    /// Who belongs to the cluster and whom its leader hears, after a round of the leader's quorum.
    pub async fn standing(
        &self,
        caller: &Caller,
        _: pb::StandingRequest,
    ) -> Result<pb::StandingResponse, Error> {
        self.context.authorise(caller)?;
        self.context.read_barrier().await?;
        let election = self.context.config().election;
        let heard = self.context.raft().heard_by_leader(election, election);
        let heard = heard.await.map_err(super::reason_error)?;
        let leader = self.context.status().leader.ok_or(Error::NoLeader)?;
        let standing = |member: tenon_storage::Member| {
            let behind = heard.get(&member.id).copied();
            let joining = member.is_learner && member.promote_auto;
            let member = wire(member);
            pb::MemberStanding {
                id: member.id,
                name: member.name,
                is_learner: member.is_learner,
                client_urls: member.client_urls,
                peer_urls: member.peer_urls,
                heard: behind.is_some(),
                behind: behind.unwrap_or(0),
                joining,
            }
        };
        let members = self.context.store().members();
        Ok(pb::StandingResponse {
            header: self.header(),
            leader: leader.get(),
            members: members.into_iter().map(standing).collect(),
        })
    }
}
