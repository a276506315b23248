//! Room `tests`: a snapshot taken by etcd's own tool from a running server becomes a new cluster, made by the
//! program as an operator runs it, through a link named `etcdutl` too. May touch processes and files.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use std::path::Path;
use std::process::{Command, Output};
use tenon_tests::run::until_ready;
use tenon_tests::server::{Kind, Server, oracle, tenon};

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).output().expect("runs")
}

/// What a command said that must succeed.
fn said(program: &Path, args: &[&str]) -> String {
    let output = run(program, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Fills a server and has etcd's tool save it; the lease it granted and the hash of its keys.
fn fill_and_save(etcdctl: &Path, file: &str) -> (String, String) {
    let mut first = Server::start(Kind::Tenon, &[]).expect("starts");
    until_ready(&mut first);
    let endpoints = format!("--endpoints={}", first.url());
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "3")] {
        said(etcdctl, &[&endpoints, "put", key, value]);
    }
    said(etcdctl, &[&endpoints, "del", "b"]);
    let lease = said(etcdctl, &[&endpoints, "lease", "grant", "600"]);
    let lease = lease.split_whitespace().nth(1).expect("an id").to_owned();
    said(
        etcdctl,
        &[
            &endpoints,
            "put",
            "leased",
            "v",
            &format!("--lease={lease}"),
        ],
    );
    let saved = said(etcdctl, &[&endpoints, "snapshot", "save", file]);
    assert_eq!(
        saved,
        format!("Snapshot saved at {file}\nServer version 3.7.0\n")
    );
    let hash = said(etcdctl, &[&endpoints, "endpoint", "hashkv"]);
    (lease, hash)
}

#[test]
fn etcdctls_snapshot_becomes_a_new_cluster() {
    let Some(etcdctl) = oracle("etcdctl") else {
        println!("SKIP: no etcdctl; run .ci/oracle-setup");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (file, restored, tenon) = (path("backup"), path("restored"), tenon().expect("built"));
    let (lease, hash) = fill_and_save(&etcdctl, &file);
    let link = dir.path().join("etcdutl");
    std::os::unix::fs::symlink(&tenon, &link).expect("a link");
    let status = said(&link, &["snapshot", "status", &file, "-w", "json"]);
    assert!(
        status.contains("\"revision\":6,\"totalKey\":2,"),
        "{status}"
    );
    let restore = ["util", "snapshot", "restore", &file];
    let data_dir = format!("--data-dir={restored}");
    let cluster = [
        data_dir.as_str(),
        "--initial-cluster=default=http://127.0.0.1:1",
        "--initial-advertise-peer-urls=http://127.0.0.1:1",
    ];
    let again = [&restore[..], &cluster[..]].concat();
    assert_eq!(said(&tenon, &again), "");
    let twice = run(&tenon, &again);
    let text = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert_eq!(twice.status.code(), Some(1));
    assert!(text.contains("not empty or could not be read"), "{text}");
    let bumped = [&restore[..], &["--bump-revision=5"]].concat();
    assert_eq!(run(&tenon, &bumped).status.code(), Some(128));

    let mut second = Server::start(Kind::Tenon, &[data_dir]).expect("starts");
    until_ready(&mut second);
    holds_everything(&etcdctl, &second, &lease, &hash);
}

/// The restored member has the old revisions, the hash and the lease with its key.
fn holds_everything(etcdctl: &Path, second: &Server, lease: &str, hash: &str) {
    let endpoints = format!("--endpoints={}", second.url());
    let old = said(etcdctl, &[&endpoints, "get", "a", "--rev=2"]);
    assert_eq!(old, "a\n1\n");
    let now = said(etcdctl, &[&endpoints, "get", "", "--prefix"]);
    assert_eq!(now, "a\n2\nleased\nv\n");
    let hash_now = said(etcdctl, &[&endpoints, "endpoint", "hashkv"]);
    let bare = |line: &str| line.split_once(", ").map(|(_, sum)| sum.to_owned());
    assert_eq!(bare(&hash_now), bare(hash));
    let left = said(
        etcdctl,
        &[&endpoints, "lease", "timetolive", lease, "--keys"],
    );
    assert!(left.contains("attached keys([leased])"), "{left}");
}
