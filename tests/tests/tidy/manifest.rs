//! Room `tests`: which rooms a room may use (the design's arrows; there are no others), and that versions
//! stand in the root manifest only. Pure.

/// A room's package, and the rooms it may use. `?` marks one that only a feature may bring in.
const ARROWS: &[(&str, &[&str])] = &[
    // The last two for the examples only.
    (
        "Cargo.toml",
        &[
            "tenon-server",
            "tenon-client",
            "tenon-sim",
            "tenon-env",
            "tenon-proto",
        ],
    ),
    ("env/Cargo.toml", &[]),
    ("proto/Cargo.toml", &[]),
    ("storage/Cargo.toml", &["tenon-proto", "tenon-env"]),
    // A crate inside room `raft` that stands in for one of openraft's (docs/adr/0002).
    ("raft/histogram/Cargo.toml", &[]),
    (
        "raft/Cargo.toml",
        &["tenon-proto", "tenon-env", "tenon-storage"],
    ),
    (
        "client/Cargo.toml",
        &["tenon-proto", "tenon-storage?", "tenon-env?"],
    ),
    (
        "server/Cargo.toml",
        &[
            "tenon-proto",
            "tenon-env",
            "tenon-storage",
            "tenon-raft",
            "tenon-client",
        ],
    ),
    (
        "sim/Cargo.toml",
        &[
            "tenon-server",
            "tenon-raft",
            "tenon-storage",
            "tenon-client",
            "tenon-proto",
            "tenon-env",
        ],
    ),
    ("tests/Cargo.toml", &[]),
    ("bench/Cargo.toml", &["tenon-proto"]),
];

/// Wrong arrows and stray versions of one manifest.
pub fn arrows(path: &str, text: &str) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| *room == path) else {
        return vec![format!("{path}: a room the design does not know")];
    };
    let mut findings = Vec::new();
    let mut table = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = name;
        }
        let Some(name) = dependency(table, line) else {
            continue;
        };
        let at = format!("{path}:{}", index + 1);
        if !line.starts_with('[') && !line.contains("workspace = true") {
            findings.push(format!("{at}: {name}: versions stand in the root manifest"));
        }
        if !name.starts_with("tenon") {
            if name.starts_with("openraft") && path != "raft/Cargo.toml" {
                findings.push(format!("{at}: openraft belongs to room raft alone"));
            }
            continue;
        }
        let optional = format!("{name}?");
        let by_feature = line.contains("optional = true") && allowed.contains(&optional.as_str());
        if !allowed.contains(&name) && !by_feature {
            findings.push(format!("{at}: this room may not use {name}"));
        }
    }
    findings
}

/// The package a line of a dependency table names.
fn dependency<'a>(table: &'a str, line: &'a str) -> Option<&'a str> {
    if table.starts_with("workspace") {
        return None;
    }
    if let Some((kind, name)) = table.rsplit_once("dependencies.") {
        // `[dependencies.name]`: found once, at its header.
        let header = line.starts_with('[') && (kind.is_empty() || kind.ends_with(['-', '.']));
        return header.then_some(name);
    }
    if !table.ends_with("dependencies") || line.starts_with('[') {
        return None;
    }
    let name = line.split_once('=')?.0.trim();
    Some(name.split('.').next().unwrap_or(name).trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_arrow_is_found_in_every_table() {
        let text = "[dependencies]\ntenon-env.workspace = true\ntenon-raft.workspace = true\n\
                    [dev-dependencies]\ntenon-sim = { workspace = true }\n\
                    [target.'cfg(unix)'.dependencies]\ntenon-server.workspace = true\n";
        let found = arrows("storage/Cargo.toml", text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("storage/Cargo.toml:3:"), "{found:?}");
        assert_eq!(
            arrows(
                "storage/Cargo.toml",
                "[dependencies.tenon-raft]\nworkspace = true\n"
            )
            .len(),
            1
        );
    }

    #[test]
    fn optional_arrows_need_their_feature() {
        assert_eq!(
            arrows(
                "client/Cargo.toml",
                "[dependencies]\ntenon-env.workspace = true\n"
            )
            .len(),
            1
        );
        let optional = "[dependencies]\ntenon-env = { workspace = true, optional = true }\n";
        assert!(arrows("client/Cargo.toml", optional).is_empty());
    }

    #[test]
    fn stray_versions_openraft_and_unknown_rooms_are_found() {
        assert_eq!(
            arrows("env/Cargo.toml", "[dependencies]\nbytes = \"1\"\n").len(),
            1
        );
        assert_eq!(
            arrows(
                "sim/Cargo.toml",
                "[dependencies]\nopenraft.workspace = true\n"
            )
            .len(),
            1
        );
        assert_eq!(arrows("attic/Cargo.toml", "").len(), 1);
        assert!(arrows("Cargo.toml", "[workspace.dependencies]\nbytes = \"1\"\n").is_empty());
    }
}
