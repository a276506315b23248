//! Room `server/shell`: the first look at a request: gRPC goes to the service its path names, all else to
//! HTTP. Also the last look at a gRPC answer, where tonic's own words become those of etcd's gRPC library.

use super::grpc::Rpc;
use super::grpc::refusals::{Place, too_large, unreadable};
use super::http::Http;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use tenon_proto::code::Code;
use tonic::body::Body;

/// What one listener serves. Cloning is cheap.
#[derive(Clone)]
pub struct Front {
    /// gRPC services; none on listeners without.
    pub rpc: Option<Rpc>,
    /// HTTP endpoints.
    pub http: Http,
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        match &self.rpc {
            Some(_) if is_grpc(&request) && request.method() != Method::POST => {
                let refused = not_post(request.method());
                Box::pin(async move { Ok(refused) })
            }
            Some(rpc) if is_grpc(&request) => {
                if let Some(refused) = late_at_once(&request, rpc) {
                    return Box::pin(async move { Ok(refused) });
                }
                let (rpc, path) = (rpc.clone(), request.uri().path_and_query().cloned());
                Box::pin(async move {
                    let response = rpc.call(request).await;
                    let path = path.as_ref().map_or("", PathAndQuery::path);
                    Ok(correct(path, response, &rpc))
                })
            }
            _ => {
                let http = self.http.clone();
                let request = request.map(axum::body::Body::new);
                Box::pin(async move { Ok(http.call(request).await.map(Body::new)) })
            }
        }
    }
}

/// gRPC's content type, over HTTP/2: what a web page can make a browser send over HTTP/1 runs nothing.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    let kind = kind.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')));
    kind && request.version() == Version::HTTP_2
}

/// The answer of etcd's gRPC library.
fn not_post(method: &Method) -> Response<Body> {
    let text = format!("Received a HEADERS frame with :method \"{method}\" which should be POST");
    refusal(StatusCode::METHOD_NOT_ALLOWED, "13", &text)
}

/// An answer without a message, in the words of etcd's gRPC library.
fn refusal(http: StatusCode, code: &'static str, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert("grpc-status", HeaderValue::from_static(code));
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert("grpc-message", value);
    }
    response
}

/// The answer to a call whose time is over as it comes, or whose time cannot be read. Any other time the
/// client minds itself.
fn late_at_once<B>(request: &Request<B>, rpc: &Rpc) -> Option<Response<Body>> {
    let timeout = request.headers().get("grpc-timeout")?;
    match read_timeout(&String::from_utf8_lossy(timeout.as_bytes())) {
        Ok(count) if count > 0 => None,
        Ok(_) => {
            rpc.refused(request.uri().path(), Code::DeadlineExceeded);
            let text = "context deadline exceeded";
            Some(refusal(StatusCode::OK, "4", text))
        }
        Err(why) => {
            let text = format!("malformed grpc-timeout: {why}");
            Some(refusal(StatusCode::BAD_REQUEST, "13", &text))
        }
    }
}

/// The number of units in a `grpc-timeout`; the errors are those of etcd's gRPC library.
fn read_timeout(text: &str) -> Result<i64, String> {
    if text.len() < 2 {
        return Err(format!("transport: timeout string is too short: {text:?}"));
    }
    if text.len() > 9 {
        return Err(format!("transport: timeout string is too long: {text:?}"));
    }
    let Some(count) = text.strip_suffix(['H', 'M', 'S', 'm', 'u', 'n']) else {
        return Err(format!(
            "transport: timeout unit is not recognized: {text:?}"
        ));
    };
    let bad = |_| format!("strconv.ParseInt: parsing {count:?}: invalid syntax");
    count.parse().map_err(bad)
}

const UNIMPLEMENTED: &[u8] = b"12";
const OUT_OF_RANGE: &[u8] = b"11";
const INTERNAL: &[u8] = b"13";

/// Errors without any answer stand in the headers; only those may be tonic's own.
fn correct(path: &str, mut response: Response<Body>, rpc: &Rpc) -> Response<Body> {
    let Some(status) = response.headers().get("grpc-status") else {
        return response;
    };
    let message = response.headers().get("grpc-message").map(plain);
    let (code, text) = match (status.as_bytes(), message) {
        (UNIMPLEMENTED, None) => (Code::Unimplemented, unknown_method(path)),
        (OUT_OF_RANGE, Some(message)) => match too_large(&message) {
            Some((size, max)) => {
                let error = tenon_proto::error::Error::MessageTooLarge { size, max };
                (error.code(), error.message())
            }
            None => return response,
        },
        (INTERNAL, Some(message)) => match unreadable(&message, Place::Unary) {
            Some(text) => (Code::Internal, text),
            None => return response,
        },
        _ => return response,
    };
    if code != Code::Unimplemented {
        rpc.refused(path, code);
    }
    let number = HeaderValue::from(code as u8 as u16);
    response.headers_mut().insert("grpc-status", number);
    // Spaces are allowed in the header, and the texts hold nothing else that needs escaping.
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert("grpc-message", value);
    }
    response
}

fn unknown_method(path: &str) -> String {
    let (service, method) = path
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or((path, ""));
    if Rpc::serves(service) {
        format!("unknown method {method} for service {service}")
    } else {
        format!("unknown service {service}")
    }
}

/// A header's text, which tonic percent-encodes.
fn plain(message: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(message.as_bytes());
    text.replace("%20", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http2_with_grpcs_own_content_type_is_grpc() {
        for (version, kind, grpc) in [
            (Version::HTTP_2, "application/grpc", true),
            (Version::HTTP_2, "application/grpc+proto", true),
            (Version::HTTP_2, "application/grpc;x", true),
            (Version::HTTP_2, "application/grpc-web", false),
            (Version::HTTP_2, "application/json", false),
            (Version::HTTP_11, "application/grpc", false),
        ] {
            let request = Request::builder().version(version);
            let request = request.header("content-type", kind).body(()).unwrap();
            assert_eq!(is_grpc(&request), grpc, "{version:?} {kind}");
        }
        let refused = not_post(&Method::GET);
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(refused.headers()["grpc-status"], "13");
    }

    #[test]
    fn times_are_read_as_gos_library_reads_them() {
        for (text, count) in [("1S", 1), ("0n", 0), ("99999999H", 99_999_999), ("-1m", -1)] {
            assert_eq!(read_timeout(text), Ok(count));
        }
        for (text, why) in [
            ("", "transport: timeout string is too short: \"\""),
            ("5", "transport: timeout string is too short: \"5\""),
            (
                "123456789S",
                "transport: timeout string is too long: \"123456789S\"",
            ),
            ("5x", "transport: timeout unit is not recognized: \"5x\""),
            ("aS", "strconv.ParseInt: parsing \"a\": invalid syntax"),
        ] {
            assert_eq!(read_timeout(text), Err(why.to_owned()));
        }
    }

    #[test]
    fn unknown_paths_are_named_as_gos_library_does() {
        assert_eq!(
            unknown_method("/etcdserverpb.KV/Foo"),
            "unknown method Foo for service etcdserverpb.KV"
        );
        assert_eq!(unknown_method("/a.B/C"), "unknown service a.B");
    }
}
