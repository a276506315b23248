//! Room `server/shell`: every flag of etcd, one row each: name, default, kind, key in the config file, and
//! what Tenon does with it. Data only; rows of the old and of the 3.6 names stand at the end.

use super::value::{ChoiceText, Kind};

/// What Tenon does with a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does what etcd's does.
    Works,
    /// Accepted without effect: tuning of parts that Tenon does not have, or does not tune yet.
    Ignored,
    /// Any value but the default is refused; the text says why.
    Refused(&'static str),
}

use Status::{Ignored, Refused, Works};

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// Default, in the form of the command line.
    pub default: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Path in the config file, parts joined by dots; empty when it has none.
    pub key: &'static str,
    /// What Tenon does with it.
    pub status: Status,
}

const SAME: &str = "=";
const TEXT: Kind = Kind::Text;
const BOOL: Kind = Kind::Bool;
const INT: Kind = Kind::Int;
const UINT: Kind = Kind::Uint;
const DURATION: Kind = Kind::Duration;
const LIST: Kind = Kind::List;
const SET: Kind = Kind::Set;
const URLS: Kind = Kind::Urls(&[""]);
const STATE: Kind = Kind::Choice(&["new", "existing"], ChoiceText::Plain);
const FALLBACK: Kind = Kind::Choice(&["exit", "proxy"], ChoiceText::Plain);
const V2: Kind = Kind::Choice(
    &[
        "write-only",
        "write-only-skip-check",
        "write-only-drop-data",
        "gone",
    ],
    ChoiceText::Quoted,
);
const TLS: &str = "TLS is not there yet";
const DISCOVERY: &str = "list the members in --initial-cluster";

const fn row(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    key: &'static str,
    status: Status,
) -> Flag {
    let key = if matches!(key.as_bytes(), b"=") {
        name
    } else {
        key
    };
    Flag {
        name,
        default,
        kind,
        key,
        status,
    }
}

const fn old(name: &'static str) -> Flag {
    row(name, "", Kind::Old, "", Ignored)
}

