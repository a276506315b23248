//! Room `server/shell`: tests of the checks, each with the text real etcd 3.7.3 printed.

use super::super::parse::read_args;
use super::*;
use crate::member::config::Compaction;

fn build(line: &str) -> Result<Config, Exit> {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Config::build(&read_args(&args)?, Persona::Etcd)
}

/// A command line and what etcd says about it before it exits with 1.
const REFUSED: &[(&str, &str)] = &[
    (
        "--listen-client-urls http://127.0.0.1:1",
        "--advertise-client-urls is required when --listen-client-urls is set explicitly",
    ),
    (
        "--listen-client-urls http://example.com:1 --advertise-client-urls http://a:1",
        "expected IP in URL for binding (http://example.com:1)",
    ),
    (
        "--listen-client-urls http://:1 --advertise-client-urls http://a:1",
        "expected IP in URL for binding (http://:1)",
    ),
    (
        "--advertise-client-urls http://:1",
        "--advertise-client-urls \"http://:1\" must be in the format \"host:port\", \
         \"unix:/path/to/socket\" or \"unixs:/path/to/socket\" (unexpected empty host \
         (http://:1))",
    ),
    (
        "--initial-advertise-peer-urls http://:1",
        "--initial-advertise-peer-urls \"http://:1\" must be \"host:port\" (unexpected empty \
         host (http://:1))",
    ),
    (
        "--discovery-srv a.b --initial-cluster default=http://localhost:2380",
        "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \
         \"discovery-endpoints\" or \"discovery-srv\"",
    ),
    (
        "--discovery-token a",
        "both --discovery-token and --discovery-endpoints must be set",
    ),
    (
        "--heartbeat-interval 0",
        "--heartbeat-interval must be >0 (set to 0ms)",
    ),
    (
        "--election-timeout 0",
        "--election-timeout must be >0 (set to 0ms)",
    ),
    (
        "--heartbeat-interval 300",
        "--election-timeout[1000ms] should be at least as 5 times as \
         --heartbeat-interval[300ms]",
    ),
    (
        "--election-timeout 60000",
        "--election-timeout[60000ms] is too long, and should be set less than 50000ms",
    ),
    (
        "--auto-compaction-mode foo",
        "unknown auto-compaction-mode \"foo\"",
    ),
    (
        "--auto-compaction-retention abc",
        "error parsing CompactionRetention: time: invalid duration \"abc\"",
    ),
    (
        "--auto-compaction-retention -1",
        "error parsing CompactionRetention: time: missing unit in duration \"-1\"",
    ),
    (
        "--compact-hash-check-time 0",
        "--compact-hash-check-time must be >0 (set to 0s)",
    ),
    (
        "--feature-gates LeaseCheckpointPersist=true",
        "enabling feature gate LeaseCheckpointPersist requires enabling feature gate \
         LeaseCheckpoint",
    ),
    (
        "--discovery-fallback proxy",
        "v2 proxy is deprecated, and --discovery-fallback can't be configured as \"proxy\"",
    ),
    (
        "--listen-client-urls https://127.0.0.1:1 --advertise-client-urls https://127.0.0.1:1",
        "TLS key/cert (--cert-file, --key-file) must be provided for client url \
         https://127.0.0.1:1 with HTTPS scheme",
    ),
    (
        "--listen-metrics-urls https://127.0.0.1:1",
        "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url",
    ),
    (
        "--listen-client-urls http://127.0.0.1:1 --advertise-client-urls http://127.0.0.1:1 \
         --listen-client-http-urls http://127.0.0.1:1",
        "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url \
         http://127.0.0.1:1",
    ),
    (
        "--tls-min-version TLS1.9",
        "unexpected TLS version \"TLS1.9\" (must be one of: TLS1.2, TLS1.3)",
    ),
    (
        "--tls-max-version TLS1.2 --tls-min-version TLS1.3",
        "min version (TLS1.3) is greater than max version (TLS1.2)",
    ),
    ("--cipher-suites x", "unexpected TLS cipher suite \"x\""),
    (
        "--cipher-suites TLS_AES_128_GCM_SHA256,",
        "unexpected TLS cipher suite \"\"",
    ),
    ("--cipher-suites=", "unexpected TLS cipher suite \"\""),
    (
        "--max-learners -1",
        "membership: too many learner members in cluster",
    ),
    (
        "--corrupt-check-time -1s",
        "--corrupt-check-time must be >=0 (set to -1s)",
    ),
    ("--auto-compaction-mode=", "undefined auto-compaction-mode"),
    (
        "--cipher-suites a --tls-min-version TLS1.3",
        "cipher suites cannot be configured when only TLS1.3 is enabled",
    ),
    ("--auth-token foo", "auth: invalid auth options"),
    (
        "--log-format foo",
        "unknown log format: foo, supported values json, console",
    ),
    ("--logger foo", "unknown logger option \"foo\""),
    (
        "--log-outputs default,stderr",
        "multi logoutput for \"default\" is not supported yet",
    ),
    (
        "--initial-cluster foo",
        "error setting up initial cluster: URL scheme must be http, https, unix, or unixs: ",
    ),
];

