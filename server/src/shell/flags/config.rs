//! Room `server/shell`: the settings as a typed configuration, and etcd's checks of what contradicts itself,
//! in etcd's order and words. Pure.

use super::host::HostSettings;
use super::retention::compaction;
use super::settings::{Exit, Settings};
use super::url::FlagUrl;
use super::value::{Gate, show_duration};
use crate::member::config::{BootstrapState, ClusterOptions, MemberConfig, Quota, Tuning};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Which program the process was started as; it decides the default data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persona {
    /// `tenon serve`: `<name>.tenon`.
    Tenon,
    /// A link named `etcd`: `<name>.etcd`.
    Etcd,
}

/// HTTP/2 keep-alive of the client listeners. Zero turns a part off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Shortest time between pings of a client.
    pub client_min: Duration,
    /// Time between pings to an idle client.
    pub interval: Duration,
    /// How long its answer may take.
    pub timeout: Duration,
}

/// Where and what to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `debug`, `info`, `warn`, `error`, `panic` or `fatal`.
    pub level: String,
    /// JSON lines rather than text.
    pub json: bool,
    /// `default`, `stderr`, `stdout` or file paths.
    pub outputs: Vec<String>,
}

/// All that `serve` needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What the member itself needs.
    pub member: MemberConfig,
    /// The host around it.
    pub host: HostSettings,
    /// Peer listeners.
    pub listen_peer: Vec<FlagUrl>,
    /// Client listeners.
    pub listen_client: Vec<FlagUrl>,
    /// HTTP-only client listeners; when there are any, the others serve gRPC only.
    pub listen_client_http: Vec<FlagUrl>,
    /// Extra listeners for metrics and health.
    pub listen_metrics: Vec<FlagUrl>,
    /// HTTP/2 streams of one connection at most.
    pub max_concurrent_streams: u32,
    /// Pings.
    pub keepalive: Keepalive,
    /// SO_REUSEPORT on TCP listeners.
    pub reuse_port: bool,
    /// SO_REUSEADDR on TCP listeners.
    pub reuse_address: bool,
    /// Allowed origins; `*` allows all.
    pub cors: Vec<String>,
    /// Allowed `Host` headers; `*` allows all.
    pub host_whitelist: Vec<String>,
    /// Feature gates.
    pub gates: Vec<Gate>,
    /// Logging.
    pub log: LogConfig,
    /// Serve the gRPC latency histogram too.
    pub extensive_metrics: bool,
    /// Unary calls slower than this are logged; zero logs none.
    pub warn_unary: Duration,
}

pub(super) fn reject<T>(text: impl Into<String>) -> Result<T, Exit> {
    Err(Exit::Rejected(text.into()))
}

/// A duration for use; negative counts as zero.
fn span(settings: &Settings, name: &str) -> Duration {
    Duration::from_nanos(u64::try_from(settings.nanos(name)).unwrap_or(0))
}

/// A duration where 0 means a default.
pub(super) fn span_or(settings: &Settings, name: &str, default: Duration) -> Duration {
    let given = span(settings, name);
    if given.is_zero() { default } else { given }
}

fn urls(settings: &Settings, name: &str) -> Vec<FlagUrl> {
    let read = |text: &String| FlagUrl::read(text).expect("the parser accepted it");
    settings.list(name).iter().map(read).collect()
}

