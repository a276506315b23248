//! Room `server/service`: etcd's Cluster service: the list of members and its changes.

mod attempts;
mod join;
mod places;
mod promotion;
mod strict;

pub use places::BEHIND_MAX;
pub use promotion::Readiness;

use super::context::{Context, reason_error};
use attempts::Attempts;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::caller::Caller;
use tenon_proto::command::MemberBirth;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::{LogIndex, MemberId, member_id};
use tenon_proto::log::Node;
use tenon_proto::peer::ask::Ask;
use tenon_raft::MemberError;

/// How often is looked whether a change was applied here.
const APPLY_PAUSE: Duration = Duration::from_millis(5);

/// The Cluster service.
#[derive(Clone)]
pub struct Cluster {
    context: Context,
}

impl Cluster {
    /// The service of a member.
    pub fn new(context: Context) -> Cluster {
        Cluster { context }
    }

    /// Answers of this service carry revision 0, as in etcd.
    fn header(&self) -> Option<pb::ResponseHeader> {
        Some(self.context.header(0))
    }

    /// Members as this member knows them, ascending by id.
    pub fn members(&self) -> Vec<pb::Member> {
        self.context
            .store()
            .members()
            .into_iter()
            .map(wire)
            .collect()
    }

    /// The members.
    pub async fn member_list(
        &self,
        caller: &Caller,
        request: pb::MemberListRequest,
    ) -> Result<pb::MemberListResponse, Error> {
        self.context.authorise(caller)?;
        if request.linearizable {
            self.context.read_barrier().await?;
        }
        Ok(pb::MemberListResponse {
            header: self.header(),
            members: self.members(),
        })
    }

    /// Adds a member, as a voter or as a learner. Its id and the time it is hashed with are fixed here.
    pub async fn member_add(
        &self,
        caller: &Caller,
        mut request: pb::MemberAddRequest,
    ) -> Result<pb::MemberAddResponse, Error> {
        check_peer_urls(&request.peer_urls)?;
        self.context.authorise(caller)?;
        request.peer_urls.sort();
        let birth = (self.context.env().clock.wall_ms() / 1000).to_string();
        let id = member_id(&request.peer_urls, &birth);
        let mut attempts = self.attempts();
        let index = loop {
            let added = self.try_add(id, &birth, &request, &mut attempts).await?;
            if let Some(index) = attempts.settle(added).await? {
                break index;
            }
        };
        self.wait_applied(index).await;
        let member = pb::Member {
            id: id.get(),
            peer_urls: request.peer_urls,
            is_learner: request.is_learner,
            ..pb::Member::default()
        };
        Ok(pb::MemberAddResponse {
            header: self.header(),
            member: Some(member),
            members: self.members(),
        })
    }

    /// Judges an addition and has it made, once.
    async fn try_add(
        &self,
        id: MemberId,
        birth: &str,
        request: &pb::MemberAddRequest,
        attempts: &mut Attempts,
    ) -> Result<Result<LogIndex, MemberError>, Error> {
        let premise = self.premise().await?;
        let votes_at_once = self
            .look(|view| {
                if self.context.config().strict_reconfig {
                    view.check_add(request.is_learner)?;
                }
                Ok(!request.is_learner && view.can_vote_at_once())
            })
            .await?;
        self.context.read_barrier().await?;
        self.check_new(id, request)?;
        let node = Node {
            peer_urls: request.peer_urls.clone(),
            birth: birth.to_owned(),
        };
        let (raft, deadline) = (self.context.raft(), attempts.deadline);
        if votes_at_once {
            return Ok(raft.add_voter(id, node, premise, deadline).await);
        }
        if !request.is_learner && attempts.is_first() {
            self.announce(id, &node, "voter").await?;
        }
        Ok(raft.add_learner(id, node, premise, deadline).await)
    }

    /// Says before a learner is added that the leader promotes it once it caught up: `promote` is `auto` for a
    /// host that joins, `voter` for a voter whose vote would leave the others without a quorum until it runs.
    async fn announce(&self, id: MemberId, node: &Node, promote: &str) -> Result<(), Error> {
        let birth = MemberBirth {
            id: id.get(),
            peer_urls: node.peer_urls.clone(),
            token_or_time: node.birth.clone(),
            learner: true,
            promote: promote.to_owned(),
        };
        self.context.propose(birth.into()).await.map(|_| ())
    }

