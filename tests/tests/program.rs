//! Room `tests`: the program as an init system and an operator meet it: the link named `etcd`, READY=1, SIGTERM,
//! one process on one directory, what does not work yet refused by name. May touch processes; must not look
//! inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenon_tests::run::until_ready;
use tenon_tests::server::{Kind, Server, tenon};

/// How long the server may take until it says READY=1.
const READY_MAX: Duration = Duration::from_secs(30);

/// A link to the binary, named `etcd`.
fn link_in(dir: &Path) -> PathBuf {
    let link = dir.join("etcd");
    std::os::unix::fs::symlink(tenon().expect("a tenon binary"), &link).expect("a link");
    link
}

#[test]
fn a_link_named_etcd_serves_says_ready_and_ends_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("notify");
    let heard = UnixDatagram::bind(&socket).expect("a socket");
    heard
        .set_read_timeout(Some(READY_MAX))
        .expect("a time limit");
    let env = [("NOTIFY_SOCKET", socket.as_path())];
    let link = link_in(dir.path());
    let mut server = Server::start_program(Kind::Tenon, link, &[], &env).expect("starts");
    let mut bytes = [0; 256];
    let length = heard
        .recv(&mut bytes)
        .expect("a message to the init system");
    let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(message.lines().any(|line| line == "READY=1"), "{message:?}");
    until_ready(&mut server);
    assert!(
        server.data_dir().join("member/wal").is_dir(),
        "programs look for etcd's folder"
    );
    assert_eq!(server.stop(), Some(0), "SIGTERM: {}", server.log_end());
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let mut first = Server::start(Kind::Tenon, &[]).expect("starts");
    until_ready(&mut first);
    let data = format!("--data-dir={}", first.data_dir().display());
    let mut second = Server::start(Kind::Tenon, &[data]).expect("starts");
    let end = (0..400).find_map(|_| {
        std::thread::sleep(Duration::from_millis(25));
        second.check_running().err()
    });
    let end = end.expect("the second process ends by itself");
    assert!(
        end.contains("lock") || end.contains("use"),
        "says why: {end}"
    );
    first.check_running().expect("the first goes on");
}

#[test]
fn what_does_not_work_is_refused_by_name() {
    for flag in [
        "--auto-tls",
        "--discovery-srv=example.org",
        "--no-such-flag",
    ] {
        let output = Command::new(tenon().expect("a tenon binary"))
            .args(["serve", flag])
            .output();
        let output = output.expect("runs");
        assert!(!output.status.success(), "{flag}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let name = flag
            .trim_start_matches('-')
            .split('=')
            .next()
            .unwrap_or_default();
        assert!(said.contains(name), "{flag}: {said}");
    }
}

#[test]
fn version_and_help_name_the_program() {
    for (argument, text) in [("--version", "3.7"), ("--help", "--data-dir")] {
        let output = Command::new(tenon().expect("a tenon binary"))
            .arg(argument)
            .output();
        let output = output.expect("runs");
        assert!(output.status.success(), "{argument}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(text), "{argument}: {said}");
    }
}
