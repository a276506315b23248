//! Room `server/shell`: the sockets of a host and what is served on them, from binding to draining.

#![allow(
    clippy::disallowed_methods,
    reason = "listeners live in the real world"
)]

use super::flags::Config;
use super::flags::url::{FlagUrl, Scheme};
use super::front::Front;
use super::grpc::{Rpc, gate::Gate};
use super::http::{HealthCounts, Http, Shared, Surface};
use super::listen::{Incoming, Listener, ServeOptions, connections};
use super::metrics::grpc::GrpcMetrics;
use super::metrics::process::descriptors_max;
use super::peer::{PeerLimits, PeerListener, PeerNet};
use crate::host::Host;
use axum::response::IntoResponse;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tenon_env::Net;
use tenon_env::sync::watch;
use tokio::sync::mpsc;

/// How long calls under way may take to finish once the process was told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// The sockets of a member, bound before it starts, so that a port in use is noticed first.
pub(super) struct Listeners {
    peer: Option<PeerListener>,
    peer_http: Arc<OnceLock<Http>>,
    client: Vec<Listener>,
    http: Vec<Listener>,
    metrics: Vec<Listener>,
    options: ServeOptions,
}

impl Listeners {
    /// Also gives the transport to the peers behind their sockets.
    pub(super) async fn bind(config: &Config) -> Result<(Listeners, Arc<dyn Net>), String> {
        let options = options(config)?;
        let peer_http = Arc::new(OnceLock::new());
        let urls: Vec<String> = config
            .listen_peer
            .iter()
            .map(|url| url.text.clone())
            .collect();
        let bound = PeerNet::bind(&urls, peer_router(peer_http.clone()), PeerLimits::default());
        let (net, peer) = bound
            .await
            .map_err(|error| bind_error(&config.listen_peer, &error))?;
        let listeners = Listeners {
            peer: Some(peer),
            peer_http,
            client: bind_all(&config.listen_client, &options).await?,
            http: bind_all(&config.listen_client_http, &options).await?,
            metrics: bind_all(&config.listen_metrics, &options).await?,
            options,
        };
        Ok((listeners, net))
    }

    /// No sockets: clients come from `incoming`.
    pub(super) fn given(config: &Config, incoming: Incoming) -> Result<Listeners, String> {
        Ok(Listeners {
            peer: None,
            peer_http: Arc::default(),
            client: vec![Listener::given(incoming)],
            http: Vec::new(),
            metrics: Vec::new(),
            options: options(config)?,
        })
    }
}

fn options(config: &Config) -> Result<ServeOptions, String> {
    Ok(ServeOptions {
        max_concurrent_streams: config.max_concurrent_streams,
        keepalive: config.keepalive,
        reuse_port: config.reuse_port,
        reuse_address: config.reuse_address,
        connections: connections(descriptors_max())?,
    })
}

/// Answers peers' plain requests once the member is there to be asked.
fn peer_router(http: Arc<OnceLock<Http>>) -> axum::Router {
    axum::Router::new().fallback(move |request: axum::extract::Request| {
        let http = http.get().cloned();
        async move {
            match http {
                Some(http) => http.call(request).await,
                None => axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
            }
        }
    })
}

/// The transport names the URL first; etcd's text names the address.
fn bind_error(urls: &[FlagUrl], error: &std::io::Error) -> String {
    let text = error.to_string();
    let named = urls.iter().find_map(|url| {
        let why = text.strip_prefix(&url.text)?.strip_prefix(": ")?;
        let why = super::listen::os(&std::io::Error::other(why.to_owned()));
        Some(match url.scheme {
            Scheme::Http | Scheme::Https => {
                format!("listen tcp {}:{}: bind: {why}", url.host, url.port)
            }
            Scheme::Unix | Scheme::Unixs => format!("listen unix {}: bind: {why}", url.host),
        })
    });
    named.unwrap_or_else(|| format!("listen {text}"))
}