    fn check_new(&self, id: MemberId, request: &pb::MemberAddRequest) -> Result<(), Error> {
        let store = self.context.store();
        let members = store.members();
        if members.iter().any(|m| m.id == id) {
            return Err(Error::MemberExist);
        }
        if store.removed_members().contains(&id) {
            return Err(Error::MemberNotFound);
        }
        self.check_urls_free(&request.peer_urls, 0)?;
        if request.is_learner {
            self.check_room_for_learner()?;
        }
        Ok(())
    }

    fn check_room_for_learner(&self) -> Result<(), Error> {
        let members = self.context.store().members();
        let learners = members.iter().filter(|m| m.is_learner && !m.added_as_voter);
        if learners.count() >= self.context.config().max_learners {
            return Err(Error::TooManyLearners);
        }
        Ok(())
    }

    /// Removes a member for good.
    pub async fn member_remove(
        &self,
        caller: &Caller,
        request: pb::MemberRemoveRequest,
    ) -> Result<pb::MemberRemoveResponse, Error> {
        self.context.authorise(caller)?;
        let id = MemberId(request.id);
        let mut attempts = self.attempts();
        let index = loop {
            let premise = self.premise().await?;
            if self.context.config().strict_reconfig {
                self.look(|view| view.check_remove(id)).await?;
            }
            self.context.read_barrier().await?;
            self.member(request.id)?;
            let raft = self.context.raft();
            let removed = raft.remove(id, premise, attempts.deadline).await;
            if let Some(index) = attempts.settle(removed).await? {
                break index;
            }
        };
        self.wait_applied(index).await;
        self.tell_removed(id);
        Ok(pb::MemberRemoveResponse {
            header: self.header(),
            members: self.members(),
        })
    }

    /// Tells a member that it was removed. It would find out when it next asks for votes, which is later.
    fn tell_removed(&self, id: MemberId) {
        let (raft, within) = (self.context.raft().clone(), self.context.config().election);
        if id != self.context.member() {
            self.context.env().spawn("tell-removed", async move {
                let _ = raft.ask(id, Ask::Removed(true), within).await;
            });
        }
    }

    /// Replaces a member's peer URLs.
    pub async fn member_update(
        &self,
        caller: &Caller,
        request: pb::MemberUpdateRequest,
    ) -> Result<pb::MemberUpdateResponse, Error> {
        check_peer_urls(&request.peer_urls)?;
        self.context.authorise(caller)?;
        self.member(request.id)?;
        self.check_urls_free(&request.peer_urls, request.id)?;
        self.context.propose(request.into()).await?.into_result()?;
        Ok(pb::MemberUpdateResponse {
            header: self.header(),
            members: self.members(),
        })
    }

    /// Makes a learner a voter.
    pub async fn member_promote(
        &self,
        caller: &Caller,
        request: pb::MemberPromoteRequest,
    ) -> Result<pb::MemberPromoteResponse, Error> {
        self.context.authorise(caller)?;
        // The leader decides; without one that is what is said.
        let read = self.context.read_barrier().await;
        read.map_err(|error| match self.context.has_leader() {
            true => error,
            false => Error::NoLeader,
        })?;
        let id = MemberId(request.id);
        let mut attempts = self.attempts();
        let index = loop {
            let premise = self.premise().await?;
            if !self.member(request.id)?.is_learner {
                return Err(Error::MemberNotLearner);
            }
            if self.context.config().strict_reconfig {
                self.look(|view| view.check_promote()).await?;
            }
            let raft = self.context.raft();
            let promoted = raft.promote(id, premise, attempts.deadline).await;
            if let Some(index) = attempts.settle(promoted).await? {
                break index;
            }
            self.context.read_barrier().await?;
        };
        self.wait_applied(index).await;
        self.count_promotion();
        Ok(pb::MemberPromoteResponse {
            header: self.header(),
            members: self.members(),
        })
    }

    fn count_promotion(&self) {
        let counters = self.context.counters();
        counters.promotions.fetch_add(1, Ordering::Relaxed);
    }

