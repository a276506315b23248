//! Room `server/shell`: listeners: TCP and unix sockets, or connections that somebody else accepts; one connection
//! at a time, HTTP/1 and HTTP/2 told apart by their first bytes.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell serves connections on tokio"
)]

use super::coalesce::Coalesce;
use super::flags::config::Keepalive;
use super::flags::url::{FlagUrl, Scheme};
use super::front::Front;
use futures_util::stream::{BoxStream, StreamExt};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_env::sync::watch;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Flow-control window of a stream: a request at its limit fits twice.
const STREAM_WINDOW: u32 = 4 << 20;
/// Flow-control window of a connection.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Pending connections the system keeps.
const BACKLOG: i32 = 4096;

/// How connections are served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Streams of one connection at most.
    pub max_concurrent_streams: u32,
    /// Pings to idle clients.
    pub keepalive: Keepalive,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// Connections of all listeners together; more wait in the system's queue.
    pub connections: Arc<Places>,
}

/// Places for connections.
#[derive(Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    /// Whether the log says already that there was none.
    told: AtomicBool,
}

/// File descriptors that clients leave to the member: its files, its peers. As many as etcd keeps.
const RESERVED_DESCRIPTORS: usize = 150;

/// How many connections clients may have, by the process's limit of open files. Without a bound they could
/// take the descriptor that the log needs for its next segment, and that ends the member.
///
/// # Errors
/// The limit leaves none.
pub fn connections(descriptors: Option<usize>) -> Result<Arc<Places>, String> {
    let limit = descriptors.unwrap_or(Semaphore::MAX_PERMITS);
    match limit.checked_sub(RESERVED_DESCRIPTORS) {
        None | Some(0) => Err(format!(
            "the limit of open files, {limit}, is too low: {RESERVED_DESCRIPTORS} are kept for the member \
             itself; set it higher (ulimit -n, LimitNOFILE=)"
        )),
        Some(most) => Ok(Arc::new(Places {
            free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            told: AtomicBool::new(false),
        })),
    }
}

/// A connection that somebody else accepted.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Connection for S {}

/// Connections that somebody else accepts, in place of a socket of ours. After an error it is asked again, after its
/// end no more; connections already taken are served on.
pub type Incoming = BoxStream<'static, io::Result<Box<dyn Connection>>>;

/// A bound socket, or what stands in for one.
pub struct Listener {
    socket: Socket,
    /// What it is bound to, for the log.
    pub address: String,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
    Given(Incoming),
}

impl Listener {
    /// Takes the connections that `incoming` gives.
    pub fn given(incoming: Incoming) -> Listener {
        Listener {
            socket: Socket::Given(incoming),
            address: "given".to_owned(),
        }
    }

    /// Binds a URL. The error is etcd's text.
    pub async fn bind(url: &FlagUrl, options: &ServeOptions) -> Result<Listener, String> {
        match url.scheme {
            Scheme::Unix | Scheme::Unixs => {
                let path = url.socket_path();
                let fail =
                    |e: io::Error| format!("listen unix {}: bind: {}", path.display(), os(&e));
                match std::fs::remove_file(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
                    _ => {}
                }
                let socket = UnixListener::bind(&path).map_err(fail)?;
                let address = path.display().to_string();
                Ok(Listener {
                    socket: Socket::Unix(socket, path),
                    address,
                })
            }
            Scheme::Http | Scheme::Https => {
                let named = format!("{}:{}", url.host, url.port);
                let fail = |e: io::Error| format!("listen tcp {named}: bind: {}", os(&e));
                let address = resolve(&url.host, url.port).await.map_err(fail)?;
                let fail = |e: io::Error| format!("listen tcp {address}: bind: {}", os(&e));
                let socket = bind_tcp(address, options).map_err(fail)?;
                let address = socket.local_addr().unwrap_or(address).to_string();
                Ok(Listener {
                    socket: Socket::Tcp(socket),
                    address,
                })
            }
        }
    }