/// All flags.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    // Member
    row("name", "default", TEXT, SAME, Works),
    row("data-dir", "", TEXT, SAME, Works),
    row("wal-dir", "", TEXT, SAME, Works),
    row("snapshot-count", "10000", UINT, SAME, Ignored),
    row("snapshot-catchup-entries", "5000", UINT, SAME, Works),
    row("heartbeat-interval", "100", UINT, SAME, Works),
    row("election-timeout", "1000", UINT, SAME, Works),
    row("initial-election-tick-advance", "true", BOOL, SAME, Ignored),
    row("listen-peer-urls", "http://localhost:2380", URLS, SAME, Works),
    row("listen-client-urls", "http://localhost:2379", URLS, SAME, Works),
    row("listen-client-http-urls", "", URLS, SAME, Works),
    row("listen-metrics-urls", "", URLS, SAME, Works),
    row("max-snapshots", "5", UINT, SAME, Ignored),
    row("max-wals", "5", UINT, SAME, Ignored),
    row("memory-mlock", "false", BOOL, SAME, Refused("pages are not locked yet")),
    row("quota-backend-bytes", "0", INT, SAME, Works),
    row("backend-bbolt-freelist-type", "", TEXT, SAME, Ignored),
    row("backend-batch-interval", "0s", DURATION, SAME, Ignored),
    row("backend-batch-limit", "0", INT, SAME, Ignored),
    row("max-txn-ops", "128", UINT, SAME, Works),
    row("max-request-bytes", "1572864", UINT, SAME, Works),
    row("max-concurrent-streams", "4294967295", Kind::Uint32, SAME, Works),
    row("grpc-keepalive-min-time", "5s", DURATION, SAME, Ignored),
    row("grpc-keepalive-interval", "2h0m0s", DURATION, SAME, Works),
    row("grpc-keepalive-timeout", "20s", DURATION, SAME, Works),
    row("socket-reuse-port", "false", BOOL, "socket-options.reuse-port", Works),
    row("socket-reuse-address", "false", BOOL, "socket-options.reuse-address", Works),
    row("enable-grpc-gateway", "true", BOOL, SAME, Ignored),
    row("raft-read-timeout", "5s", DURATION, "", Ignored),
    row("raft-write-timeout", "5s", DURATION, "", Ignored),
    row("feature-gates", "", Kind::Gates, SAME, Works),
    // Clustering
    row("initial-advertise-peer-urls", "http://localhost:2380", URLS, SAME, Works),
    row("initial-cluster", "default=http://localhost:2380", TEXT, SAME, Works),
    row("initial-cluster-state", "new", STATE, SAME, Works),
    row("initial-cluster-token", "etcd-cluster", TEXT, SAME, Works),
    row("advertise-client-urls", "http://localhost:2379", URLS, SAME, Works),
    row("strict-reconfig-check", "true", BOOL, SAME, Works),
    row("pre-vote", "true", BOOL, SAME, Ignored),
    row("max-learners", "1", INT, SAME, Works),
    // Tenon's own.
    row("auto-promote-learners", "false", BOOL, SAME, Works),
    row("storage-engine", "redb", TEXT, SAME, Works),
    row("mode", "", TEXT, SAME, Works),
    row("endpoints", "", SET, SAME, Works),
    row("mode-change-timeout", "1m0s", DURATION, SAME, Works),
    row("require-fault-tolerance", "false", BOOL, SAME, Works),
    row("voters-target", "0", UINT, SAME, Works),
    row("replace-after", "5m0s", DURATION, SAME, Works),
    row("auto-compaction-mode", "periodic", TEXT, SAME, Works),
    row("auto-compaction-retention", "0", TEXT, SAME, Works),
    row("discovery-srv", "", TEXT, SAME, Refused(DISCOVERY)),
    row("discovery-srv-name", "", TEXT, SAME, Refused(DISCOVERY)),
    row("discovery-token", "", TEXT, "discovery-config.token", Refused(DISCOVERY)),
    row("discovery-endpoints", "", SET, "discovery-config.client.endpoints", Refused(DISCOVERY)),
    row("discovery-dial-timeout", "2s", DURATION, "discovery-config.client.dial-timeout", Ignored),
    row("discovery-request-timeout", "5s", DURATION, "discovery-config.client.request-timeout", Ignored),
    row("discovery-keepalive-time", "2s", DURATION, "discovery-config.client.keepalive-time", Ignored),
    row("discovery-keepalive-timeout", "6s", DURATION, "discovery-config.client.keepalive-timeout", Ignored),
    row("discovery-insecure-transport", "true", BOOL, "discovery-config.client.secure.insecure-transport", Ignored),
    row("discovery-insecure-skip-tls-verify", "false", BOOL, "discovery-config.client.secure.insecure-skip-tls-verify", Ignored),
    row("discovery-cert", "", TEXT, "discovery-config.client.secure.cert", Ignored),
    row("discovery-key", "", TEXT, "discovery-config.client.secure.key", Ignored),
    row("discovery-cacert", "", TEXT, "discovery-config.client.secure.cacert", Ignored),
    row("discovery-user", "", TEXT, "discovery-config.client.auth.username", Ignored),
    row("discovery-password", "", TEXT, "discovery-config.client.auth.password", Ignored),
    row("discovery-fallback", "exit", FALLBACK, "", Ignored),
    row("v2-deprecation", "write-only", V2, SAME, Ignored),
    // Security and auth
    row("cert-file", "", TEXT, "client-transport-security.cert-file", Refused(TLS)),
    row("key-file", "", TEXT, "client-transport-security.key-file", Refused(TLS)),
    row("client-cert-auth", "false", BOOL, "client-transport-security.client-cert-auth", Refused(TLS)),
    row("client-cert-file", "", TEXT, "client-transport-security.client-cert-file", Refused(TLS)),
    row("client-key-file", "", TEXT, "client-transport-security.client-key-file", Refused(TLS)),
    row("client-crl-file", "", TEXT, "", Refused(TLS)),
    row("client-cert-allowed-hostname", "", LIST, "client-transport-security.allowed-hostname", Refused(TLS)),
    row("trusted-ca-file", "", TEXT, "client-transport-security.trusted-ca-file", Refused(TLS)),
    row("auto-tls", "false", BOOL, "client-transport-security.auto-tls", Refused(TLS)),
    row("peer-cert-file", "", TEXT, "peer-transport-security.cert-file", Refused(TLS)),
    row("peer-key-file", "", TEXT, "peer-transport-security.key-file", Refused(TLS)),
    row("peer-client-cert-auth", "false", BOOL, "peer-transport-security.client-cert-auth", Refused(TLS)),
    row("peer-client-cert-file", "", TEXT, "peer-transport-security.client-cert-file", Refused(TLS)),
    row("peer-client-key-file", "", TEXT, "peer-transport-security.client-key-file", Refused(TLS)),
    row("peer-trusted-ca-file", "", TEXT, "peer-transport-security.trusted-ca-file", Refused(TLS)),
    row("peer-cert-allowed-cn", "", LIST, "peer-transport-security.allowed-cn", Refused(TLS)),
    row("peer-cert-allowed-hostname", "", LIST, "peer-transport-security.allowed-hostname", Refused(TLS)),
    row("peer-auto-tls", "false", BOOL, "peer-transport-security.auto-tls", Refused(TLS)),
    row("peer-crl-file", "", TEXT, "", Refused(TLS)),
    row("peer-skip-client-san-verification", "false", BOOL, "peer-transport-security.skip-client-san-verification", Refused(TLS)),
    row("self-signed-cert-validity", "1", UINT, SAME, Ignored),
    row("cipher-suites", "", LIST, SAME, Ignored),
    row("tls-min-version", "TLS1.2", TEXT, SAME, Ignored),
    row("tls-max-version", "", TEXT, SAME, Ignored),
    row("cors", "*", Kind::Urls(&["*"]), SAME, Works),
    row("host-whitelist", "*", SET, SAME, Works),
    row("auth-token", "simple", TEXT, SAME, Refused("users and their tokens are not there yet")),
    row("auth-token-ttl", "300", UINT, SAME, Ignored),
    row("bcrypt-cost", "10", UINT, SAME, Ignored),
    // Observability
    row("logger", "zap", TEXT, SAME, Works),
    row("log-level", "info", TEXT, SAME, Works),
    row("log-format", "json", TEXT, SAME, Works),
    row("log-outputs", "default", LIST, SAME, Works),
    row("enable-log-rotation", "false", BOOL, SAME, Refused("let the service manager or logrotate rotate the log")),
    row("log-rotation-config-json", r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#, TEXT, SAME, Ignored),
    row("enable-pprof", "false", BOOL, SAME, Ignored),
    row("metrics", "basic", TEXT, SAME, Works),
    row("warning-apply-duration", "100ms", DURATION, SAME, Works),
    row("warning-unary-request-duration", "300ms", DURATION, SAME, Works),
    row("enable-distributed-tracing", "false", BOOL, SAME, Refused("spans are not exported yet")),
    row("distributed-tracing-address", "localhost:4317", TEXT, SAME, Ignored),
    row("distributed-tracing-service-name", "etcd", TEXT, SAME, Ignored),
    row("distributed-tracing-instance-id", "", TEXT, SAME, Ignored),
    row("distributed-tracing-sampling-rate", "0", INT, SAME, Ignored),
    // Checks, compaction, watch
    row("corrupt-check-time", "0s", DURATION, SAME, Works),
    row("compact-hash-check-time", "1m0s", DURATION, SAME, Ignored),
    row("compaction-batch-limit", "0", INT, SAME, Works),
    row("compaction-sleep-interval", "0s", DURATION, SAME, Works),
    row("watch-progress-notify-interval", "0s", DURATION, SAME, Works),
    row("downgrade-check-time", "5s", DURATION, SAME, Ignored),
    row("bootstrap-defrag-threshold-megabytes", "0", UINT, SAME, Ignored),
    // Unsafe and misc
    row("force-new-cluster", "false", BOOL, SAME, Refused("recovering a lost quorum comes with host modes")),
    row("unsafe-no-fsync", "false", BOOL, SAME, Ignored),
    row("config-file", "", TEXT, "", Works),
    row("version", "false", BOOL, "", Works),
    // Gone, still accepted
    old("cluster-active-size"),
    old("cluster-remove-delay"),
    old("cluster-sync-interval"),
    old("config"),
    old("force"),
    old("max-result-buffer"),
    old("max-retry-attempts"),
    old("peer-heartbeat-interval"),
    old("peer-election-timeout"),
    old("retry-interval"),
    old("snapshot"),
    old("v"),
    old("vv"),
];

