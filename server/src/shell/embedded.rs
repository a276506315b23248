//! Room `server/shell`: a host in another program's process: its sockets, the host, and what leads to serving. The
//! program `tenon` runs on the same [`Embedded`], so that both behave alike. No signals, no logs set up, no exit: those
//! belong to the program around it, and nothing is global, so that several hosts live in one process.
//!
//! ```no_run
//! # async fn example() -> Result<(), String> {
//! use tenon_server::host::{ChangeOptions, Mode};
//! use tenon_server::shell::embedded::{Embedded, Options};
//! let options = Options::from_flags(["--name=a", "--data-dir=/var/lib/app/a"])?;
//! let host = Embedded::open(options).await?;
//! host.initialized().await;
//! let client = host.client();
//! let change = host.change_mode(Mode::Client, ChangeOptions::default()).await;
//! host.shutdown().await;
//! # Ok(()) }
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "listeners and tasks live in the real world"
)]

use super::flags::{self, Config, Persona};
use super::listen::Incoming;
use super::running;
use super::serving::{Listeners, Serving};
use crate::host::local::LocalClient;
use crate::host::{Change, ChangeError, ChangeOptions, Ended, Host, HostStatus, Mode, Plan};
use crate::member::data_dir::{StartError, is_fresh};
use futures_util::stream::{self, BoxStream, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_env::Env;
use tenon_env::sync::watch;
use tenon_proto::ids::MemberId;

/// What an embedded host is told: the same as the program, by the flags of `tenon serve`.
#[derive(Clone, Debug)]
pub struct Options {
    config: Config,
    flags: Vec<String>,
}

impl Options {
    /// Reads flags as `tenon serve` takes them (`--name=a`, `--data-dir=…`, `--mode=client`). No variable of the
    /// environment counts; those about logs have no effect.
    ///
    /// # Errors
    /// What is wrong with them, in the program's words.
    pub fn from_flags<I>(flags: I) -> Result<Options, String>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let flags: Vec<String> = flags.into_iter().map(Into::into).collect();
        let read = |path: &str| std::fs::read_to_string(path).map_err(|e| e.to_string());
        let loaded = flags::load(&flags, &BTreeMap::new(), Persona::Tenon, read);
        let config = loaded.map_err(|exit| exit.text().to_owned())?.config;
        Ok(Options { config, flags })
    }

    pub(super) fn of(config: &Config, args: &[String]) -> Options {
        Options {
            config: config.clone(),
            flags: args.to_vec(),
        }
    }
}

struct Shared {
    host: Host,
    serving: Serving,
    config: Config,
}

/// A running host with its sockets. Clones name the same; it runs until [`Embedded::shutdown`], or until it ends by
/// itself, which [`Embedded::errors`] tells.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

impl Embedded {
    /// Opens a host: binds its sockets, starts it, and lets clients in as soon as it has recovered. Must run inside a
    /// tokio runtime with several threads. A mode given with `--mode` that differs from the host's is brought about
    /// once it is initialized.
    ///
    /// # Errors
    /// Why it cannot run, in the program's words; nothing runs then.
    pub async fn open(options: Options) -> Result<Embedded, String> {
        let embedded = Embedded::start(options).await?;
        tokio::spawn(embedded.clone().lead());
        Ok(embedded)
    }

