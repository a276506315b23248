//! Room `server/shell`: plain answers, byte for byte as etcd's.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};

/// An answer of this type.
pub(super) fn answer(status: StatusCode, kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A text with the header that forbids guessing its type; a newline is added.
pub(super) fn error(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = answer(status, "text/plain; charset=utf-8", format!("{body}\n"));
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The answer for unknown paths.
pub(super) async fn not_found() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "404 page not found")
}

/// The answer to a `Host` that is not allowed.
pub(super) fn misdirected(host: Option<&HeaderValue>) -> Response<Body> {
    let host = host
        .and_then(|h| h.to_str().ok())
        .map_or("", super::without_port);
    let body = format!(
        "The request's Host header names a host that this server does not serve.\n\n\
         Add it to the list, for example: --host-whitelist \"{host}\". The check keeps web pages \
         from reaching this server by DNS rebinding."
    );
    error(StatusCode::MISDIRECTED_REQUEST, &body)
}
