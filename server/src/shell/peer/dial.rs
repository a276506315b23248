//! Room `server/shell`: opening a stream to another member. Tries URLs in order, once each; never retries.

use super::hello::{Hello, PATH};
use super::{Opening, PeerLimits, PeerStream, Shared, frame, naming, read_url};
use crate::shell::flags::url::Scheme;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::time::Duration;
use tenon_env::StreamKind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest explanation read from a peer that refuses.
const REFUSAL_BYTES_MAX: usize = 4 << 10;

/// Largest DATA frame accepted. Large frames make large messages cheap; the connection carries one stream, so
/// they delay nothing else.
pub(super) const FRAME_BYTES_MAX: u32 = 1 << 20;

/// A stream to the first URL that answers.
///
/// # Errors
/// The kind of the last failure, the text of all: each names its URL.
pub(super) async fn first(
    shared: &Shared,
    urls: &[String],
    kind: StreamKind,
) -> io::Result<PeerStream> {
    let mut failures: Vec<io::Error> = Vec::new();
    for url in urls {
        match open(shared, url, kind).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failures.push(naming(url, &error)),
        }
    }
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    match failures.last() {
        Some(last) => Err(io::Error::new(last.kind(), texts.join("; "))),
        None => {
            let text = "the member has no peer URL";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

async fn open(shared: &Shared, url: &str, kind: StreamKind) -> io::Result<PeerStream> {
    let address = read_url(url)?;
    let limit = shared.limits.connect_timeout;
    if address.scheme == Scheme::Unix {
        let socket = within(
            limit,
            "connecting",
            UnixStream::connect(address.socket_path()),
        );
        greet(shared, socket.await?, "unix", kind).await
    } else {
        let target = (address.host.as_str(), address.port);
        let socket = within(limit, "connecting", TcpStream::connect(target)).await?;
        socket.set_nodelay(true)?;
        let authority = match address.host.contains(':') {
            true => format!("[{}]:{}", address.host, address.port),
            false => format!("{}:{}", address.host, address.port),
        };
        greet(shared, socket, &authority, kind).await
    }
}

/// HTTP/2 on a fresh connection, the request, and the other side's hello.
async fn greet<S>(
    shared: &Shared,
    socket: S,
    authority: &str,
    kind: StreamKind,
) -> io::Result<PeerStream>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &shared.limits;
    let (opening, body) = Opening::new(limits);
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    let uri = format!("http://{authority}{PATH}");
    *request.uri_mut() = uri.parse().map_err(io::Error::other)?;
    Hello::own(kind, shared.identity()).write(request.headers_mut());

    let answer = async {
        let (mut requests, connection) = settings(limits)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(|e| broken(&e))?;
        // Ends by itself: when the stream has ended and `requests` is dropped, or when pings go unanswered.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(
                    error = frame::causes(&error),
                    "a connection to a peer ended"
                );
            }
        });
        let answer = requests.send_request(request).await;
        answer.map_err(|e| broken(&e))
    };
    let answer = within(limits.hello_timeout, "greeting", answer).await?;
    if answer.status() != StatusCode::OK {
        return Err(refusal(limits.hello_timeout, answer).await);
    }
    let accepted = Hello::read(answer.headers()).and_then(|hello| hello.check(&shared.identity()));
    accepted.map_err(|reason| io::Error::new(io::ErrorKind::PermissionDenied, reason))?;
    Ok(opening.join(answer.into_body()))
}

fn settings(limits: &PeerLimits) -> http2::Builder<TokioExecutor> {
    let mut settings = http2::Builder::new(TokioExecutor::new());
    settings
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(limits.window_bytes)
        .initial_connection_window_size(limits.window_bytes)
        .max_frame_size(FRAME_BYTES_MAX);
    settings
}

/// What a peer says that did not open the stream.
async fn refusal(limit: Duration, answer: http::Response<Incoming>) -> io::Error {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect();
    let text = match tokio::time::timeout(limit, body).await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        _ => String::new(),
    };
    match status {
        StatusCode::NOT_FOUND => io::Error::new(
            io::ErrorKind::Unsupported,
            "what listens there is no Tenon member (it answered 404 to the peer protocol)",
        ),
        StatusCode::SERVICE_UNAVAILABLE => io::Error::new(io::ErrorKind::ConnectionRefused, text),
        _ => {
            let text = format!("the other member refused ({status}): {text}");
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        }
    }
}

fn broken(error: &hyper::Error) -> io::Error {
    let text = format!("no HTTP/2 with the other side: {}", frame::causes(error));
    io::Error::new(io::ErrorKind::ConnectionReset, text)
}

async fn within<T>(
    limit: Duration,
    doing: &str,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!("no answer while {doing} for {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}