#[test]
fn contradictions_are_refused_in_etcds_words() {
    for (line, text) in REFUSED {
        let exit = build(line).unwrap_err();
        assert_eq!((exit.code(), exit.text()), (1, *text), "{line}");
    }
    let panic = build("--log-level foo").unwrap_err();
    assert_eq!(
        (panic.code(), panic.text()),
        (2, "unrecognized level: \"foo\"")
    );
}

#[test]
fn tls_and_discovery_are_refused_by_name() {
    for line in [
        "--cert-file a",
        "--auto-tls",
        "--peer-client-cert-auth",
        "--discovery-srv a.b",
        "--auth-token jwt,sign-method=HS256",
        "--force-new-cluster",
        "--memory-mlock",
    ] {
        let exit = build(line).unwrap_err();
        let name = line.split([' ', '=']).next().unwrap();
        let start = format!("{name} is not supported yet: ");
        assert!(exit.text().starts_with(&start), "{line}: {}", exit.text());
        assert_eq!(exit.code(), 1);
    }
}

#[test]
fn tuning_of_parts_that_tenon_lacks_is_accepted() {
    let line = "--backend-batch-interval 5ms --backend-bbolt-freelist-type map --max-wals 3 \
                --unsafe-no-fsync --snapshot-count 100 --v2-deprecation gone --force";
    build(line).unwrap();
}

#[test]
fn defaults_are_etcds() {
    let config = build("").unwrap();
    assert_eq!(config.member.name, "default");
    assert_eq!(config.member.data_dir, PathBuf::from("default.etcd"));
    assert_eq!(
        config.member.advertise_client_urls,
        ["http://localhost:2379"]
    );
    let members = BTreeMap::from([(
        "default".to_owned(),
        vec!["http://localhost:2380".to_owned()],
    )]);
    assert_eq!(config.member.initial_cluster, members);
    assert_eq!(config.member.quota, Quota::Bytes(2 << 30));
    assert_eq!(config.member.max_request_bytes, 1_572_864);
    assert_eq!(config.member.max_txn_ops, 128);
    assert_eq!(config.member.progress_interval, Duration::from_secs(600));
    assert_eq!(config.member.compaction, Compaction::Off);
    assert_eq!(config.max_concurrent_streams, u32::MAX);
    assert_eq!(config.warn_unary, Duration::from_millis(300));
    let tenon = Config::build(&Settings::default(), Persona::Tenon).unwrap();
    assert_eq!(tenon.member.data_dir, PathBuf::from("default.tenon"));
}

#[test]
fn the_first_cluster_follows_the_name() {
    let named = build("--name zz --initial-advertise-peer-urls http://127.0.0.1:2480").unwrap();
    let members = BTreeMap::from([("zz".to_owned(), vec!["http://127.0.0.1:2480".to_owned()])]);
    assert_eq!(named.member.initial_cluster, members);
    assert_eq!(named.member.data_dir, PathBuf::from("zz.etcd"));
    let line = "--name a --initial-cluster a=http://h:2,b=http://h:3,a=http://h:1";
    let two = build(line).unwrap();
    assert_eq!(
        two.member.initial_cluster["a"],
        ["http://h:1", "http://h:2"]
    );
}

#[test]
fn retention_means_hours_revisions_or_a_duration() {
    let cases = [
        ("", Compaction::Off),
        (
            "--auto-compaction-retention 2",
            Compaction::Periodic(Duration::from_secs(7200)),
        ),
        (
            "--auto-compaction-retention 30s",
            Compaction::Periodic(Duration::from_secs(30)),
        ),
        (
            "--auto-compaction-mode revision --auto-compaction-retention 1000",
            Compaction::Revision(1000),
        ),
        (
            "--auto-compaction-mode=revision --auto-compaction-retention=0",
            Compaction::Off,
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(build(line).unwrap().member.compaction, expected, "{line}");
    }
}
