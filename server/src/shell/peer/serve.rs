//! Room `server/shell`: the peer listeners: sockets, connections, and the split between peer streams and the
//! caller's HTTP routes.

use super::dial::FRAME_BYTES_MAX;
use super::hello::{Hello, PATH};
use super::{Arrival, Opening, PeerLimits, Shared};
use crate::shell::flags::url::{FlagUrl, Scheme};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener, String),
    Unix(UnixListener, SocketFile),
}

enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A unix socket's file, removed with it.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    /// Binds `url`. A unix socket left by an earlier process is replaced.
    pub(super) async fn bind(url: &FlagUrl) -> io::Result<Socket> {
        if url.scheme == Scheme::Unix {
            let path = url.socket_path();
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&path)?;
            return Ok(Socket::Unix(listener, SocketFile(path)));
        }
        let host = match url.host.as_str() {
            "" => "0.0.0.0",
            host => host,
        };
        let listener = TcpListener::bind((host, url.port)).await?;
        let port = listener.local_addr()?.port();
        let shown = match host.contains(':') {
            true => format!("http://[{host}]:{port}"),
            false => format!("http://{host}:{port}"),
        };
        Ok(Socket::Tcp(listener, shown))
    }

    async fn accept(&self) -> io::Result<Connection> {
        match self {
            Socket::Tcp(listener, _) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream))
            }
            Socket::Unix(listener, _) => Ok(Connection::Unix(listener.accept().await?.0)),
        }
    }

    fn url(&self) -> String {
        match self {
            Socket::Tcp(_, url) => url.clone(),
            Socket::Unix(_, file) => format!("unix://{}", file.0.display()),
        }
    }
}

/// One listening socket and the task that serves it.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) url: String,
    task: JoinHandle<()>,
}

impl Listening {
    pub(super) fn start(
        socket: Socket,
        shared: &Arc<Shared>,
        router: axum::Router,
        closing: watch::Receiver<bool>,
    ) -> Listening {
        let url = socket.url();
        let site = Site {
            shared: shared.clone(),
            router,
            closing,
        };
        let task = tokio::spawn(site.listen(socket));
        Listening { url, task }
    }

    /// Waits until the socket is closed and its connections are gone.
    pub(super) async fn ended(self) {
        let _ = self.task.await;
    }
}

/// What every connection of a listener needs.
#[derive(Clone)]
struct Site {
    shared: Arc<Shared>,
    router: axum::Router,
    closing: watch::Receiver<bool>,
}

impl Site {
    async fn listen(self, socket: Socket) {
        let mut connections = JoinSet::new();
        let mut closing = self.closing.clone();
        loop {
            tokio::select! {
                biased;
                _ = closed(&mut closing) => break,
                _ = connections.join_next(), if !connections.is_empty() => {}
                accepted = socket.accept() => match accepted {
                    Ok(Connection::Tcp(stream)) => {
                        connections.spawn(self.clone().serve(stream));
                    }
                    Ok(Connection::Unix(stream)) => {
                        connections.spawn(self.clone().serve(stream));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a peer listener could not accept");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(socket);
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.shared.limits.close_grace, all).await;
        connections.shutdown().await;
    }

    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = settings(&self.shared.limits);
        let mut closing = self.closing.clone();
        let service = hyper::service::service_fn(move |request| {
            let site = self.clone();
            async move { Ok::<_, Infallible>(site.answer(request).await) }
        });
        let connection = settings.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = closed(&mut closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection from a peer ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() == PATH {
            return self.open(request);
        }
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Opens a peer stream, or says why not.
    fn open(&self, request: Request<Incoming>) -> Response<Body> {
        let hello = match Hello::read(request.headers()) {
            Ok(hello) => hello,
            Err(reason) => return refuse(StatusCode::BAD_REQUEST, reason),
        };
        let own = self.shared.identity();
        if let Err(reason) = hello.check(&own) {
            tracing::warn!(%reason, "a peer's stream was refused");
            return refuse(StatusCode::PRECONDITION_FAILED, reason);
        }
        if request.version() != http::Version::HTTP_2 {
            let reason = "peer streams need HTTP/2".to_owned();
            return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, reason);
        }
        let mut answer = Response::new(Body::empty());
        Hello::own(hello.kind, own).write(answer.headers_mut());
        let (opening, body) = Opening::new(&self.shared.limits);
        let stream = opening.join(request.into_body());
        let Some(queue) = self.shared.arrivals.lock().clone() else {
            let reason = "the member is shutting down".to_owned();
            return refuse(StatusCode::SERVICE_UNAVAILABLE, reason);
        };
        if queue.try_send(Arrival { hello, stream }).is_err() {
            let reason = "the member takes no further peer streams at the moment".to_owned();
            return refuse(StatusCode::SERVICE_UNAVAILABLE, reason);
        }
        *answer.body_mut() = Body::new(body);
        answer
    }
}

/// Completes once the listener is told to close, or was dropped.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closed| *closed).await;
}

fn refuse(status: StatusCode, reason: String) -> Response<Body> {
    let mut response = Response::new(Body::from(reason));
    *response.status_mut() = status;
    response
}

fn settings(limits: &PeerLimits) -> auto::Builder<TokioExecutor> {
    let mut settings = auto::Builder::new(TokioExecutor::new());
    settings.http1().timer(TokioTimer::new());
    settings
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .initial_stream_window_size(limits.window_bytes)
        .initial_connection_window_size(limits.window_bytes)
        .max_frame_size(FRAME_BYTES_MAX);
    settings
}