impl Config {
    /// Checks the settings and gives them types.
    pub fn build(settings: &Settings, persona: Persona) -> Result<Config, Exit> {
        let log = log_config(settings)?;
        let listeners = check_urls(settings)?;
        check_discovery(settings)?;
        let (heartbeat, election) = check_ticks(settings)?;
        if settings.is_set("listen-client-urls") && !settings.is_set("advertise-client-urls") {
            return reject(
                "--advertise-client-urls is required when --listen-client-urls is set explicitly",
            );
        }
        let mode = settings.text("auto-compaction-mode");
        if mode.is_empty() {
            return reject("undefined auto-compaction-mode");
        }
        if mode != "periodic" && mode != "revision" {
            return reject(format!("unknown auto-compaction-mode {mode:?}"));
        }
        super::tls::check(settings)?;
        check_rest(settings)?;
        if let Some(text) = settings.refused() {
            return reject(text);
        }
        let [
            listen_peer,
            listen_client,
            listen_client_http,
            listen_metrics,
        ] = listeners;
        check_listeners(&listen_client, &listen_client_http, &listen_metrics)?;
        let whitelist = settings.list("host-whitelist");
        Ok(Config {
            host: HostSettings::build(settings)?,
            member: member_config(settings, persona, &mode, heartbeat, election)?,
            listen_peer,
            listen_client,
            listen_client_http,
            listen_metrics,
            max_concurrent_streams: u32::try_from(settings.uint("max-concurrent-streams"))
                .unwrap_or(u32::MAX),
            keepalive: Keepalive {
                client_min: span(settings, "grpc-keepalive-min-time"),
                interval: span(settings, "grpc-keepalive-interval"),
                timeout: span(settings, "grpc-keepalive-timeout"),
            },
            reuse_port: settings.flag("socket-reuse-port"),
            reuse_address: settings.flag("socket-reuse-address"),
            cors: settings.list("cors"),
            host_whitelist: if whitelist.is_empty() {
                vec!["*".to_owned()]
            } else {
                whitelist
            },
            gates: settings.all_gates(),
            log,
            extensive_metrics: settings.text("metrics") == "extensive",
            warn_unary: span_or(
                settings,
                "warning-unary-request-duration",
                Duration::from_millis(300),
            ),
        })
    }
}

fn log_config(settings: &Settings) -> Result<LogConfig, Exit> {
    let logger = settings.text("logger");
    if logger != "zap" && logger != "capnslog" {
        return reject(format!("unknown logger option {logger:?}"));
    }
    let outputs = settings.list("log-outputs");
    if outputs.len() > 1 && outputs.iter().any(|o| o == "default") {
        return reject("multi logoutput for \"default\" is not supported yet");
    }
    if outputs.iter().any(|o| o == "systemd/journal") {
        return reject("--log-outputs systemd/journal is not supported yet: use stderr");
    }
    if outputs.is_empty() {
        return reject("open sink \"\": open : no such file or directory");
    }
    let level = match settings.text("log-level") {
        level if level.is_empty() => "info".to_owned(),
        level => level,
    };
    if !["debug", "info", "warn", "error", "dpanic", "panic", "fatal"].contains(&level.as_str()) {
        return Err(Exit::Panic(format!("unrecognized level: {level:?}")));
    }
    let format = settings.text("log-format");
    if !["", "json", "console"].contains(&format.as_str()) {
        return reject(format!(
            "unknown log format: {format}, supported values json, console"
        ));
    }
    Ok(LogConfig {
        level,
        json: format != "console",
        outputs,
    })
}

fn check_urls(settings: &Settings) -> Result<[Vec<FlagUrl>; 4], Exit> {
    let mut lists = [
        "listen-peer-urls",
        "listen-client-urls",
        "listen-client-http-urls",
        "listen-metrics-urls",
    ]
    .map(|name| urls(settings, name));
    for url in lists.iter().flatten() {
        url.check_bindable().map_err(Exit::Rejected)?;
    }
    if lists[1].is_empty() {
        lists[1] = urls(&Settings::default(), "listen-client-urls");
    }
    let told = [
        ("initial-advertise-peer-urls", "must be \"host:port\""),
        (
            "advertise-client-urls",
            "must be in the format \"host:port\", \"unix:/path/to/socket\" or \
             \"unixs:/path/to/socket\"",
        ),
    ];
    for (name, form) in told {
        let list = urls(settings, name);
        for url in &list {
            url.check_advertised().map_err(|why| {
                let all = list
                    .iter()
                    .map(|u| u.text.as_str())
                    .collect::<Vec<_>>()
                    .join(",");
                Exit::Rejected(format!("--{name} {all:?} {form} ({why})"))
            })?;
        }
    }
    Ok(lists)
}

