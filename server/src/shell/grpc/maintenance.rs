//! Room `server/shell`: the gRPC side of etcd's Maintenance service. Thin: every method passes the gate and asks
//! the service of that name.

use super::answers::Answers;
use super::gate::Gate;
use crate::service::Services;
use crate::service::method::Method;
use futures_util::StreamExt;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::maintenance_server::Maintenance;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Adapts [`crate::service::maintenance::Maintenance`] to gRPC.
pub struct MaintenanceRpc(pub Gate);

#[tonic::async_trait]
impl Maintenance for MaintenanceRpc {
    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.alarm(&caller, request).await
        };
        self.0.unary(Method::MaintenanceAlarm, request, call).await
    }

    async fn status(
        &self,
        request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.status(&caller, request).await
        };
        self.0.unary(Method::MaintenanceStatus, request, call).await
    }

    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.defragment(&caller, request).await
        };
        self.0
            .unary(Method::MaintenanceDefragment, request, call)
            .await
    }

    async fn hash(
        &self,
        request: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.hash(&caller, request).await
        };
        self.0.unary(Method::MaintenanceHash, request, call).await
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.move_leader(&caller, request).await
        };
        self.0
            .unary(Method::MaintenanceMoveLeader, request, call)
            .await
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.downgrade(&caller, request).await
        };
        self.0
            .unary(Method::MaintenanceDowngrade, request, call)
            .await
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.maintenance.hash_kv(&caller, request).await
        };
        self.0.unary(Method::MaintenanceHashKv, request, call).await
    }

    type SnapshotStream = Answers<pb::SnapshotResponse>;

    async fn snapshot(
        &self,
        request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let (running, visit) = self
            .0
            .begin(Method::MaintenanceSnapshot, request.metadata())?;
        let here = |s: Arc<Services>, caller, request, out| async move {
            s.maintenance.snapshot(&caller, request, out).await;
        };
        let blobs = self.0.door.parts(
            visit,
            Method::MaintenanceSnapshot,
            request.into_inner(),
            here,
        );
        let blobs = ReceiverStream::new(blobs).boxed();
        Ok(Response::new(Answers::new(blobs, Arc::new(running))))
    }
}
