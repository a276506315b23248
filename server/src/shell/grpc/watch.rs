//! Room `server/shell`: the gRPC side of etcd's Watch service.

use super::answers::Answers;
use super::gate::Gate;
use super::requests;
use crate::service::method::Method;
use std::sync::Arc;
use tenon_env::sync::mpsc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::watch_server::Watch;
use tonic::{Request, Response, Status, Streaming};

/// Answers written ahead of a slow client.
const AHEAD: usize = 16;

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
        let requests = requests::read(&self.0, request.into_inner(), running.clone());
        let (out, answers) = mpsc::channel(AHEAD);
        let watch = visit.member()?.watch.clone();
        let service = async move {
            watch
                .serve(visit.caller, visit.info.needs_leader, requests, out)
                .await
        };
        Ok(Response::new(Answers::of(service, answers, running)))
    }
}