fn check_discovery(settings: &Settings) -> Result<(), Exit> {
    if settings.is_set("discovery-fallback") && settings.text("discovery-fallback") == "proxy" {
        return reject(
            "v2 proxy is deprecated, and --discovery-fallback can't be configured as \"proxy\"",
        );
    }
    let srv = !settings.text("discovery-srv").is_empty();
    let endpoints = !settings.list("discovery-endpoints").is_empty();
    let initial =
        settings.is_set("initial-cluster") && !settings.text("initial-cluster").is_empty();
    if [srv, endpoints, initial]
        .into_iter()
        .filter(|set| *set)
        .count()
        > 1
    {
        return reject(
            "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \
             \"discovery-endpoints\" or \"discovery-srv\"",
        );
    }
    if endpoints == settings.text("discovery-token").is_empty() {
        return reject("both --discovery-token and --discovery-endpoints must be set");
    }
    Ok(())
}

fn check_ticks(settings: &Settings) -> Result<(Duration, Duration), Exit> {
    let (heartbeat, election) = (
        settings.uint("heartbeat-interval"),
        settings.uint("election-timeout"),
    );
    for (name, ms) in [
        ("heartbeat-interval", heartbeat),
        ("election-timeout", election),
    ] {
        if ms == 0 {
            return reject(format!("--{name} must be >0 (set to 0ms)"));
        }
    }
    if heartbeat.saturating_mul(5) > election {
        return reject(format!(
            "--election-timeout[{election}ms] should be at least as 5 times as \
             --heartbeat-interval[{heartbeat}ms]"
        ));
    }
    if election > 50_000 {
        return reject(format!(
            "--election-timeout[{election}ms] is too long, and should be set less than 50000ms"
        ));
    }
    Ok((
        Duration::from_millis(heartbeat),
        Duration::from_millis(election),
    ))
}

fn check_rest(settings: &Settings) -> Result<(), Exit> {
    let check = settings.nanos("compact-hash-check-time");
    if check <= 0 {
        return reject(format!(
            "--compact-hash-check-time must be >0 (set to {})",
            show_duration(check)
        ));
    }
    if settings.gate("LeaseCheckpointPersist") && !settings.gate("LeaseCheckpoint") {
        return reject(
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate \
             LeaseCheckpoint",
        );
    }
    let token = settings.text("auth-token");
    if token != "simple" && !token.is_empty() && !token.starts_with("jwt,") && token != "jwt" {
        return reject("auth: invalid auth options");
    }
    if settings.int("max-learners") < 0 {
        return reject("membership: too many learner members in cluster");
    }
    // Where etcd panics.
    let check = settings.nanos("corrupt-check-time");
    if check < 0 {
        return reject(format!(
            "--corrupt-check-time must be >=0 (set to {})",
            show_duration(check)
        ));
    }
    Ok(())
}

fn check_listeners(client: &[FlagUrl], http: &[FlagUrl], metrics: &[FlagUrl]) -> Result<(), Exit> {
    if let Some(url) = client.iter().chain(http).find(|url| url.scheme.secure()) {
        return reject(format!(
            "TLS key/cert (--cert-file, --key-file) must be provided for client url {} with HTTPS \
             scheme",
            url.text
        ));
    }
    if metrics.iter().any(|url| url.scheme.secure()) {
        return reject(
            "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url",
        );
    }
    if let Some(url) = http.iter().find(|url| client.contains(url)) {
        return reject(format!(
            "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url {}",
            url.text
        ));
    }
    Ok(())
}

