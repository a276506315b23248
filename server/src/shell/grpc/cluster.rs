//! Room `server/shell`: the gRPC side of etcd's Cluster service. Thin: every method passes the gate and asks
//! the service of that name.

use super::gate::Gate;
use crate::service::Services;
use crate::service::method::Method;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::cluster_server::Cluster;
use tonic::{Request, Response, Status};

/// Adapts [`crate::service::cluster::Cluster`] to gRPC.
pub struct ClusterRpc(pub Gate);

#[tonic::async_trait]
impl Cluster for ClusterRpc {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.member_add(&caller, request).await
        };
        self.0.unary(Method::ClusterMemberAdd, request, call).await
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.member_remove(&caller, request).await
        };
        self.0
            .unary(Method::ClusterMemberRemove, request, call)
            .await
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.member_update(&caller, request).await
        };
        self.0
            .unary(Method::ClusterMemberUpdate, request, call)
            .await
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.member_list(&caller, request).await
        };
        self.0.unary(Method::ClusterMemberList, request, call).await
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.member_promote(&caller, request).await
        };
        self.0
            .unary(Method::ClusterMemberPromote, request, call)
            .await
    }
}
