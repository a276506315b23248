//! Room `tests`: rules about any text of the tree: names of modules, paths of machines, TODOs. Pure.

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &[
    "utils", "common", "helpers", "helper", "manager", "managers", "misc",
];

/// Beginnings of paths that exist on one machine only. In pieces, so that this file passes its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
];

/// Marks of unfinished work.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// All findings of one file.
pub fn check(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let named = |part: &str| EMPTY_NAMES.contains(&part.trim_end_matches(".rs"));
    if path.ends_with(".rs") && path.split('/').any(named) {
        findings.push(format!("{path}: a module is a noun of the field"));
    }
    let code = [".rs", ".toml", ".proto", ".go"]
        .iter()
        .any(|end| path.ends_with(end))
        || path.starts_with(".ci/");
    for (index, line) in text.lines().enumerate() {
        let at = || format!("{path}:{}", index + 1);
        let name = line.trim().trim_start_matches("pub ").strip_prefix("mod ");
        let name = name.map(|n| n.trim_end_matches([' ', ';', '{']));
        if path.ends_with(".rs") && name.is_some_and(named) {
            findings.push(format!("{}: a module is a noun of the field", at()));
        }
        if MACHINE_PATHS
            .iter()
            .any(|machine| holds_path(line, machine))
        {
            findings.push(format!("{}: a path of one machine", at()));
        }
        if code && MARKS.iter().any(|mark| unfounded(line, mark)) {
            findings.push(format!(
                "{}: unfinished work needs (#issue) or (ADR n)",
                at()
            ));
        }
    }
    findings
}

/// `machine` begins a path here, rather than standing inside a longer one.
fn holds_path(line: &str, machine: &str) -> bool {
    line.match_indices(machine).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}/$)>*".contains(c))
    })
}

/// `mark` stands here as a word without `(#12)` or `(ADR 3)` behind it.
fn unfounded(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + mark.len()..];
        let word =
            !before.is_some_and(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        let reason = after
            .strip_prefix("(#")
            .or_else(|| after.strip_prefix("(ADR "));
        word && !reason.is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found() {
        assert_eq!(check("raft/src/utils.rs", "").len(), 1);
        assert_eq!(check("raft/src/common/log.rs", "").len(), 1);
        assert_eq!(
            check("raft/src/lib.rs", "pub mod helpers;\nmod log;\n").len(),
            1
        );
    }

    #[test]
    fn machine_paths_are_found() {
        for machine in MACHINE_PATHS {
            assert_eq!(
                check("docs/a.md", &format!("in `{machine}x`")).len(),
                1,
                "{machine}"
            );
            assert!(
                check("docs/a.md", &format!("in ./some{machine}x")).is_empty(),
                "{machine}"
            );
        }
    }

    #[test]
    fn unfinished_work_needs_a_reason() {
        for mark in MARKS {
            assert_eq!(
                check("a/src/b.rs", &format!("// {mark}: later")).len(),
                1,
                "{mark}"
            );
            assert!(
                check("a/src/b.rs", &format!("// {mark}(#12): later")).is_empty(),
                "{mark}"
            );
            assert!(
                check("a/src/b.rs", &format!("// {mark}(ADR 3): later")).is_empty(),
                "{mark}"
            );
        }
    }
}
