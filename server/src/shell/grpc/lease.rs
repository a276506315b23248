//! Room `server/shell`: the gRPC side of etcd's Lease service. Thin: every method passes the gate and asks
//! the service of that name.

use super::answers::Answers;
use super::gate::Gate;
use super::requests;
use crate::service::Services;
use crate::service::method::Method;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::lease_server::Lease;
use tonic::{Request, Response, Status, Streaming};

/// Adapts [`crate::service::lease::Lease`] to gRPC.
pub struct LeaseRpc(pub Gate);

#[tonic::async_trait]
impl Lease for LeaseRpc {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.lease.grant(&caller, request).await
        };
        self.0.unary(Method::LeaseLeaseGrant, request, call).await
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.lease.revoke(&caller, request).await
        };
        self.0.unary(Method::LeaseLeaseRevoke, request, call).await
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.lease.time_to_live(&caller, request).await
        };
        self.0
            .unary(Method::LeaseLeaseTimeToLive, request, call)
            .await
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.lease.leases(&caller, request).await
        };
        self.0.unary(Method::LeaseLeaseLeases, request, call).await
    }

    type LeaseKeepAliveStream = Answers<pb::LeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (running, visit) = self
            .0
            .begin(Method::LeaseLeaseKeepAlive, request.metadata())?;
        let running = Arc::new(running);
        let (requests, fault, reading) = requests::beside(request.into_inner(), running.clone());
        let answers = self.0.door.keep_alive(visit, requests);
        Ok(Response::new(
            Answers::beside(reading, answers, running).until(fault),
        ))
    }
}