/// Flags that etcd does not have; their variables are called `TENON_…`.
pub const OWN: &[&str] = &[
    "storage-engine",
    "auto-promote-learners",
    "mode",
    "endpoints",
    "mode-change-timeout",
    "require-fault-tolerance",
    "voters-target",
    "replace-after",
];

/// Flags of etcd 3.6 that 3.7 knows under another name, without their prefix `experimental-`.
pub const EXPERIMENTAL: &[&str] = &[
    "bootstrap-defrag-threshold-megabytes",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "corrupt-check-time",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "enable-distributed-tracing",
    "memory-mlock",
    "peer-skip-client-san-verification",
    "snapshot-catchup-entries",
    "warning-apply-duration",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
];

/// Flags of etcd 3.6 that became feature gates, without their prefix `experimental-`.
pub const EXPERIMENTAL_GATES: &[(&str, &str)] = &[
    ("compact-hash-check-enabled", "CompactHashCheck"),
    ("enable-lease-checkpoint", "LeaseCheckpoint"),
    ("enable-lease-checkpoint-persist", "LeaseCheckpointPersist"),
    ("initial-corrupt-check", "InitialCorruptCheck"),
    ("stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag"),
    (
        "txn-mode-write-with-shared-buffer",
        "TxnModeWriteWithSharedBuffer",
    ),
];

/// The flag called `name`.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_keys_are_unique_and_defaults_parse() {
        let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for flag in FLAGS {
            assert!(names.insert(flag.name), "{} twice", flag.name);
            assert!(
                flag.key.is_empty() || keys.insert(flag.key),
                "key {} twice",
                flag.key
            );
            flag.kind
                .read(flag.default)
                .unwrap_or_else(|e| panic!("{}: {e}", flag.name));
        }
        for name in EXPERIMENTAL.iter().chain(OWN) {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
