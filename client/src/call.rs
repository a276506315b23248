//! Room `client`: the client and the one way every call takes: token, endpoint, time, retries.

use crate::auth::Tokens;
use crate::endpoint::Endpoint;
use crate::options::ConnectOptions;
use crate::pool::{Pool, mark_failed};
use crate::retry::{Failure, Repeat, Verdict, pause};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// Longest pause between two attempts of one call.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Least time an attempt gets while other endpoints could still be asked.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);

/// Added to the deadline told to the server, so that it is this side which finds that time is up.
const SERVER_SLACK: Duration = Duration::from_millis(500);

/// A client of one cluster. Cheap to clone; clones share connections and credentials.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    timeout: Duration,
    /// Set when bound to one endpoint.
    only: Option<Arc<Endpoint>>,
}

/// What clones share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) tokens: Tokens,
}

/// What comes back, which decides how long the server may work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Answer,
    Stream,
}

/// One call, whatever its attempts.
struct Plan {
    repeat: Repeat,
    shape: Shape,
    deadline: Instant,
}

impl Client {
    /// A client of the cluster behind `endpoints` (`http://host:port`, `host:port` or `unix:path`). Connects
    /// at the first call, so it does not fail when no server runs yet. Must run inside a tokio runtime.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty list or an endpoint that cannot be used; the text names it.
    pub fn connect<I>(endpoints: I, options: ConnectOptions) -> Result<Client, Error>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let urls: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        let client = Client {
            timeout: options.request_timeout,
            only: None,
            shared: Arc::new(Shared {
                tokens: Tokens::new(options.credentials.clone()),
                pool: Pool::new(&urls, options.clone())?,
            }),
        };
        if let Some(every) = options.auto_sync {
            let shared = Arc::downgrade(&client.shared);
            tokio::spawn(keep_synced(shared, every, client.timeout));
        }
        Ok(client)
    }

    /// The same client with another time for each call, retries included.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client {
            timeout,
            ..self.clone()
        }
    }

    /// The same client bound to one endpoint, of the list or not: for calls that mean one member, such as
    /// `status` and `defragment`. Retries stay with that endpoint.
    ///
    /// # Errors
    /// `InvalidArgument` when it cannot be used.
    pub fn only(&self, endpoint: &str) -> Result<Client, Error> {
        Ok(Client {
            only: Some(self.shared.pool.named(endpoint)?),
            ..self.clone()
        })
    }

    /// URLs of the endpoints as they are now.
    pub fn endpoints(&self) -> Vec<String> {
        match &self.only {
            Some(endpoint) => vec![endpoint.url.clone()],
            None => self.shared.pool.urls(),
        }
    }

    /// Replaces the endpoints by the client URLs of all voting members.
    ///
    /// # Errors
    /// Those of `MemberList`.
    pub async fn sync_endpoints(&self) -> Result<(), Error> {
        let list = self.member_list(true).await?;
        let members = list.members.into_iter().filter(|m| !m.is_learner);
        let urls: Vec<String> = members.flat_map(|m| m.client_urls).collect();
        self.shared.pool.replace(&urls);
        Ok(())
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn pick(&self) -> Arc<Endpoint> {
        self.only.clone().unwrap_or_else(|| self.shared.pool.pick())
    }

    pub(crate) fn endpoint_count(&self) -> usize {
        self.only.as_ref().map_or(self.shared.pool.len(), |_| 1)
    }

    /// A call with one answer.
    pub(crate) async fn call<Q, A, F, R>(
        &self,
        repeat: Repeat,
        request: Q,
        send: F,
    ) -> Result<A, Error>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        self.run(self.plan(repeat, Shape::Answer), request, send)
            .await
    }

    /// Opens a stream of answers; what comes after the opening is the caller's affair.
    pub(crate) async fn open<Q, A, F, R>(&self, request: Q, send: F) -> Result<A, Error>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        self.run(self.plan(Repeat::Harmless, Shape::Stream), request, send)
            .await
    }

    /// A call without a token, for the calls that get one.
    pub(crate) async fn call_bare<Q, A, F, R>(&self, request: Q, send: F) -> Result<A, Error>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let plan = self.plan(Repeat::Harmless, Shape::Answer);
        let result = self.attempts(&plan, &request, None, &send).await;
        result.map_err(|(_, error)| error)
    }

    fn plan(&self, repeat: Repeat, shape: Shape) -> Plan {
        Plan {
            repeat,
            shape,
            deadline: Instant::now() + self.timeout,
        }
    }

    async fn run<Q, A, F, R>(&self, plan: Plan, request: Q, send: F) -> Result<A, Error>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let mut renewed = false;
        loop {
            let token = self.shared.tokens.current(self).await?;
            let result = self.attempts(&plan, &request, token.as_deref(), &send);
            match result.await {
                Ok(answer) => return Ok(answer),
                Err((Verdict::Authenticate, _)) if !renewed && self.shared.tokens.can_renew() => {
                    renewed = true;
                    self.shared.tokens.forget(token).await;
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Attempts until one succeeds, the verdict is not to try again, or time is up.
    async fn attempts<Q, A, F, R>(
        &self,
        plan: &Plan,
        request: &Q,
        token: Option<&str>,
        send: &F,
    ) -> Result<A, (Verdict, Error)>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let count = self.endpoint_count();
        let mut told: Option<Error> = None;
        for attempt in 0_u32.. {
            tokio::time::sleep(pause(attempt, count, PAUSE_MAX)).await;
            let left = plan.deadline.saturating_duration_since(Instant::now());
            let limit = match plan.repeat {
                Repeat::Harmless if count > 1 => (left / 2).max(ATTEMPT_MIN).min(left),
                _ => left,
            };
            let mut message = Request::new(request.clone());
            sign(message.metadata_mut(), token).map_err(|error| (Verdict::Return, error))?;
            if plan.shape == Shape::Answer {
                message.set_timeout(limit + SERVER_SLACK);
            }
            let endpoint = self.pick();
            let work = send(endpoint.calls.clone(), message);
            let failure = match tokio::time::timeout(limit, work).await {
                Ok(Ok(answer)) => {
                    endpoint.set_failed(false);
                    return Ok(answer.into_inner());
                }
                Ok(Err(status)) => Failure::of(&status),
                Err(_) => Failure::Late,
            };
            if failure.blames_endpoint() {
                mark_failed(&endpoint);
            }
            let verdict = failure.verdict(plan.repeat);
            let alone =
                count == 1 && matches!(failure, Failure::Answered(Error::NotSupportedForLearner));
            // What an earlier attempt said explains more than that time is up.
            let error = match (failure, told.take()) {
                (Failure::Late, Some(earlier)) if plan.repeat == Repeat::Harmless => earlier,
                (failure, _) => failure.into_error(&endpoint.url),
            };
            let next = Instant::now() + pause(attempt + 1, count, PAUSE_MAX);
            if verdict != Verdict::Elsewhere || alone || next >= plan.deadline {
                return Err((verdict, error));
            }
            told = Some(error);
        }
        unreachable!("the deadline ends the attempts")
    }
}

/// Puts the token into a request's metadata.
///
/// # Errors
/// `InvalidArgument` for a token that no header can carry.
pub(crate) fn sign(metadata: &mut MetadataMap, token: Option<&str>) -> Result<(), Error> {
    if let Some(token) = token {
        let value = token.parse().map_err(|_| {
            let text = "tenon: the token holds characters that metadata cannot carry";
            Error::other(Code::InvalidArgument, text)
        })?;
        metadata.insert("token", value);
    }
    Ok(())
}

async fn keep_synced(shared: Weak<Shared>, every: Duration, timeout: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let client = Client {
            shared,
            timeout,
            only: None,
        };
        if let Err(error) = client.sync_endpoints().await {
            tracing::debug!(%error, "the endpoints could not be synced");
        }
    }
}
