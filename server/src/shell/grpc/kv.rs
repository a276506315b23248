//! Room `server/shell`: the gRPC side of etcd's KV service. Thin: every method passes the gate and asks
//! the service of that name.

use super::answers::Answers;
use super::gate::Gate;
use crate::service::Services;
use crate::service::method::Method;
use futures_util::StreamExt;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::kv_server::Kv;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Adapts [`crate::service::kv::Kv`] to gRPC.
pub struct KvRpc(pub Gate);

#[tonic::async_trait]
impl Kv for KvRpc {
    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        let call =
            |s: Arc<Services>, caller, request| async move { s.kv.range(&caller, request).await };
        self.0.unary(Method::KvRange, request, call).await
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let call =
            |s: Arc<Services>, caller, request| async move { s.kv.put(&caller, request).await };
        self.0.unary(Method::KvPut, request, call).await
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.kv.delete_range(&caller, request).await
        };
        self.0.unary(Method::KvDeleteRange, request, call).await
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        let call =
            |s: Arc<Services>, caller, request| async move { s.kv.txn(&caller, request).await };
        self.0.unary(Method::KvTxn, request, call).await
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let call =
            |s: Arc<Services>, caller, request| async move { s.kv.compact(&caller, request).await };
        self.0.unary(Method::KvCompact, request, call).await
    }

    type RangeStreamStream = Answers<pb::RangeStreamResponse>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let (running, visit) = self.0.begin(Method::KvRangeStream, request.metadata())?;
        let here = |s: Arc<Services>, caller, request, out| async move {
            s.kv.range_stream(&caller, request, out).await;
        };
        let parts = self
            .0
            .door
            .parts(visit, Method::KvRangeStream, request.into_inner(), here);
        let parts = ReceiverStream::new(parts).boxed();
        Ok(Response::new(Answers::new(parts, Arc::new(running))))
    }
}
