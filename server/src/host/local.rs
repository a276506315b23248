//! Room `server/host`: a client within the process: calls that pass the host's door without sockets, so that they go
//! wherever the endpoint is. For embedders and the simulator.

use super::door::Door;
use super::remote::CallInfo;
use super::streams::Stream;
use crate::service::Services;
use crate::service::method::Method;
use std::sync::Arc;
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;

/// Calls through a host's endpoint. Cloning is cheap.
#[derive(Clone)]
pub struct LocalClient {
    door: Door,
    caller: Caller,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($request:ident) -> $answer:ident, $method:ident, $service:ident . $call:ident;)*) => {
        impl LocalClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// What etcd's service says; `Unavailable` when nobody answers.
                pub async fn $name(&self, request: pb::$request) -> Result<pb::$answer, Error> {
                    let (method, caller) = (Method::$method, self.caller.clone());
                    let visit = self.door.admit(method, caller, CallInfo::default())?;
                    let here = |s: Arc<Services>, caller: Caller, request| async move {
                        s.$service.$call(&caller, request).await
                    };
                    self.door.unary(visit, method, request, here).await
                }
            )*
        }
    };
}

calls! {
    /// Keys and values.
    range(RangeRequest) -> RangeResponse, KvRange, kv.range;
    /// Writes one key.
    put(PutRequest) -> PutResponse, KvPut, kv.put;
    /// Deletes keys.
    delete_range(DeleteRangeRequest) -> DeleteRangeResponse, KvDeleteRange, kv.delete_range;
    /// Several operations at once.
    txn(TxnRequest) -> TxnResponse, KvTxn, kv.txn;
    /// Drops old history.
    compact(CompactionRequest) -> CompactionResponse, KvCompact, kv.compact;
    /// Ends a lease and deletes its keys.
    lease_revoke(LeaseRevokeRequest) -> LeaseRevokeResponse, LeaseLeaseRevoke, lease.revoke;
    /// How long a lease has to live.
    lease_time_to_live(LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse, LeaseLeaseTimeToLive, lease.time_to_live;
    /// A lease.
    lease_grant(LeaseGrantRequest) -> LeaseGrantResponse, LeaseLeaseGrant, lease.grant;
    /// The members.
    member_list(MemberListRequest) -> MemberListResponse, ClusterMemberList, cluster.member_list;
    /// The hash of the history, of whichever member answers.
    hash_kv(HashKvRequest) -> HashKvResponse, MaintenanceHashKv, maintenance.hash_kv;
    /// Adds a member.
    member_add(MemberAddRequest) -> MemberAddResponse, ClusterMemberAdd, cluster.member_add;
    /// Removes a member for good.
    member_remove(MemberRemoveRequest) -> MemberRemoveResponse, ClusterMemberRemove, cluster.member_remove;
}

impl LocalClient {
    /// Calls of `caller` through this door.
    pub fn new(door: Door, caller: Caller) -> LocalClient {
        LocalClient { door, caller }
    }

    /// A stream of watches, created and canceled by `requests`. It goes on over every switch, without gap or repeat.
    ///
    /// # Errors
    /// `Unavailable` when nobody answers.
    pub fn watch(
        &self,
        requests: mpsc::Receiver<pb::WatchRequest>,
    ) -> Result<Stream<pb::WatchResponse>, Error> {
        let method = Method::WatchWatch;
        let visit = self
            .door
            .admit(method, self.caller.clone(), CallInfo::default())?;
        Ok(self.door.watch(visit, requests))
    }

    /// A stream that renews the leases asked for by `requests`; ends with them.
    ///
    /// # Errors
    /// `Unavailable` when nobody answers.
    pub fn keep_alive(
        &self,
        requests: mpsc::Receiver<pb::LeaseKeepAliveRequest>,
    ) -> Result<Stream<pb::LeaseKeepAliveResponse>, Error> {
        let method = Method::LeaseLeaseKeepAlive;
        let visit = self
            .door
            .admit(method, self.caller.clone(), CallInfo::default())?;
        Ok(self.door.keep_alive(visit, requests))
    }
}
