//! Room `server/shell`: the process: from the command line to a member that serves, and back to an exit code.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell reads the config file and the environment"
)]

use super::embedded::{Embedded, Options};
use super::flags::parse::EnvWarning;
use super::flags::{self, Config, Exit, Loaded, Persona, config::LogConfig, usage};
use super::signals::{Signals, Told};
use super::{log, notify};
use crate::host::Ended;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Serves until told to stop. `args` are those after the program's name and verb.
pub fn main(persona: Persona, args: &[String]) -> ExitCode {
    let vars: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    let load = || {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|e| super::listen::os(&e));
        flags::load(args, &vars, persona, read)
    };
    let loaded = match load() {
        Ok(loaded) => loaded,
        Err(exit) => return refuse(persona, args, &exit),
    };
    let config = &loaded.config;
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
    raise_descriptors();
    // The allocator asks for huge pages; an idle member would then hold 2 MiB where it touched a few KiB.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fatal(&format!("cannot start the runtime: {error}")),
    };
    let ended = runtime.block_on(serve(&loaded, args, &load));
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => fatal(&reason),
    }
}

/// Every connection takes a file descriptor. The lower of the two limits is one for programs that cannot count
/// beyond 1024; Go's runtime raises it too.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays where it is");
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

/// Reads flags, variables and file once more.
type Load<'a> = &'a dyn Fn() -> Result<Loaded, Exit>;

async fn serve(loaded: &Loaded, args: &[String], load: Load<'_>) -> Result<(), String> {
    let config = &loaded.config;
    // etcd dies of SIGHUP; only where a mode is configured somewhere has it a meaning.
    let rereads = loaded.file.is_some() || config.host.mode.is_some();
    let mut signals = Signals::new(rereads)?;
    let embedded = Embedded::start(Options::of(config, args)).await?;
    let host = embedded.host();
    let ended = tokio::select! {
        biased;
        name = stopped(&mut signals, &embedded, load) => Stop::Signal(name),
        ended = run(&embedded, config) => ended,
    };
    let result = match ended {
        Stop::Signal(name) => {
            tracing::info!(signal = name, "received signal; shutting down");
            host.hand_over().await;
            Ok(())
        }
        Stop::Failed(reason) => Err(reason),
        Stop::Ended(Ended::Failed(reason)) => Err(reason),
        Stop::Ended(Ended::Shutdown) => Ok(()),
        Stop::Ended(Ended::Removed(reason)) => {
            tracing::error!(
                reason,
                "this member has been removed from the cluster for good; its data directory must be \
                 removed"
            );
            Ok(())
        }
    };
    embedded.close().await;
    tracing::info!("closed the server");
    result
}

/// Why serving ends.
enum Stop {
    Signal(&'static str),
    Failed(String),
    Ended(Ended),
}

/// Serves clients once recovered, tells the service manager once ready, then brings the host into the configured
/// mode, and ends when the host does.
async fn run(embedded: &Embedded, config: &Config) -> Stop {
    let ready = async {
        if let Err(reason) = embedded.serve_clients().await {
            return Stop::Failed(reason);
        }
        tracing::info!("ready to serve client requests");
        if let Err(error) = notify::send(std::env::var_os("NOTIFY_SOCKET").as_deref(), "READY=1\n")
        {
            tracing::warn!(%error, "failed to notify the service manager");
        }
        embedded.bring_into(config.host.mode).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        ended = embedded.host().ended() => Stop::Ended(ended),
        ended = ready => ended,
    }
}

/// Completes at the signal that ends the process; others are obeyed meanwhile.
async fn stopped(signals: &mut Signals, embedded: &Embedded, load: Load<'_>) -> &'static str {
    loop {
        match signals.next().await {
            Told::Stop(name) => return name,
            Told::Reread => match load() {
                Ok(loaded) => {
                    tracing::info!(mode = ?loaded.config.host.mode, "read the configured mode again");
                    let (embedded, mode) = (embedded.clone(), loaded.config.host.mode);
                    tokio::spawn(async move { embedded.bring_into(mode).await });
                }
                Err(exit) => {
                    tracing::error!(error = exit.text(), "the configuration cannot be read");
                }
            },
        }
    }
}