    /// Judges a change by the members as they are and as the leader hears them.
    async fn look<T>(
        &self,
        judge: impl FnOnce(&strict::View<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let heard = self.heard().await;
        judge(&strict::View {
            members: &self.context.store().members(),
            heard: &heard,
        })
    }

    /// Members that the leader hears; none without a leader.
    async fn heard(&self) -> BTreeSet<MemberId> {
        let election = self.context.config().election;
        let heard = self.context.raft().heard_by_leader(election, election);
        heard.await.unwrap_or_default().into_keys().collect()
    }

    fn deadline(&self) -> Instant {
        self.context.env().now() + self.context.config().request_timeout()
    }

    /// Waits until a change is applied here, for a bounded time, so that the list in the answer has it.
    async fn wait_applied(&self, index: LogIndex) {
        let deadline = self.deadline();
        let (env, store) = (self.context.env(), self.context.store());
        let applied = || store.applied().is_some_and(|id| id.index >= index.get());
        while !applied() && env.now() < deadline {
            env.sleep(APPLY_PAUSE).await;
        }
    }

    fn member(&self, id: u64) -> Result<pb::Member, Error> {
        self.members()
            .into_iter()
            .find(|m| m.id == id)
            .ok_or(Error::MemberNotFound)
    }

    fn check_urls_free(&self, urls: &[String], except: u64) -> Result<(), Error> {
        let members = self.members();
        let mut others = members.iter().filter(|m| m.id != except);
        if others.any(|m| m.peer_urls.iter().any(|url| urls.contains(url))) {
            return Err(Error::PeerURLExist);
        }
        Ok(())
    }
}

fn wire(member: tenon_storage::Member) -> pb::Member {
    pb::Member {
        id: member.id.get(),
        name: member.name,
        peer_urls: member.peer_urls,
        client_urls: member.client_urls,
        is_learner: member.is_learner && !member.added_as_voter,
    }
}

/// etcd's words for a change that was not made, or of which nobody knows.
fn change_error(error: MemberError) -> Error {
    match error {
        MemberError::NotFound(_) => Error::MemberNotFound,
        MemberError::Exists(_) => Error::MemberExist,
        MemberError::NotLearner(_) => Error::MemberNotLearner,
        MemberError::NotVoter(_) => Error::BadLeaderTransferee,
        MemberError::LastVoter => Error::MemberNotEnoughStarted,
        MemberError::NotReady(_) => Error::LearnerNotReady,
        MemberError::NotLeader(_) | MemberError::Outdated => Error::Timeout,
        MemberError::NotChanged(reason) | MemberError::Unknown(reason) => reason_error(reason),
    }
}

/// At least one URL, each `http`, `https`, `unix` or `unixs` with host and port and without a path.
fn check_peer_urls(urls: &[String]) -> Result<(), Error> {
    let good = |url: &String| match url.split_once("://") {
        Some(("http" | "https", rest)) => {
            let authority = rest.rsplit_once(':');
            let port = |p: &str| p.bytes().all(|b| b.is_ascii_digit());
            authority.is_some_and(|(host, p)| {
                // The escape of a zone, as in `[fe80::1%25eth0]`.
                port(p) && host.replacen("%25", "", 1).bytes().all(names_a_host)
            })
        }
        Some(("unix" | "unixs", rest)) => !rest.is_empty(),
        _ => false,
    };
    if urls.is_empty() || !urls.iter().all(good) {
        Err(Error::MemberBadURLs)
    } else {
        Ok(())
    }
}

/// Whether a byte may stand in the host of a URL. Escapes would have to be undone before anything is dialled.
fn names_a_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"-._~:[]@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_urls_need_scheme_host_and_port() {
        let check = |urls: &[&str]| {
            check_peer_urls(&urls.iter().map(|u| (*u).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["http://127.0.0.1:2380", "https://[::1]:1"]), Ok(()));
        assert_eq!(check(&["unix:///run/s"]), Ok(()));
        for bad in [
            &[][..],
            &[""],
            &["foo://a:1"],
            &["http://127.0.0.1"],
            &["http://127.0.0.1:x"],
            &["http://a b:1"],
            &["http://%zz:1"],
            &["http://a/b:1"],
            &["http://a:1", "b"],
        ] {
            assert_eq!(check(bad), Err(Error::MemberBadURLs), "{bad:?}");
        }
    }
}