async fn bind_all(urls: &[FlagUrl], options: &ServeOptions) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::new();
    for url in urls {
        listeners.push(Listener::bind(url, options).await?);
    }
    Ok(listeners)
}

/// The listeners being served.
pub(super) struct Serving {
    stop: watch::Sender<bool>,
    clients: watch::Sender<bool>,
    alive: Mutex<Option<mpsc::Receiver<()>>>,
    peer: Mutex<Option<PeerListener>>,
}

impl Serving {
    /// Serves peers and metrics at once, clients when told so.
    pub(super) fn start(
        config: &Config,
        args: &[String],
        host: &Host,
        listeners: Listeners,
    ) -> Serving {
        let door = host.door().clone();
        let grpc = Arc::new(GrpcMetrics::new(config.extensive_metrics));
        let shared = Arc::new(Shared {
            door: door.clone(),
            grpc: grpc.clone(),
            health: HealthCounts::default(),
            gates: config.gates.clone(),
            command_line: args.to_vec(),
            cors: config.cors.clone(),
            hosts: config.host_whitelist.clone(),
        });
        let rpc = Rpc::new(
            Gate::new(door, grpc, config.warn_unary),
            Some(host.clone()),
            config.member.max_request_bytes,
        );
        let http = |surface| Http::new(shared.clone(), surface);
        let _ = listeners.peer_http.set(http(Surface::Peer));
        let split = !listeners.http.is_empty();
        let client = if split {
            Surface::None
        } else {
            Surface::Client
        };
        let (stop, stopped) = watch::channel(false);
        let (clients, open) = watch::channel(false);
        let (alive_tx, alive) = mpsc::channel(1);
        let groups = [
            (listeners.metrics, None, Surface::Metrics, false),
            (listeners.client, Some(rpc), client, true),
            (listeners.http, None, Surface::Client, true),
        ];
        for (group, rpc, surface, waits) in groups {
            for listener in group {
                let front = Front {
                    rpc: rpc.clone(),
                    http: http(surface),
                };
                let (options, stopped) = (listeners.options.clone(), stopped.clone());
                let (alive, mut open) = (alive_tx.clone(), open.clone());
                tokio::spawn(async move {
                    let mut told = stopped.clone();
                    let opened = tokio::select! {
                        biased;
                        _ = told.wait_for(|stop| *stop) => false,
                        opened = open.wait_for(|open| *open || !waits) => opened.is_ok(),
                    };
                    if !opened {
                        return;
                    }
                    tracing::info!(address = %listener.address, ?surface, "serving");
                    listener.serve(front, options, stopped, alive).await;
                });
            }
        }
        Serving {
            stop,
            clients,
            alive: Mutex::new(Some(alive)),
            peer: Mutex::new(listeners.peer),
        }
    }

    pub(super) fn open_clients(&self) {
        self.clients.send_replace(true);
    }

    /// Closes the peer listeners, after raft's streams ended.
    pub(super) async fn close_peers(&self) {
        let peer = self.peer.lock().take();
        if let Some(peer) = peer {
            peer.close().await;
        }
    }

    /// Stops accepting, ends streams, and waits for calls under way, for a bounded time.
    pub(super) async fn drain(&self, host: &Host) {
        self.stop.send_replace(true);
        host.begin_shutdown();
        let alive = self.alive.lock().take();
        if let Some(mut alive) = alive {
            let _ = tokio::time::timeout(DRAIN, alive.recv()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_listeners_fail_in_etcds_words() {
        let urls = ["http://10.9.9.9:1", "unix:///no/such"].map(|url| FlagUrl::read(url).unwrap());
        let cases = [
            (
                "http://10.9.9.9:1: Cannot assign requested address (os error 99)",
                "listen tcp 10.9.9.9:1: bind: cannot assign requested address",
            ),
            (
                "unix:///no/such: No such file or directory (os error 2)",
                "listen unix /no/such: bind: no such file or directory",
            ),
            ("something else", "listen something else"),
        ];
        for (given, expected) in cases {
            assert_eq!(bind_error(&urls, &std::io::Error::other(given)), expected);
        }
    }
}
