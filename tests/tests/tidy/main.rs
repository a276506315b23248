//! Room `tests`: the house rules that no compiler checks, over the whole tree, without exemptions.
//!
//! - every `.rs`: at most 500 lines, functions at most 70, begins with `//!`;
//! - the arrows of the design between rooms, and versions only in the root manifest (`manifest`);
//! - the fences of determinism and of names by path (`fences`);
//! - no module named after nothing, no path of a machine, no unfinished work without an issue or ADR (`text`).
//!
//! Each rule is a pure function of text, proven able to fail by its own tests. May touch files of the tree;
//! must not build or run anything.

#![allow(clippy::disallowed_methods, reason = "reads the tree")]

mod fences;
mod licences;
mod manifest;
mod source;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The tree, and every text file in it that the rules are about.
fn tree() -> (PathBuf, Vec<(String, String)>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    files.sort();
    assert!(files.len() > 50, "found only {} files", files.len());
    (root, files)
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry
            .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
            .path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default()
            .to_owned();
        let hidden = name.starts_with('.') && ![".ci", ".cargo"].contains(&name.as_str());
        if hidden || ["target", "out", "default.tenon"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            found.push((relative.display().to_string(), text));
        }
    }
}

/// Fails with every finding, one a line.
fn report(findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

fn rust(files: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    files.iter().filter(|(path, _)| path.ends_with(".rs"))
}

#[test]
fn files_and_functions_are_short_and_begin_with_their_story() {
    let (_, files) = tree();
    let findings: Vec<String> = rust(&files)
        .flat_map(|(path, text)| source::shape(path, text))
        .collect();
    report(&findings);
}

#[test]
fn rooms_use_only_the_rooms_they_may() {
    let (_, files) = tree();
    let manifests = files
        .iter()
        .filter(|(path, _)| path.ends_with("Cargo.toml"));
    let findings: Vec<String> = manifests
        .flat_map(|(path, text)| manifest::arrows(path, text))
        .collect();
    report(&findings);
}

#[test]
fn fences_hold() {
    let (_, files) = tree();
    let tests: BTreeSet<String> = rust(&files)
        .flat_map(|(path, text)| source::test_files(path, text))
        .collect();
    let findings: Vec<String> = rust(&files)
        .filter(|(path, _)| !tests.contains(path))
        .flat_map(|(path, text)| fences::check(path, text))
        .collect();
    report(&findings);
}

#[test]
fn names_paths_and_todos() {
    let (_, files) = tree();
    let findings: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| text::check(path, text))
        .collect();
    report(&findings);
}
