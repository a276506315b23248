//! Room `server/shell`: what the peer listener answers over plain HTTP, for tools that read it. Raft itself
//! does not go this way.

use super::{State, refused_unless_get, text};
use crate::host::door::Backend;
use crate::service::Services;
use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::json;
use std::sync::Arc;
use tenon_proto::caller::Caller;
use tenon_proto::etcdserverpb as pb;

/// The member behind this listener; without one there is nothing to tell.
fn member(state: &State) -> Option<Arc<Services>> {
    match state.door.backend() {
        Backend::Member(services) => Some(services),
        _ => None,
    }
}

fn no_member() -> Response<Body> {
    text::error(StatusCode::SERVICE_UNAVAILABLE, "this host runs no member")
}

fn with_cluster(services: &Services, mut response: Response<Body>) -> Response<Body> {
    let id = services.context.cluster().to_string();
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-etcd-cluster-id", value);
    }
    response
}

pub(super) async fn members(state: State, method: Method) -> Response<Body> {
    if let Some(refused) = refused_unless_get(&method) {
        return refused;
    }
    let show = |m: pb::Member| {
        let mut row = format!("{{\"id\":{},\"peerURLs\":{}", m.id, json!(m.peer_urls));
        if m.is_learner {
            row += ",\"isLearner\":true";
        }
        if !m.name.is_empty() {
            row += &format!(",\"name\":{}", json!(m.name));
        }
        if !m.client_urls.is_empty() {
            row += &format!(",\"clientURLs\":{}", json!(m.client_urls));
        }
        row + "}"
    };
    let Some(services) = member(&state) else {
        return no_member();
    };
    let members = services.cluster.members();
    let rows: Vec<String> = members.into_iter().map(show).collect();
    let body = format!("[{}]\n", rows.join(","));
    with_cluster(
        &services,
        text::answer(StatusCode::OK, "application/json", body),
    )
}

pub(super) async fn hash_kv(
    state: State,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    if method != Method::GET {
        return text::error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    }
    let Some(services) = member(&state) else {
        return no_member();
    };
    let own = services.context.cluster().to_string();
    let asked = headers.get("x-etcd-cluster-id");
    if asked.is_some_and(|id| id.as_bytes() != own.as_bytes()) {
        let response = text::error(StatusCode::PRECONDITION_FAILED, "cluster ID mismatch");
        return with_cluster(&services, response);
    }
    let Ok(request) = serde_json::from_slice::<serde_json::Value>(&body) else {
        return text::error(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    let revision = request["revision"].as_i64().unwrap_or(0);
    let request = pb::HashKvRequest { revision };
    match services
        .maintenance
        .hash_kv(&Caller::default(), request)
        .await
    {
        Ok(answer) => {
            let revision = answer.header.map_or(0, |h| h.revision);
            let body = format!(
                "{{\"header\":{{\"revision\":{revision}}},\"hash\":{},\"compact_revision\":{},\
                 \"hash_revision\":{}}}",
                answer.hash, answer.compact_revision, answer.hash_revision
            );
            with_cluster(
                &services,
                text::answer(StatusCode::OK, "application/json", body),
            )
        }
        Err(error) => text::error(StatusCode::BAD_REQUEST, &error.message()),
    }
}

pub(super) async fn downgrade_enabled(state: State, method: Method) -> Response<Body> {
    if let Some(refused) = refused_unless_get(&method) {
        return refused;
    }
    let Some(services) = member(&state) else {
        return no_member();
    };
    let response = text::answer(StatusCode::OK, "text/plain", "false".to_owned());
    with_cluster(&services, response)
}
