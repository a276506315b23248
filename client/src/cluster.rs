//! Room `client`: the calls of the Cluster service.

use crate::auth::rpcs;
use crate::call::Client;
use crate::retry::Repeat;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::cluster_client::ClusterClient;

impl Client {
    /// The members; `linearizable` asks the quorum, else one member says what it knows.
    ///
    /// # Errors
    /// What the server says; `Unavailable` or `DeadlineExceeded` when none answers.
    pub async fn member_list(&self, linearizable: bool) -> Result<pb::MemberListResponse, Error> {
        let request = pb::MemberListRequest { linearizable };
        self.call(Repeat::Harmless, request, |channel, request| async move {
            ClusterClient::new(channel).member_list(request).await
        })
        .await
    }
}

rpcs! { ClusterClient;
    /// Adds a member, voting or learner. Not repeated once sent.
    member_add(MemberAddRequest) -> MemberAddResponse, Unsafe;
    /// Removes a member. Not repeated once sent.
    member_remove(MemberRemoveRequest) -> MemberRemoveResponse, Unsafe;
    /// Replaces a member's peer URLs. Not repeated once sent.
    member_update(MemberUpdateRequest) -> MemberUpdateResponse, Unsafe;
    /// Makes a learner vote. Not repeated once sent.
    member_promote(MemberPromoteRequest) -> MemberPromoteResponse, Unsafe;
}