    /// Serves connections until `stop` turns true; each is then told to finish. Every connection holds a
    /// clone of `alive`, so that its receiver ends when the last is closed.
    pub async fn serve(
        mut self,
        front: Front,
        options: ServeOptions,
        mut stop: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) {
        let builder = builder(&options);
        loop {
            let stopped = stop.clone();
            let accepted = async {
                let permit = options.connections.take().await;
                (self.accept().await, permit)
            };
            tokio::select! {
                biased;
                () = turned_on(&mut stop) => break,
                (accepted, permit) = accepted => match accepted {
                    Ok(Stream::Tcp(stream)) => {
                        let conn = connection(builder.clone(), stream, front.clone(), stopped);
                        spawn(conn, (alive.clone(), permit));
                    }
                    Ok(Stream::Unix(stream)) => {
                        let conn = connection(builder.clone(), stream, front.clone(), stopped);
                        spawn(conn, (alive.clone(), permit));
                    }
                    Ok(Stream::Given(stream)) => {
                        let conn = connection(builder.clone(), stream, front.clone(), stopped);
                        spawn(conn, (alive.clone(), permit));
                    }
                    // Out of descriptors, or the client is gone already: neither ends the listener.
                    Err(error) => {
                        tracing::warn!(%error, address = %self.address, "cannot accept");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        }
        if let Socket::Unix(_, path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }

    async fn accept(&mut self) -> io::Result<Stream> {
        match &mut self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Socket::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
            Socket::Given(incoming) => match incoming.next().await {
                Some(stream) => stream.map(Stream::Given),
                None => std::future::pending().await,
            },
        }
    }
}

/// Completes once the switch is on, or nobody is left to turn it on. Its guard must not live on in a
/// `select!`, whose other arms await.
async fn turned_on(switch: &mut watch::Receiver<bool>) {
    let _ = switch.wait_for(|on| *on).await;
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
    Given(Box<dyn Connection>),
}

impl Places {
    /// A place for one more connection, once there is one.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if self.free.available_permits() == 0 && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!("as many connections as the limit of open files allows; more must wait");
        }
        // Never closed.
        self.free.clone().acquire_owned().await.ok()
    }
}

/// Serves a connection; `held` is let go at its end.
fn spawn(
    connection: impl Future<Output = ()> + Send + 'static,
    held: (mpsc::Sender<()>, Option<OwnedSemaphorePermit>),
) {
    tokio::spawn(async move {
        connection.await;
        drop(held);
    });
}

fn builder(options: &ServeOptions) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).half_close(true);
    let keepalive = options.keepalive;
    let interval = Some(keepalive.interval).filter(|i| !i.is_zero());
    builder
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(options.max_concurrent_streams)
        .max_send_buf_size(1 << 20)
        .max_pending_accept_reset_streams(4096)
        .max_local_error_reset_streams(None)
        .keep_alive_interval(interval);
    if !keepalive.timeout.is_zero() {
        builder.http2().keep_alive_timeout(keepalive.timeout);
    }
    builder
}

async fn connection<S>(
    builder: auto::Builder<TokioExecutor>,
    stream: S,
    front: Front,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let serving = builder.serve_connection(TokioIo::new(Coalesce::new(stream)), front);
    tokio::pin!(serving);
    let ended = tokio::select! {
        biased;
        () = turned_on(&mut stop) => None,
        ended = serving.as_mut() => Some(ended),
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "connection ended");
    }
}

/// The address of a listen URL; a name with several prefers IPv4, as etcd does.
async fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut all: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    all.sort_by_key(SocketAddr::is_ipv6);
    all.into_iter()
        .next()
        .ok_or_else(|| io::Error::other("no such host"))
}

fn bind_tcp(address: SocketAddr, options: &ServeOptions) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Go's listeners always have SO_REUSEADDR, or a restart would fail for minutes.
    let _ = options.reuse_address;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The system's text without Rust's number, in lower case as Go prints it.
pub(super) fn os(error: &io::Error) -> String {
    let text = error.to_string();
    let bare = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = bare.chars();
    chars.next().map_or(String::new(), |c| {
        c.to_lowercase().collect::<String>() + chars.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ServeOptions {
        ServeOptions {
            max_concurrent_streams: u32::MAX,
            keepalive: Keepalive {
                client_min: Duration::ZERO,
                interval: Duration::ZERO,
                timeout: Duration::ZERO,
            },
            reuse_port: false,
            reuse_address: false,
            connections: connections(None).unwrap(),
        }
    }

    #[test]
    fn clients_leave_descriptors_to_the_member() {
        let most = |limit| connections(Some(limit)).map(|all| all.free.available_permits());
        assert_eq!(most(1024), Ok(874));
        assert_eq!(most(151), Ok(1));
        for low in [0, 80, 150] {
            assert!(most(low).unwrap_err().contains("is too low"));
        }
        assert!(most(usize::MAX).is_ok());
    }

    #[tokio::test]
    async fn a_port_in_use_is_refused_in_etcds_words() {
        let free = FlagUrl::read("http://127.0.0.1:0").unwrap();
        let first = Listener::bind(&free, &options()).await.unwrap();
        let taken = FlagUrl::read(&format!("http://{}", first.address)).unwrap();
        let second = Listener::bind(&taken, &options()).await;
        let error = second.err().expect("the port is taken");
        assert_eq!(
            error,
            format!("listen tcp {}: bind: address already in use", first.address)
        );
    }

    #[tokio::test]
    async fn a_stale_unix_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("unix://{}/s", dir.path().display());
        let url = FlagUrl::read(&url).unwrap();
        drop(Listener::bind(&url, &options()).await.unwrap());
        assert!(
            dir.path().join("s").exists(),
            "dropping a listener leaves its file"
        );
        Listener::bind(&url, &options()).await.unwrap();
    }
}
