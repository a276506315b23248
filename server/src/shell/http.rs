//! Room `server/shell`: etcd's HTTP endpoints: which path stands on which listener, and the rules before the
//! routes (allowed hosts, CORS, `OPTIONS`). Answers come from the services; this prints them.

mod health;
mod info;
mod peer;
mod text;

use crate::host::door::Door;
use crate::shell::flags::value::Gate;
use crate::shell::metrics::grpc::GrpcMetrics;
use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tower::ServiceExt;

/// What a listener serves over HTTP/1 and over HTTP/2 without gRPC's content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Client endpoints.
    Client,
    /// Metrics and health.
    Metrics,
    /// Endpoints between members.
    Peer,
    /// Nothing: a gRPC-only listener.
    None,
}

/// Counts of health checks.
#[derive(Debug, Default)]
pub struct HealthCounts {
    /// `/health` that answered true.
    pub success: AtomicU64,
    /// `/health` that answered false.
    pub failure: AtomicU64,
}

/// Shared by all handlers.
pub struct Shared {
    /// Who answers.
    pub door: Door,
    /// Counts of gRPC calls.
    pub grpc: Arc<GrpcMetrics>,
    /// Counts of health checks.
    pub health: HealthCounts,
    /// Feature gates.
    pub gates: Vec<Gate>,
    /// Command line, for `/debug/vars`.
    pub command_line: Vec<String>,
    /// Allowed origins.
    pub cors: Vec<String>,
    /// Allowed hosts.
    pub hosts: Vec<String>,
}

type State = axum::extract::State<Arc<Shared>>;

/// The HTTP side of a listener. Cloning is cheap.
#[derive(Clone)]
pub struct Http {
    router: Router,
    shared: Arc<Shared>,
    surface: Surface,
}

impl Http {
    /// The endpoints of a surface.
    pub fn new(shared: Arc<Shared>, surface: Surface) -> Http {
        let health = || {
            Router::new()
                .route("/health", any(health::health))
                .route("/livez", any(health::livez))
                .route("/livez/{check}", any(health::livez_one))
                .route("/readyz", any(health::readyz))
                .route("/readyz/{check}", any(health::readyz_one))
                .route("/metrics", any(info::metrics))
        };
        let router = match surface {
            Surface::Client => health()
                .route("/version", any(info::version))
                .route("/debug/vars", any(info::vars)),
            Surface::Metrics => health(),
            Surface::Peer => Router::new()
                .route("/members", any(peer::members))
                .route("/members/hashkv", any(peer::hash_kv))
                .route("/downgrade/enabled", any(peer::downgrade_enabled))
                .route("/version", any(info::version)),
            Surface::None => Router::new(),
        };
        let router = router.fallback(text::not_found).with_state(shared.clone());
        Http {
            router,
            shared,
            surface,
        }
    }

    /// Answers one request.
    pub async fn call(&self, request: Request<Body>) -> Response<Body> {
        if self.surface != Surface::Client {
            return self.route(request).await;
        }
        if !self.host_allowed(&request) {
            return text::misdirected(request.headers().get(header::HOST));
        }
        let origin = request.headers().get(header::ORIGIN).cloned();
        let mut response = if request.method() == Method::OPTIONS {
            Response::new(Body::empty())
        } else {
            self.route(request).await
        };
        self.allow_origin(origin, response.headers_mut());
        response
    }

    async fn route(&self, request: Request<Body>) -> Response<Body> {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn host_allowed(&self, request: &Request<Body>) -> bool {
        let allowed = &self.shared.hosts;
        if allowed.is_empty() || allowed.iter().any(|host| host == "*") {
            return true;
        }
        let host = request
            .headers()
            .get(header::HOST)
            .and_then(|h| h.to_str().ok());
        let host = host.or_else(|| request.uri().authority().map(|a| a.as_str()));
        allowed
            .iter()
            .any(|a| a == without_port(host.unwrap_or("")))
    }

    fn allow_origin(&self, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        let allowed = &self.shared.cors;
        let any = allowed.is_empty() || allowed.iter().any(|o| o == "*");
        let named = origin.filter(|o| allowed.iter().any(|a| a.as_bytes() == o.as_bytes()));
        let value = match (any, named) {
            (true, _) => HeaderValue::from_static("*"),
            (false, Some(origin)) => origin,
            (false, None) => return,
        };
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"),
        );
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("accept, content-type, authorization"),
        );
    }
}

fn without_port(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// The answer to any method but `GET`.
fn refused_unless_get(method: &Method) -> Option<Response<Body>> {
    if method == Method::GET {
        return None;
    }
    let mut response = text::error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET"));
    Some(response)
}

/// Values of a query parameter, in order; `a`, `a=` and `a=b` all count.
fn query<'a>(uri: &'a http::Uri, name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = uri.query().unwrap_or("").split('&');
    pairs.filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_brackets_fall_off_a_host() {
        for (host, name) in [("a:1", "a"), ("a", "a"), ("[::1]:2", "::1"), ("", "")] {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn a_bare_parameter_is_there() {
        let uri: http::Uri = "/readyz?verbose&exclude=a&exclude=b".parse().unwrap();
        assert_eq!(query(&uri, "exclude").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(query(&uri, "verbose").count(), 1);
        assert_eq!(query(&uri, "other").count(), 0);
    }
}
