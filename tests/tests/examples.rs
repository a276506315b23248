//! Room `tests`: the example of another language runs as a user would run it (`examples/go-sidecar`). Without Go, or
//! when its modules cannot be downloaded, a loud skip. May touch processes; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use std::path::Path;
use std::process::{Command, Output};
use tenon_tests::cluster::Cluster;
use tenon_tests::ports;
use tenon_tests::server::tenon;

fn go(args: &[&str]) -> Option<Output> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/go-sidecar");
    Command::new("go").args(args).current_dir(dir).output().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_go_program_with_tenon_as_its_sidecar() {
    // The first step that needs the network: only its failure is a skip.
    match go(&["list", "-deps", "."]) {
        None => return println!("SKIP: no Go on this machine: examples/go-sidecar was not run"),
        Some(output) if !output.status.success() => {
            return println!("SKIP: Go modules cannot be had: {}", text(&output.stderr));
        }
        Some(_) => {}
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let program = dir.path().join("sidecar");
    let target = program.to_str().expect("a path in UTF-8");
    let built = go(&["build", "-o", target, "."]).expect("go was there a moment ago");
    assert!(built.status.success(), "{}", text(&built.stderr));
    let cluster = Cluster::found(3, &["--log-level=warn"]);
    let urls: Vec<&str> = cluster.members.iter().map(|m| m.url.as_str()).collect();
    let folder = dir.path().join("run");
    let output = Command::new(&program)
        .arg("-tenon")
        .arg(tenon().expect("the program"))
        .args(["-members", &urls.join(",")])
        .arg("-dir")
        .arg(&folder)
        .args(["-client", &ports::url(), "-peer", &ports::url()])
        .output()
        .expect("the Go program runs");
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let end = log.len().saturating_sub(3000);
    print!("{}", text(&output.stdout));
    assert!(
        output.status.success() && text(&output.stdout).contains("became a server"),
        "{}{}\nits log: {}",
        text(&output.stdout),
        text(&output.stderr),
        log.get(end..).unwrap_or(&log)
    );
}