    /// Opens a host without sockets, in a world of the caller's: clients come from `incoming`, all else from `env`,
    /// its peers too. They are not asked whether their cluster runs already. Flags about listening have no effect.
    /// Must run inside a tokio runtime; one thread is enough.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub async fn open_in(
        env: &Env,
        options: Options,
        incoming: Incoming,
    ) -> Result<Embedded, String> {
        let Options { config, flags } = options;
        let listeners = Listeners::given(&config, incoming)?;
        let embedded = Embedded::begin(env, config, &flags, listeners).await?;
        tokio::spawn(embedded.clone().lead());
        Ok(embedded)
    }

    /// Leads to serving, and into the mode that is configured.
    async fn lead(self) {
        tokio::select! {
            biased;
            _ = self.shared.host.ended() => {}
            () = async {
                match self.serve_clients().await {
                    Ok(()) => self.bring_into(self.shared.config.host.mode).await,
                    Err(why) => {
                        tracing::error!(why, "the host may not serve");
                        self.shared.host.shutdown().await;
                    }
                }
            } => {}
        }
    }

    /// Binds the sockets and starts the host; clients are not let in yet.
    pub(super) async fn start(options: Options) -> Result<Embedded, String> {
        let Options { mut config, flags } = options;
        let (listeners, net) = Listeners::bind(&config).await?;
        let env = tenon_env::real::env(tokio::runtime::Handle::current(), net);
        if is_fresh(&env, &config.member) && !config.host.begins_as_client() {
            config.member.cluster.running = running::ask(&config.member).await;
        }
        Embedded::begin(&env, config, &flags, listeners).await
    }

    async fn begin(
        env: &Env,
        config: Config,
        flags: &[String],
        listeners: Listeners,
    ) -> Result<Embedded, String> {
        let upstream = super::upstream::Channels::new();
        let opened = Host::open(env, config.host.config(config.member.clone()), upstream).await;
        let host = opened.map_err(|error| match error {
            StartError::Config(text) => {
                tracing::error!(error = text, "bootstrap failed");
                text
            }
            error => error.to_string(),
        })?;
        let serving = Serving::start(&config, flags, &host, listeners);
        let shared = Shared {
            host,
            serving,
            config,
        };
        Ok(Embedded {
            shared: Arc::new(shared),
        })
    }

    /// Lets clients in once the host has recovered. Completes when it is initialized; an error when its data may not
    /// be served.
    pub(super) async fn serve_clients(&self) -> Result<(), String> {
        let host = &self.shared.host;
        if let (Mode::Server, Some(member)) = (host.status().mode, host.member()) {
            member.wait_recovered().await;
            member.check_initially().await?;
        }
        self.shared.serving.open_clients();
        host.initialized().await;
        Ok(())
    }

    /// Switches to the configured mode where it differs. On failure the host explains and goes on in the old mode.
    pub(super) async fn bring_into(&self, mode: Option<Mode>) {
        let host = &self.shared.host;
        let Some(mode) = mode.filter(|mode| *mode != host.status().mode) else {
            return;
        };
        tracing::info!(%mode, "the configured mode differs from the host's; switching");
        let outcome = match host.change_mode(mode, ChangeOptions::default()).await {
            Ok(change) => change.await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            tracing::error!(%error, "the host keeps serving in its mode");
        }
    }

    /// The host itself.
    pub fn host(&self) -> &Host {
        &self.shared.host
    }

    /// A client within the process, without sockets. It goes on over every switch.
    pub fn client(&self) -> LocalClient {
        self.shared.host.client()
    }

    /// Begins a switch; see [`Host::change_mode`]. The [`Change`] completes with its outcome and tells its progress.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn change_mode(
        &self,
        to: Mode,
        options: ChangeOptions,
    ) -> Result<Change, ChangeError> {
        self.shared.host.change_mode(to, options).await
    }

    /// What a switch would do; touches nothing.
    ///
    /// # Errors
    /// Why it would be refused.
    pub async fn plan(&self, to: Mode, options: ChangeOptions) -> Result<Plan, ChangeError> {
        self.shared.host.plan(to, options).await
    }

    /// Follows what the host is doing.
    pub fn status(&self) -> watch::Receiver<HostStatus> {
        self.shared.host.watch_status()
    }

    /// The member that leads the cluster, as far as this host knows.
    pub fn leader(&self) -> Option<MemberId> {
        self.shared.host.leader()
    }

    /// Completes once the cluster knows this host's member, or, for a client, once a member answers.
    pub async fn initialized(&self) {
        self.shared.host.initialized().await;
    }

    /// Why switches failed, as they fail, and at last why the host ended, unless it was told to. Ends with the host.
    pub fn errors(&self) -> BoxStream<'static, String> {
        let host = self.shared.host.clone();
        let status = host.watch_status();
        let told = status.borrow().error.clone();
        stream::unfold(Some((host, status, told)), |state| async {
            let (host, mut status, mut told) = state?;
            loop {
                let ended = tokio::select! {
                    biased;
                    ended = host.ended() => Some(ended),
                    changed = status.changed() => changed.err().map(|_| Ended::Shutdown),
                };
                match ended {
                    Some(Ended::Shutdown) => return None,
                    Some(Ended::Failed(why) | Ended::Removed(why)) => return Some((why, None)),
                    None => {}
                }
                let error = status.borrow_and_update().error.clone();
                let fresh = error.clone().filter(|_| error != told);
                told = error;
                if let Some(error) = fresh {
                    return Some((error, Some((host, status, told))));
                }
            }
        })
        .boxed()
    }

    /// Hands leadership over, ends streams, waits a bounded time for calls under way, and stops everything. Afterwards
    /// the same directory and ports may be opened again, in this process too.
    pub async fn shutdown(&self) {
        self.shared.host.hand_over().await;
        self.close().await;
    }

    pub(super) async fn close(&self) {
        let Shared { host, serving, .. } = &*self.shared;
        serving.drain(host).await;
        host.shutdown().await;
        serving.close_peers().await;
    }
}

impl Options {
    /// The mode the flags ask for.
    pub fn mode(&self) -> Option<Mode> {
        self.config.host.mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_programs_flags() {
        let options = Options::from_flags(["--name=a", "--mode=client", "--endpoints=b:1"]);
        assert_eq!(options.unwrap().mode(), Some(Mode::Client));
        let wrong = Options::from_flags(["--mode=witness"]).unwrap_err();
        assert!(wrong.contains("\"witness\""), "{wrong}");
    }
}
