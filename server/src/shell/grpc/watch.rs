//! Room `server/shell`: the gRPC side of etcd's Watch service.

use super::answers::Answers;
use super::gate::Gate;
use super::requests;
use crate::service::method::Method;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::watch_server::Watch;
use tonic::{Request, Response, Status, Streaming};

/// Adapts [`crate::service::watch::Watch`] to gRPC.
pub struct WatchRpc(pub Gate);

#[tonic::async_trait]
impl Watch for WatchRpc {
    type WatchStream = Answers<pb::WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (running, visit) = self.0.begin(Method::WatchWatch, request.metadata())?;
        let running = Arc::new(running);
        let (requests, fault) = requests::read(&self.0, request.into_inner(), running.clone());
        let answers = self.0.door.watch(visit, requests);
        Ok(Response::new(Answers::new(answers, running).until(fault)))
    }
}
