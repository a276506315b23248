//! Room `server/shell`: `snapshot restore`. Its flags are those of `serve` with the same names and are checked by
//! the same code.

use super::Failure;
use super::args::Args;
use crate::member::config::MemberConfig;
use crate::member::restore::{Source, restore};
use crate::shell::flags::config::LogConfig;
use crate::shell::flags::{self, Persona};
use crate::shell::log;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tenon_storage::archive::HashCheck;

/// Flags that mean here what they mean for a server.
const OF_SERVE: [&str; 7] = [
    "data-dir",
    "wal-dir",
    "name",
    "initial-cluster",
    "initial-cluster-token",
    "initial-advertise-peer-urls",
    "storage-engine",
];

pub(super) fn run(args: &Args, file: &str) -> Result<String, Failure> {
    let config = config(args)?;
    let source = source(args, file)?;
    let quiet = LogConfig {
        level: "info".into(),
        json: true,
        outputs: vec!["stderr".into()],
    };
    let _ = log::start(&quiet);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
    let dir = config.data_dir.display().to_string();
    tracing::info!(path = file, data_dir = dir, "restoring snapshot");
    let done = runtime.block_on(async {
        let env = tenon_env::real::env_without_peers();
        restore(&env, &config, source).await
    });
    let (identity, revision) = done.map_err(|error| Failure::Failed(error.to_string()))?;
    tracing::info!(
        path = file,
        data_dir = dir,
        local_member_id = %identity.member,
        cluster_id = %identity.cluster,
        revision = revision.get(),
        "restored snapshot"
    );
    Ok(String::new())
}

/// The configuration that `serve` would have with these flags, and etcdutl's default directory.
fn config(args: &Args) -> Result<MemberConfig, Failure> {
    let mut given: Vec<String> = OF_SERVE
        .iter()
        .filter_map(|name| Some(format!("--{name}={}", args.value(name)?)))
        .collect();
    if args.value("data-dir").is_none_or(str::is_empty) {
        let name = args.value("name").unwrap_or("default");
        given.retain(|flag| !flag.starts_with("--data-dir="));
        given.push(format!("--data-dir={name}.etcd"));
    }
    let none = |_: &str| Err("no file is read".to_owned());
    let loaded = flags::load(&given, &BTreeMap::new(), Persona::Etcd, none);
    let loaded = loaded.map_err(|exit| Failure::Usage(exit.text().to_owned()))?;
    Ok(loaded.config.member)
}

fn source(args: &Args, file: &str) -> Result<Source, Failure> {
    let bump = args.value("bump-revision").unwrap_or("0");
    let bump_revision: u64 = bump.parse().map_err(|_| {
        Failure::Usage(format!(
            "invalid argument {bump:?} for \"--bump-revision\" flag"
        ))
    })?;
    if (bump_revision > 0) != args.flag("mark-compacted") {
        let text = "--mark-compacted required if --revision-bump > 0";
        return Err(Failure::Usage(text.into()));
    }
    let check = if args.flag("skip-hash-check") {
        HashCheck::Skip
    } else {
        HashCheck::Verify
    };
    Ok(Source {
        file: PathBuf::from(file),
        check,
        bump_revision,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Args {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Args::read(&args).expect("read")
    }

    #[test]
    fn defaults_are_etcdutls() {
        let config = config(&args(&["--name", "n", "--initial-cluster=n=http://h:1"]));
        let Ok(config) = config else {
            panic!("these fit together");
        };
        assert_eq!(config.data_dir, PathBuf::from("n.etcd"));
        assert_eq!(config.cluster_token, "etcd-cluster");
        assert_eq!(config.advertise_peer_urls, ["http://localhost:2380"]);
    }

    #[test]
    fn bumping_and_marking_go_together() {
        for (given, fits) in [
            (&[][..], true),
            (&["--bump-revision=5", "--mark-compacted"], true),
            (&["--bump-revision=5"], false),
            (&["--mark-compacted"], false),
            (&["--bump-revision=-5"], false),
        ] {
            assert_eq!(source(&args(given), "f").is_ok(), fits, "{given:?}");
        }
    }
}
