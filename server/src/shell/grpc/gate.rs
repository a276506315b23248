//! Room `server/shell`: what every gRPC call passes: counts, the caller's metadata, the host's door with its rules,
//! the log line of a slow call, the mapping of errors.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell measures how long calls take"
)]

use super::requests;
use crate::host::door::{Door, Visit};
use crate::host::remote::CallInfo;
use crate::service::Services;
use crate::service::method::Method;
use crate::service::watch::NeedsLeader;
use crate::shell::metrics::grpc::GrpcMetrics;
use prost::Message;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Shared by all adapters.
#[derive(Clone)]
pub struct Gate {
    /// Who answers.
    pub door: Door,
    /// Counts of calls.
    pub metrics: Arc<GrpcMetrics>,
    warn_after: Duration,
}

/// A call that has begun; counted as ended, with `Canceled` unless told otherwise, when it is dropped.
pub struct Running {
    metrics: Arc<GrpcMetrics>,
    method: Method,
    code: AtomicU8,
    started: Option<Instant>,
}

impl Running {
    /// Says how it ended.
    pub fn end(&self, code: Code) {
        self.code.store(code as u8, Ordering::Relaxed);
    }

    /// Counts one message of a stream to the client.
    pub fn sent(&self, bytes: usize) {
        self.metrics.sent(bytes);
        self.metrics.message_sent(self.method);
    }

    /// Counts one message of a stream from the client.
    pub fn received(&self, bytes: usize) {
        self.metrics.received(bytes);
        self.metrics.message_received(self.method);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let took = self.started.map(|at| at.elapsed());
        let code = Code::from_number(self.code.load(Ordering::Relaxed).into());
        self.metrics.handled(self.method, code, took);
    }
}

impl Gate {
    /// A gate before this door; calls slower than `warn_after` are logged.
    pub fn new(door: Door, metrics: Arc<GrpcMetrics>, warn_after: Duration) -> Gate {
        Gate {
            door,
            metrics,
            warn_after,
        }
    }

    /// Counts a call as begun and checks its metadata.
    pub fn begin(
        &self,
        method: Method,
        metadata: &MetadataMap,
    ) -> Result<(Running, Visit), Status> {
        let started = self.metrics.is_extensive().then(Instant::now);
        self.metrics.started(method);
        let metrics = self.metrics.clone();
        let running = Running {
            metrics,
            method,
            code: AtomicU8::new(Code::Canceled as u8),
            started,
        };
        match self.admit(method, metadata) {
            Ok(visit) => Ok((running, visit)),
            Err(error) => {
                running.end(error.code());
                Err(error.into())
            }
        }
    }

    fn admit(&self, method: Method, metadata: &MetadataMap) -> Result<Visit, Error> {
        let (mut caller, mut info) = (Caller::default(), CallInfo::default());
        // Most calls carry none of ours, so that one look at the few keys is enough.
        for entry in metadata.iter() {
            let tonic::metadata::KeyAndValueRef::Ascii(key, value) = entry else {
                continue;
            };
            match key.as_str() {
                "hasleader" if value == "true" => info.needs_leader = NeedsLeader::Yes,
                "client-api-version" if std::str::from_utf8(value.as_bytes()).is_err() => {
                    return Err(Error::InvalidClientAPIVersion);
                }
                "token" => caller.token = text(value),
                "authorization" if caller.token.is_none() => {
                    let token = text(value);
                    let bare = |t: &str| t.strip_prefix("Bearer ").unwrap_or(t).to_owned();
                    caller.token = token.as_deref().map(bare);
                }
                requests::HOPS => info.hops = hops(value),
                _ => {}
            }
        }
        self.door.admit(method, caller, info)
    }

    /// A call with one request and one answer.
    pub async fn unary<Q, R, F>(
        &self,
        method: Method,
        request: Request<Q>,
        here: impl Fn(Arc<Services>, Caller, Q) -> F,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + Clone + 'static,
        R: Message + Default,
        F: Future<Output = Result<R, Error>>,
    {
        let (running, visit) = self.begin(method, request.metadata())?;
        let began = Instant::now();
        let request = request.into_inner();
        self.metrics.received(request.encoded_len());
        let outcome = self.door.unary(visit, method, request, here).await;
        let took = began.elapsed();
        if took > self.warn_after && !self.warn_after.is_zero() {
            let (service, name, _) = method.row();
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(service, method = name, took_ms, "request took too long");
        }
        match outcome {
            Ok(response) => {
                self.metrics.sent(response.encoded_len());
                running.end(Code::Ok);
                Ok(Response::new(response))
            }
            Err(error) => {
                running.end(error.code());
                Err(error.into())
            }
        }
    }
}

/// Doors the call has passed; one that cannot be read has passed too many.
fn hops(value: &tonic::metadata::AsciiMetadataValue) -> u8 {
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.unwrap_or(u8::MAX)
}

fn text(value: &tonic::metadata::AsciiMetadataValue) -> Option<String> {
    value.to_str().ok().map(str::to_owned)
}
