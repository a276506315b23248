//! Room `server/shell`: `/health`, `/livez` and `/readyz`.

use super::{Shared, State, query, refused_unless_get, text};
use crate::service::health::Check;
use axum::body::Body;
use axum::extract::Path;
use http::{Method, Response, StatusCode, Uri};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

pub(super) async fn health(
    axum::extract::State(shared): State,
    method: Method,
    uri: Uri,
) -> Response<Body> {
    if let Some(refused) = refused_unless_get(&method) {
        return refused;
    }
    let serializable = query(&uri, "serializable").next() == Some("true");
    let excluded: BTreeSet<String> = query(&uri, "exclude").map(str::to_owned).collect();
    let plain = "text/plain; charset=utf-8";
    match shared.door.overall(serializable, &excluded).await {
        Ok(()) => {
            shared.health.success.fetch_add(1, Ordering::Relaxed);
            text::answer(
                StatusCode::OK,
                plain,
                "{\"health\":\"true\",\"reason\":\"\"}".to_owned(),
            )
        }
        Err(reason) => {
            shared.health.failure.fetch_add(1, Ordering::Relaxed);
            let reason = serde_json::Value::String(reason);
            let body = format!("{{\"health\":\"false\",\"reason\":{reason}}}");
            text::error(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
    }
}

pub(super) async fn livez(state: State, method: Method, uri: Uri) -> Response<Body> {
    all(&state.0, Check::LIVE, &method, &uri).await
}

pub(super) async fn readyz(state: State, method: Method, uri: Uri) -> Response<Body> {
    all(&state.0, Check::READY, &method, &uri).await
}

pub(super) async fn livez_one(
    state: State,
    name: Path<String>,
    method: Method,
    uri: Uri,
) -> Response<Body> {
    one(&state.0, Check::LIVE, &name, &method, &uri).await
}

pub(super) async fn readyz_one(
    state: State,
    name: Path<String>,
    method: Method,
    uri: Uri,
) -> Response<Body> {
    one(&state.0, Check::READY, &name, &method, &uri).await
}

async fn all(shared: &Shared, checks: &[Check], method: &Method, uri: &Uri) -> Response<Body> {
    let excluded: Vec<&str> = query(uri, "exclude").collect();
    let checks: Vec<Check> = checks
        .iter()
        .copied()
        .filter(|check| !excluded.contains(&check.name()))
        .collect();
    run(shared, &checks, method, uri).await
}

async fn one(
    shared: &Shared,
    checks: &[Check],
    name: &str,
    method: &Method,
    uri: &Uri,
) -> Response<Body> {
    match checks.iter().find(|check| check.name() == name) {
        Some(check) => run(shared, &[*check], method, uri).await,
        None => text::not_found().await,
    }
}

async fn run(shared: &Shared, checks: &[Check], method: &Method, uri: &Uri) -> Response<Body> {
    if let Some(refused) = refused_unless_get(method) {
        return refused;
    }
    let (mut lines, mut failed) = (String::new(), false);
    for check in checks {
        match shared.door.check(*check).await {
            Ok(()) => lines += &format!("[+]{} ok\n", check.name()),
            Err(reason) => {
                failed = true;
                lines += &format!("[-]{} failed: {reason}\n", check.name());
            }
        }
    }
    if failed {
        return text::error(StatusCode::SERVICE_UNAVAILABLE, &lines);
    }
    let verbose = query(uri, "verbose").next().is_some();
    let body = if verbose {
        format!("{lines}ok")
    } else {
        "ok".to_owned()
    };
    text::error(StatusCode::OK, &body)
}
