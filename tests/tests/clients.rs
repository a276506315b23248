//! Room `tests`: etcd's own Go client packages against Tenon (`tests/go`): concurrency, leasing, ordering,
//! namespace, mirror, recipes, keep-alive, watch. Without Go, or when its modules cannot be downloaded, a loud
//! skip. May touch processes; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use std::path::Path;
use std::process::{Command, Output};
use tenon_tests::run::wait_ready;
use tenon_tests::schema::Schema;
use tenon_tests::server::{Kind, Server};

/// Runs `go ARGS` in the program's folder; `None` where there is no Go.
fn go(args: &[&str]) -> Option<Output> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    Command::new("go").args(args).current_dir(dir).output().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn go_client_packages() {
    // The first step that needs the network: only its failure is a skip.
    match go(&["list", "-deps", "."]) {
        None => {
            return println!("SKIP: no Go on this machine: etcd's Go client packages were not run");
        }
        Some(output) if !output.status.success() => {
            return println!("SKIP: Go modules cannot be had: {}", text(&output.stderr));
        }
        Some(_) => {}
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let program = dir.path().join("clients");
    let target = program.to_str().expect("a path in UTF-8");
    let built = go(&["build", "-o", target, "."]).expect("go was there a moment ago");
    assert!(built.status.success(), "{}", text(&built.stderr));

    let etcd = std::env::var_os("TENON_GO_ETCD").is_some();
    let kind = if etcd { Kind::Etcd } else { Kind::Tenon };
    let mut server = Server::start(kind, &[]).expect("server starts");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let schema = Schema::load().expect("schemas");
    runtime.expect("runtime").block_on(async {
        wait_ready(&schema, &mut server)
            .await
            .expect("server answers");
    });
    let endpoint = server.url();
    let output = Command::new(&program)
        .arg(endpoint)
        .output()
        .expect("the Go program runs");
    print!("{}", text(&output.stdout));
    assert!(
        output.status.success(),
        "{}\n{}\nserver log: {}",
        text(&output.stdout),
        text(&output.stderr),
        server.log_end()
    );
}
