//! Room `tests`: licences, banned crates and sources of all we link, against `deny.toml` (docs/adr/0003).
//! May ask cargo for its metadata, offline; the judgement is pure.

use serde_json::Value;
use std::process::Command;

/// What `deny.toml` says.
#[derive(Debug, Default)]
struct Rules {
    licences: Vec<String>,
    banned: Vec<String>,
}

/// Reads the two lists we need; the file has no other form.
fn rules(text: &str) -> Rules {
    let mut rules = Rules::default();
    let mut table = "";
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = name;
            continue;
        }
        let quoted = line.split('"').nth(1);
        match (table, quoted) {
            ("licenses", Some(licence)) => rules.licences.push(licence.to_owned()),
            ("bans", Some(name)) if line.starts_with("{ crate") => {
                rules.banned.push(name.to_owned())
            }
            _ => {}
        }
    }
    rules
}

/// Findings over all packages of `cargo metadata`.
fn judge(rules: &Rules, metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let (name, version, licence) = (text("name"), text("version"), text("license"));
        if !allowed(licence, &rules.licences) {
            findings.push(format!(
                "{name} {version}: licence {licence:?} is not allowed"
            ));
        }
        let banned = |rule: &String| match rule.split_once('@') {
            Some((crate_name, prefix)) => name == crate_name && version.starts_with(prefix),
            None => name == rule,
        };
        if rules.banned.iter().any(banned) {
            findings.push(format!("{name} {version}: banned"));
        }
        let source = text("source");
        if !source.is_empty() && !source.contains("github.com/rust-lang/crates.io-index") {
            findings.push(format!("{name} {version}: from {source}"));
        }
    }
    findings
}

/// An SPDX expression is allowed if one way through its alternatives is.
fn allowed(expression: &str, licences: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut tokens: Vec<&str> = spaced.split_whitespace().rev().collect();
    !tokens.is_empty() && any_of(&mut tokens, licences) && tokens.is_empty()
}

fn any_of(tokens: &mut Vec<&str>, licences: &[String]) -> bool {
    let mut result = all_of(tokens, licences);
    while tokens.last() == Some(&"OR") {
        tokens.pop();
        result |= all_of(tokens, licences);
    }
    result
}

fn all_of(tokens: &mut Vec<&str>, licences: &[String]) -> bool {
    let mut result = one(tokens, licences);
    while tokens.last() == Some(&"AND") {
        tokens.pop();
        result &= one(tokens, licences);
    }
    result
}

fn one(tokens: &mut Vec<&str>, licences: &[String]) -> bool {
    let Some(token) = tokens.pop() else {
        return false;
    };
    if token == "(" {
        let inner = any_of(tokens, licences);
        return tokens.pop() == Some(")") && inner;
    }
    let mut name = token.to_owned();
    if tokens.last() == Some(&"WITH") {
        tokens.pop();
        name = format!("{name} WITH {}", tokens.pop().unwrap_or_default());
    }
    licences.contains(&name)
}

#[test]
fn licences_bans_and_sources() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let rules = rules(&std::fs::read_to_string(format!("{root}/deny.toml")).expect("deny.toml"));
    assert!(
        rules.licences.len() > 3 && rules.banned.len() > 3,
        "{rules:?}"
    );
    let version = Command::new("rustc").arg("-vV").output().expect("rustc");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .expect("rustc names its host");
    // Only what this platform links. The optional engine may not have been downloaded yet: then the network is asked.
    let metadata = |offline: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--format-version=1", "--all-features"]);
        cargo.args(["--filter-platform", host]).args(offline);
        cargo.current_dir(root).output().expect("cargo metadata")
    };
    let mut output = metadata(&["--offline"]);
    if !output.status.success() {
        output = metadata(&[]);
    }
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    assert!(
        metadata["packages"]
            .as_array()
            .is_some_and(|p| p.len() > 50)
    );
    crate::report(&judge(&rules, &metadata));
}

#[test]
fn what_is_not_allowed_is_found() {
    let rules = rules(
        "[licenses]\nallow = [\n \"MIT\",\n \"Zlib\",\n]\n[bans]\ndeny = [\n { crate = \"openssl\", \
         reason = \"no\" },\n { crate = \"sled@0.34\", reason = \"no\" },\n]\n",
    );
    let package = |name: &str, version: &str, licence: &str, source: &str| serde_json::json!({"name": name, "version": version, "license": licence, "source": source});
    let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
    let metadata = serde_json::json!({"packages": [
        package("good", "1.0.0", "GPL-3.0 OR (MIT AND Zlib)", crates_io),
        package("copyleft", "1.0.0", "MIT AND GPL-3.0", crates_io),
        package("unlicensed", "1.0.0", "", crates_io),
        package("openssl", "0.10.0", "MIT", crates_io),
        package("sled", "0.34.7", "MIT/Apache-2.0", crates_io),
        package("sled", "1.0.0-alpha.124", "MIT", crates_io),
        package("stray", "1.0.0", "MIT", "git+https://example.org/stray"),
    ]});
    let found = judge(&rules, &metadata);
    assert_eq!(found.len(), 5, "{found:?}");
    for name in ["copyleft", "unlicensed", "openssl", "sled 0.34.7", "stray"] {
        assert!(
            found.iter().any(|f| f.starts_with(name)),
            "{name} in {found:?}"
        );
    }
}
