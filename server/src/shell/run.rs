//! Room `server/shell`: the process: from the command line to a member that serves, and back to an exit code.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell reads the config file and the environment"
)]

use super::flags::parse::EnvWarning;
use super::flags::url::{FlagUrl, Scheme};
use super::flags::{self, Config, Exit, Persona, config::LogConfig, usage};
use super::front::Front;
use super::grpc::{Rpc, gate::Gate};
use super::http::{HealthCounts, Http, Shared, Surface};
use super::listen::{Listener, ServeOptions, connections};
use super::metrics::grpc::GrpcMetrics;
use super::metrics::process::descriptors_max;
use super::peer::{PeerLimits, PeerListener, PeerNet};
use super::{log, notify, running};
use crate::host::door::{Backend, Door};
use crate::member::Member;
use crate::member::data_dir::{StartError, is_fresh};
use axum::response::IntoResponse;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tenon_env::Net;
use tenon_env::sync::watch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How long calls under way may take to finish once the process was told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until told to stop. `args` are those after the program's name and verb.
pub fn main(persona: Persona, args: &[String]) -> ExitCode {
    let vars: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    let read = |path: &str| std::fs::read_to_string(path).map_err(|e| super::listen::os(&e));
    let loaded = match flags::load(args, &vars, persona, read) {
        Ok(loaded) => loaded,
        Err(exit) => return refuse(persona, args, &exit),
    };
    let config = loaded.config;
    if let Err(error) = log::start(&config.log) {
        let text = format!("open sink: {}", super::listen::os(&error));
        return refuse(persona, args, &Exit::Rejected(text));
    }
    for EnvWarning::Unknown(name) in &loaded.warnings {
        tracing::warn!(
            environment_variable = name,
            "unrecognized environment variable"
        );
    }
    if let Some(path) = &loaded.file {
        tracing::info!(
            path,
            "loaded the config file; other flags and variables are ignored"
        );
    }
    tracing::info!(args = ?args, "running");
    // The allocator asks for huge pages; an idle member would then hold 2 MiB where it touched a few KiB.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fatal(&format!("cannot start the runtime: {error}")),
    };
    let ended = runtime.block_on(serve(config, args));
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => fatal(&reason),
    }
}

fn fatal(reason: &str) -> ExitCode {
    tracing::error!(fatal = true, error = reason, "the server ended");
    ExitCode::FAILURE
}

/// Ends before serving, with etcd's exit codes and outputs.
fn refuse(persona: Persona, args: &[String], exit: &Exit) -> ExitCode {
    match exit {
        Exit::Help => print!("{}", usage::help(persona)),
        Exit::Version => print!("{}", usage::version(persona)),
        Exit::Usage(text) => eprint!("{text}\n{}", usage::usage(persona)),
        Exit::Panic(text) => eprintln!("panic: {text}"),
        Exit::Rejected(text) => {
            let plain = LogConfig {
                level: "info".into(),
                json: true,
                outputs: vec!["stderr".into()],
            };
            let _ = log::start(&plain);
            tracing::info!(args = ?args, "running");
            tracing::warn!(error = text, "failed to verify flags");
        }
    }
    ExitCode::from(exit.code())
}

/// The sockets of a member, bound before it starts, so that a port in use is noticed first.
struct Listeners {
    peer: PeerListener,
    net: Arc<dyn Net>,
    peer_http: Arc<OnceLock<Http>>,
    client: Vec<Listener>,
    http: Vec<Listener>,
    metrics: Vec<Listener>,
    options: ServeOptions,
}

