//! Room `tests`: words that may not stand in a room (design §2 and §3), by path. Pure. Clippy's
//! `disallowed_methods` guards the same by resolved path; here also what it cannot see.

use crate::source::{blank, line_of, without_tests, words};

/// Where all must be deterministic.
const BELOW_THE_SHELL: &[&str] = &[
    "proto/src/",
    "storage/src/",
    "raft/src/",
    "server/src/service/",
    "server/src/host/",
];

/// Words forbidden below the shell, and what to use instead.
const DETERMINISM: &[(&str, &str)] = &[
    ("std::time::Instant", "Env's clock"),
    ("tokio::time", "Env's clock"),
    ("SystemTime", "Env's clock"),
    ("std::thread", "Env's lanes"),
    ("thread::spawn", "Env's lanes"),
    ("thread::sleep", "Env's clock"),
    ("tokio::spawn", "Env's spawn"),
    ("task::spawn", "Env's spawn"),
    ("spawn_blocking", "Env's lanes"),
    ("spawn_local", "Env's spawn"),
    ("std::fs", "Env's disk"),
    ("tokio::fs", "Env's disk"),
    ("std::net", "Env's net"),
    ("tokio::net", "Env's net"),
    ("thread_rng", "Env's rng"),
    ("rand::rng", "Env's rng"),
    ("OsRng", "Env's rng"),
    ("RandomState", "a map with an order"),
];

/// A word, the only place it may stand in, and why.
const BELONGS: &[(&str, &str, &str)] = &[
    ("openraft", "raft/", "room raft alone names openraft"),
    ("redb", "storage/", "room storage alone names its engines"),
];

/// A place, a word that may not stand in it, and why.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("storage/src/", "tokio", "storage knows no runtime"),
    ("proto/src/", "tokio", "proto knows no runtime"),
    ("proto/src/", "tenon_env", "proto is below env"),
    ("raft/src/", "tonic", "raft knows no transport"),
    (
        "server/src/service/",
        "tonic::transport",
        "services know no sockets",
    ),
    ("server/src/service/", "axum", "services know no sockets"),
    (
        "server/src/service/",
        "crate::shell",
        "services are below the shell",
    ),
    (
        "server/src/service/",
        "crate::host",
        "services are below the host",
    ),
    (
        "server/src/host/",
        "crate::shell",
        "the host is below the shell",
    ),
    ("src/", "tenon_raft", "the binary dispatches, nothing else"),
    (
        "src/",
        "tenon_storage",
        "the binary dispatches, nothing else",
    ),
    ("server/", "Plant", "only the simulator plants mistakes"),
    ("client/", "Plant", "only the simulator plants mistakes"),
    ("src/", "Plant", "only the simulator plants mistakes"),
    ("tests/", "tenon_server", "black box"),
    ("tests/", "tenon_proto", "black box"),
    ("tests/", "tenon_storage", "black box"),
];

/// Every fenced word of one file, tests aside.
pub fn check(path: &str, text: &str) -> Vec<String> {
    let code = without_tests(&blank(text));
    let mut findings = Vec::new();
    let mut find = |word: &str, why: &str| {
        // A definition under that name is not a use: openraft's runtime trait has such methods.
        for at in words(&code, word).filter(|at| !code[..*at].ends_with("fn ")) {
            findings.push(format!("{path}:{}: {word}: {why}", line_of(&code, at)));
        }
    };
    for (word, place, why) in BELONGS {
        if !path.starts_with(place) {
            find(word, why);
        }
    }
    for (_, word, why) in FORBIDDEN
        .iter()
        .filter(|(place, ..)| path.starts_with(place))
    {
        find(word, why);
    }
    if BELOW_THE_SHELL.iter().any(|place| path.starts_with(place)) {
        for (word, instead) in DETERMINISM {
            find(word, &format!("use {instead}"));
        }
        findings.extend(imports(path, &code));
        findings.extend(selects(path, &code));
    }
    findings
}

/// `use std::{fs, thread}`, `use std::time::{Duration, Instant}`: the same words, in braces.
fn imports(path: &str, code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for at in words(code, "use") {
        let item = code[at..].split(';').next().unwrap_or_default();
        let std_time = item.contains("std::time::{") && words(item, "Instant").next().is_some();
        let std_parts = item.contains("std::{")
            && ["fs", "thread", "net"]
                .iter()
                .any(|part| words(item, part).next().is_some());
        if std_time || std_parts {
            let line = line_of(code, at);
            findings.push(format!(
                "{path}:{line}: {}: ask Env",
                item.split_whitespace().collect::<String>()
            ));
        }
    }
    findings
}

/// `select!` draws its first branch at random unless told `biased`.
fn selects(path: &str, code: &str) -> Vec<String> {
    let unfair = words(code, "select").filter(|at| {
        let rest = code[at + "select".len()..].trim_start();
        rest.strip_prefix('!').is_some_and(|body| {
            !body
                .trim_start_matches([' ', '{', '(', '\n', '\t'])
                .starts_with("biased")
        })
    });
    unfair
        .map(|at| format!("{path}:{}: select! without biased", line_of(code, at)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_threads_files_and_chance_are_found_below_the_shell_only() {
        let text = "use std::time::Instant;\nuse std::time::{Duration, Instant};\nuse std::{fmt, fs};\n\
                    fn a() { tokio::spawn(b()); std::fs::read(\"x\"); std::thread::yield_now(); }\n";
        let found = check("storage/src/wal.rs", text);
        assert_eq!(
            found.iter().filter(|f| f.contains(":4:")).count(),
            4,
            "{found:?}"
        );
        for line in [":1:", ":2:", ":3:"] {
            assert!(
                found.iter().any(|f| f.contains(line)),
                "{line} in {found:?}"
            );
        }
        assert!(check("server/src/shell/listen.rs", text).is_empty());
    }

    #[test]
    fn words_in_comments_strings_and_tests_do_not_count() {
        let text =
            "// std::fs\nconst A: &str = \"openraft\";\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert!(check("storage/src/wal.rs", text).is_empty());
        assert!(check("storage/src/wal.rs", "fn duration() -> std::time::Duration").is_empty());
    }

    #[test]
    fn select_must_be_biased() {
        assert_eq!(
            check("raft/src/a.rs", "fn a() { select! { x = b() => {} } }").len(),
            1
        );
        assert!(
            check(
                "raft/src/a.rs",
                "fn a() { select! {\n  biased;\n x = b() => {} } }"
            )
            .is_empty()
        );
    }

    #[test]
    fn names_stay_in_their_rooms() {
        assert_eq!(
            check("server/src/service/kv.rs", "use openraft::Raft;").len(),
            1
        );
        assert!(check("raft/src/core.rs", "use openraft::Raft;").is_empty());
        assert_eq!(
            check("server/src/service/kv.rs", "use crate::shell::x;").len(),
            1
        );
        assert_eq!(check("storage/src/a.rs", "use tokio::sync::mpsc;").len(), 1);
    }
}
