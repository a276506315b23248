//! Room `server/shell`: what every gRPC call passes: counts, the caller's metadata, the rules of `hasleader`
//! and of learners, the log line of a slow call, the mapping of errors.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell measures how long calls take"
)]

use super::method::Method;
use crate::service::Services;
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
    /// The services behind it.
    pub services: Arc<Services>,
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
    /// A gate before these services; calls slower than `warn_after` are logged.
    pub fn new(services: Services, metrics: Arc<GrpcMetrics>, warn_after: Duration) -> Gate {
        Gate {
            services: Arc::new(services),
            metrics,
            warn_after,
        }
    }

    /// Counts a call as begun and checks its metadata.
    pub fn begin(
        &self,
        method: Method,
        metadata: &MetadataMap,
    ) -> Result<(Running, Caller), Status> {
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
            Ok(caller) => Ok((running, caller)),
            Err(error) => {
                running.end(error.code());
                Err(error.into())
            }
        }
    }

    fn admit(&self, method: Method, metadata: &MetadataMap) -> Result<Caller, Error> {
        let mut caller = Caller::default();
        // Most calls carry none of ours, so that one look at the few keys is enough.
        for entry in metadata.iter() {
            let tonic::metadata::KeyAndValueRef::Ascii(key, value) = entry else {
                continue;
            };
            match key.as_str() {
                "hasleader" if value == "true" && !self.services.context.has_leader() => {
                    return Err(Error::NoLeader);
                }
                "client-api-version" if std::str::from_utf8(value.as_bytes()).is_err() => {
                    return Err(Error::InvalidClientAPIVersion);
                }
                "token" => caller.token = text(value),
                "authorization" if caller.token.is_none() => {
                    let token = text(value);
                    let bare = |t: &str| t.strip_prefix("Bearer ").unwrap_or(t).to_owned();
                    caller.token = token.as_deref().map(bare);
                }
                _ => {}
            }
        }
        if self.services.context.is_learner() && !method.on_learner() && method != Method::KvRange {
            return Err(Error::NotSupportedForLearner);
        }
        Ok(caller)
    }

    /// A call with one request and one answer.
    pub async fn unary<Q, R, F>(
        &self,
        method: Method,
        request: Request<Q>,
        call: impl FnOnce(Arc<Services>, Caller, Q) -> F,
    ) -> Result<Response<R>, Status>
    where
        Q: Message,
        R: Message,
        F: Future<Output = Result<R, Error>>,
    {
        let (running, caller) = self.begin(method, request.metadata())?;
        let began = Instant::now();
        let request = request.into_inner();
        self.metrics.received(request.encoded_len());
        let outcome = call(self.services.clone(), caller, request).await;
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

fn text(value: &tonic::metadata::AsciiMetadataValue) -> Option<String> {
    value.to_str().ok().map(str::to_owned)
}