impl Listeners {
    async fn bind(config: &Config) -> Result<Listeners, String> {
        let options = ServeOptions {
            max_concurrent_streams: config.max_concurrent_streams,
            keepalive: config.keepalive,
            reuse_port: config.reuse_port,
            reuse_address: config.reuse_address,
            connections: connections(descriptors_max())?,
        };
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
        Ok(Listeners {
            peer,
            net,
            peer_http,
            client: bind_all(&config.listen_client, &options).await?,
            http: bind_all(&config.listen_client_http, &options).await?,
            metrics: bind_all(&config.listen_metrics, &options).await?,
            options,
        })
    }
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

async fn serve(mut config: Config, args: &[String]) -> Result<(), String> {
    let signals = Signals::new()?;
    let listeners = Listeners::bind(&config).await?;
    let runtime = tokio::runtime::Handle::current();
    let env = tenon_env::real::env(runtime, listeners.net.clone());
    if is_fresh(&env, &config.member) {
        config.member.cluster.running = running::ask(&config.member).await;
    }
    let member = match Member::start(&env, config.member.clone()).await {
        Ok(member) => member,
        Err(StartError::Config(text)) => {
            tracing::error!(error = text, "bootstrap failed");
            return Err(text);
        }
        Err(error) => return Err(error.to_string()),
    };
    let door = Door::new(&env, Backend::Member(member.services_shared()));
    let serving = Serving::start(&config, args, door, listeners);
    let ended = signals.wait_while(run(&serving, &member)).await;
    let result = match ended {
        Ended::Signal(name) => {
            tracing::info!(signal = name, "received signal; shutting down");
            member.hand_over().await;
            Ok(())
        }
        Ended::Failed(reason) => Err(reason),
        Ended::Removed(reason) => {
            tracing::error!(
                reason,
                "this member has been removed from the cluster for good; its data directory must be \
                 removed"
            );
            Ok(())
        }
    };
    serving.drain(&member).await;
    member.shutdown().await;
    serving.close_peers().await;
    tracing::info!("closed the server");
    result
}

/// Serves clients once recovered, tells the service manager once ready, and ends when the member fails or is
/// removed from its cluster.
async fn run(serving: &Serving, member: &Member) -> Ended {
    let ready = async {
        member.wait_recovered().await;
        if let Err(reason) = member.check_initially().await {
            return Ended::Failed(reason);
        }
        serving.open_clients();
        member.wait_ready().await;
        tracing::info!("ready to serve client requests");
        if let Err(error) = notify::send(std::env::var_os("NOTIFY_SOCKET").as_deref(), "READY=1\n")
        {
            tracing::warn!(%error, "failed to notify the service manager");
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        reason = member.failed() => Ended::Failed(reason),
        reason = member.removed() => Ended::Removed(reason),
        ended = ready => ended,
    }
}

/// The listeners being served.
struct Serving {
    stop: watch::Sender<bool>,
    clients: watch::Sender<bool>,
    alive: Mutex<Option<mpsc::Receiver<()>>>,
    peer: Mutex<Option<PeerListener>>,
}

impl Serving {
    /// Serves peers and metrics at once, clients when told so.
    fn start(config: &Config, args: &[String], door: Door, listeners: Listeners) -> Serving {
        let grpc = Arc::new(GrpcMetrics::new(config.extensive_metrics));
        let shared = Arc::new(Shared {
            door: door.clone(),
            grpc: grpc.clone(),
            health: HealthCounts::default(),
            command_line: args.to_vec(),
            cors: config.cors.clone(),
            hosts: config.host_whitelist.clone(),
        });
        let rpc = Rpc::new(
            Gate::new(door, grpc, config.warn_unary),
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
            peer: Mutex::new(Some(listeners.peer)),
        }
    }

    fn open_clients(&self) {
        self.clients.send_replace(true);
    }

    /// Closes the peer listeners, after raft's streams ended.
    async fn close_peers(&self) {
        let peer = self.peer.lock().take();
        if let Some(peer) = peer {
            peer.close().await;
        }
    }

    /// Stops accepting, ends streams, and waits for calls under way, for a bounded time.
    async fn drain(&self, member: &Member) {
        self.stop.send_replace(true);
        member.begin_shutdown();
        let alive = self.alive.lock().take();
        if let Some(mut alive) = alive {
            let _ = tokio::time::timeout(DRAIN, alive.recv()).await;
        }
    }
}

enum Ended {
    Signal(&'static str),
    Failed(String),
    Removed(String),
}

/// The signals that stop the process.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals, String> {
        let listen = |kind| signal(kind).map_err(|e| format!("cannot listen for signals: {e}"));
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn wait_while(mut self, running: impl Future<Output = Ended>) -> Ended {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Ended::Signal("terminated"),
            _ = self.interrupt.recv() => Ended::Signal("interrupt"),
            ended = running => ended,
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
