//! Room `server/shell`: the standard gRPC health service. As etcd, it knows the whole server only, under the
//! empty name.

use super::gate::Gate;
use crate::service::method::Method;
use std::pin::Pin;
use std::task::{Context, Poll};
use tenon_proto::code::Code;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Says that the server serves; it is asked only then.
pub struct HealthRpc(pub Gate);

/// One answer, then silence until the client leaves.
pub struct Statuses {
    first: Option<HealthCheckResponse>,
    _running: super::gate::Running,
}

impl Stream for Statuses {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut().first.take() {
            Some(answer) => Poll::Ready(Some(Ok(answer))),
            None => Poll::Pending,
        }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status as i32,
    }
}

#[tonic::async_trait]
impl Health for HealthRpc {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (running, _) = self.0.begin(Method::HealthCheck, request.metadata())?;
        if !request.get_ref().service.is_empty() {
            running.end(Code::NotFound);
            return Err(Status::not_found("unknown service"));
        }
        running.end(Code::Ok);
        Ok(Response::new(answer(ServingStatus::Serving)))
    }

    type WatchStream = Statuses;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Statuses>, Status> {
        let (running, _) = self.0.begin(Method::HealthWatch, request.metadata())?;
        let known = request.get_ref().service.is_empty();
        let status = if known {
            ServingStatus::Serving
        } else {
            ServingStatus::ServiceUnknown
        };
        Ok(Response::new(Statuses {
            first: Some(answer(status)),
            _running: running,
        }))
    }
}
