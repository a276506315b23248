//! Room `server/service`: etcd's Cluster service: the list of members and its changes.

use super::context::Context;
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;

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

    /// Adds a member.
    pub async fn member_add(
        &self,
        caller: &Caller,
        request: pb::MemberAddRequest,
    ) -> Result<pb::MemberAddResponse, Error> {
        check_peer_urls(&request.peer_urls)?;
        self.context.authorise(caller)?;
        self.check_urls_free(&request.peer_urls, 0)?;
        Err(not_yet("adding members"))
    }

    /// Removes a member.
    pub async fn member_remove(
        &self,
        caller: &Caller,
        request: pb::MemberRemoveRequest,
    ) -> Result<pb::MemberRemoveResponse, Error> {
        self.context.authorise(caller)?;
        self.member(request.id)?;
        Err(not_yet("removing members"))
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
        if !self.member(request.id)?.is_learner {
            return Err(Error::MemberNotLearner);
        }
        Err(not_yet("promoting members"))
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
        is_learner: member.is_learner,
    }
}

fn not_yet(what: &str) -> Error {
    Error::other(
        Code::Unimplemented,
        format!("tenon: {what} comes with the cluster issue"),
    )
}

/// At least one URL, each `http`, `https`, `unix` or `unixs` with host and port and without a path.
fn check_peer_urls(urls: &[String]) -> Result<(), Error> {
    let good = |url: &String| match url.split_once("://") {
        Some(("http" | "https", rest)) => {
            let port = rest.rsplit_once(':').map(|(_, port)| port);
            port.is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit())) && !rest.contains('/')
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
            &["http://a:1", "b"],
        ] {
            assert_eq!(check(bad), Err(Error::MemberBadURLs), "{bad:?}");
        }
    }
}
