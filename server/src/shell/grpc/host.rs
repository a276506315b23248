//! Room `server/shell`: the gRPC side of the host service, which the host answers itself in every mode, and of the
//! members' service for hosts, which passes the gate like etcd's services.

#![allow(
    clippy::disallowed_methods,
    reason = "streams of the host service live in the real world"
)]

use super::gate::Gate;
use crate::host::journal::read_mode;
use crate::host::{ChangeOptions, FaultTolerance, Host};
use crate::service::Services;
use crate::service::method::Method;
use std::sync::Arc;
use std::time::Duration;
use tenon_proto::error::Error;
use tenon_proto::host as pb;
use tenon_proto::host::host_server;
use tenon_proto::host::members_server;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Answers ahead of a slow client.
const AHEAD: usize = 16;
/// How often progress is told while nothing changes: time passes.
const TICK: Duration = Duration::from_millis(500);

/// Adapts [`Host`] to gRPC.
pub struct HostRpc(pub Host);

type Answers<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl host_server::Host for HostRpc {
    async fn status(
        &self,
        _: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        Ok(Response::new(self.0.wire_status()))
    }

    type WatchStream = Answers<pb::StatusResponse>;

    async fn watch(
        &self,
        _: Request<pb::StatusRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (to, answers) = mpsc::channel(AHEAD);
        let host = self.0.clone();
        tokio::spawn(async move {
            let mut changes = host.watch_status();
            loop {
                let status = {
                    changes.borrow_and_update();
                    host.wire_status()
                };
                if to.send(Ok(status)).await.is_err() {
                    return;
                }
                tokio::select! {
                    biased;
                    () = to.closed() => return,
                    _ = host.ended() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    type ChangeModeStream = Answers<pb::ChangeModeResponse>;

    async fn change_mode(
        &self,
        request: Request<pb::ChangeModeRequest>,
    ) -> Result<Response<Self::ChangeModeStream>, Status> {
        let request = request.into_inner();
        let Some(to) = read_mode(request.mode()) else {
            return Err(Status::invalid_argument(
                "tenon: which mode? a host is a server or a client",
            ));
        };
        let options = ChangeOptions {
            within: (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms)),
            fault_tolerance: request
                .require_fault_tolerance
                .then_some(FaultTolerance::Require),
        };
        let (tell, answers) = mpsc::channel(AHEAD);
        let host = self.0.clone();
        if request.dry_run {
            let plan = host.plan(to, options).await;
            let (plan, warnings, error) = match plan {
                Ok(plan) => (plan.steps, plan.warnings, String::new()),
                Err(error) => (Vec::new(), Vec::new(), error.to_string()),
            };
            let answer = pb::ChangeModeResponse {
                status: Some(host.wire_status()),
                plan,
                warnings,
                done: true,
                error,
            };
            let _ = tell.send(Ok(answer)).await;
            return Ok(Response::new(ReceiverStream::new(answers)));
        }
        let change = host.change_mode(to, options).await;
        let change = change.map_err(|error| Status::from(Error::from(error)))?;
        tokio::spawn(follow(host, change, tell));
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn abort(
        &self,
        _: Request<pb::AbortRequest>,
    ) -> Result<Response<pb::AbortResponse>, Status> {
        match self.0.abort().await {
            Ok(()) => Ok(Response::new(pb::AbortResponse {
                status: Some(self.0.wire_status()),
            })),
            Err(error) => Err(Error::from(error).into()),
        }
    }
}

/// Tells a switch's progress until its end. A client that hangs up does not stop it.
async fn follow(
    host: Host,
    change: crate::host::Change,
    tell: mpsc::Sender<Result<pb::ChangeModeResponse, Status>>,
) {
    let (mut changes, mut change) = (change.progress(), std::pin::pin!(change));
    let told = |done: bool, error: String| pb::ChangeModeResponse {
        status: Some(host.wire_status()),
        done,
        error,
        ..pb::ChangeModeResponse::default()
    };
    loop {
        // A slow client misses some of the progress, never the outcome.
        let _ = tell.try_send(Ok(told(false, String::new())));
        tokio::select! {
            biased;
            outcome = &mut change => {
                let error = outcome.err().map_or_else(String::new, |e| e.to_string());
                let _ = tell.send(Ok(told(true, error))).await;
                return;
            }
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// Adapts what members answer hosts to gRPC.
pub struct MembersRpc(pub Gate);

#[tonic::async_trait]
impl members_server::Members for MembersRpc {
    async fn join(
        &self,
        request: Request<pb::JoinRequest>,
    ) -> Result<Response<pb::JoinResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.join(&caller, request).await
        };
        self.0.unary(Method::MembersJoin, request, call).await
    }

    async fn standing(
        &self,
        request: Request<pb::StandingRequest>,
    ) -> Result<Response<pb::StandingResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.cluster.standing(&caller, request).await
        };
        self.0.unary(Method::MembersStanding, request, call).await
    }
}