fn member_config(
    settings: &Settings,
    persona: Persona,
    mode: &str,
    heartbeat: Duration,
    election: Duration,
) -> Result<MemberConfig, Exit> {
    let name = settings.text("name");
    let suffix = match persona {
        Persona::Tenon => "tenon",
        Persona::Etcd => "etcd",
    };
    let data_dir = match settings.text("data-dir").as_str() {
        "" => PathBuf::from(format!("{name}.{suffix}")),
        given => PathBuf::from(given),
    };
    let wal_dir = Some(settings.text("wal-dir"))
        .filter(|d| !d.is_empty())
        .map(PathBuf::from);
    let quota = match settings.int("quota-backend-bytes") {
        0 => Quota::DEFAULT,
        n if n < 0 => Quota::Off,
        n => Quota::Bytes(n.unsigned_abs()),
    };
    let ms = Duration::from_millis;
    let limit = |name| usize::try_from(settings.uint(name)).unwrap_or(usize::MAX);
    let advertise_peer_urls = settings.list("initial-advertise-peer-urls");
    Ok(MemberConfig {
        initial_cluster: initial_cluster(settings, &name, &advertise_peer_urls)?,
        name,
        data_dir,
        wal_dir,
        advertise_client_urls: settings.list("advertise-client-urls"),
        advertise_peer_urls,
        initial_state: match settings.text("initial-cluster-state").as_str() {
            "existing" => BootstrapState::Existing,
            _ => BootstrapState::New,
        },
        cluster_token: settings.text("initial-cluster-token"),
        heartbeat,
        election,
        snapshot_catchup_entries: settings.uint("snapshot-catchup-entries"),
        quota,
        max_txn_ops: limit("max-txn-ops"),
        max_request_bytes: limit("max-request-bytes"),
        compaction: compaction(mode, &settings.text("auto-compaction-retention"))?,
        compaction_batch: match settings.int("compaction-batch-limit") {
            n if n > 0 => usize::try_from(n).unwrap_or(usize::MAX),
            _ => 1000,
        },
        compaction_pause: span_or(settings, "compaction-sleep-interval", ms(10)),
        progress_interval: span_or(settings, "watch-progress-notify-interval", ms(600_000))
            .max(ms(100)),
        warn_apply: span(settings, "warning-apply-duration"),
        max_learners: usize::try_from(settings.int("max-learners")).unwrap_or(0),
        strict_reconfig: settings.flag("strict-reconfig-check"),
        cluster: cluster_options(settings),
        tuning: Tuning::on_engine(&settings.text("storage-engine")).map_err(Exit::Rejected)?,
    })
}

fn cluster_options(settings: &Settings) -> ClusterOptions {
    ClusterOptions {
        auto_promote_learners: settings.flag("auto-promote-learners"),
        corrupt_check: span(settings, "corrupt-check-time"),
        initial_corrupt_check: settings.gate("InitialCorruptCheck"),
        ..ClusterOptions::default()
    }
}

/// Members of the first start, by name.
fn initial_cluster(
    settings: &Settings,
    name: &str,
    own_urls: &[String],
) -> Result<BTreeMap<String, Vec<String>>, Exit> {
    let default = Settings::default().text("initial-cluster");
    let given = settings.text("initial-cluster");
    if given == default && name != "default" {
        return Ok(BTreeMap::from([(name.to_owned(), own_urls.to_vec())]));
    }
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in given
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (member, url) = part.split_once('=').unwrap_or((part, ""));
        let url = if url.is_empty() {
            Err("URL scheme must be http, https, unix, or unixs: ".to_owned())
        } else {
            FlagUrl::read(url).map(|url| url.text)
        };
        let url =
            url.map_err(|why| Exit::Rejected(format!("error setting up initial cluster: {why}")))?;
        let urls = members.entry(member.trim().to_owned()).or_default();
        urls.push(url);
        urls.sort();
    }
    Ok(members)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
