//! Room `server/shell`: the arguments of `tenon util`: words, and flags as `--name value`, `--name=value` or `-w
//! value`. Pure.

use std::collections::BTreeMap;

/// Flags that take a value.
const VALUES: [&str; 11] = [
    "data-dir",
    "wal-dir",
    "name",
    "initial-cluster",
    "initial-cluster-token",
    "initial-advertise-peer-urls",
    "initial-memory-map-size",
    "bump-revision",
    "storage-engine",
    "write-out",
    "timeout",
];
/// Flags that are on or off.
const SWITCHES: [&str; 3] = ["skip-hash-check", "mark-compacted", "help"];

/// What was given.
#[derive(Debug, Default)]
pub(super) struct Args {
    words: Vec<String>,
    flags: BTreeMap<&'static str, String>,
}

fn known(name: &str) -> Result<&'static str, String> {
    let long = match name {
        "-w" => "write-out",
        "-h" => "help",
        _ => name
            .strip_prefix("--")
            .ok_or_else(|| format!("unknown shorthand flag: {name}"))?,
    };
    let mut all = VALUES.iter().chain(&SWITCHES);
    all.find(|flag| **flag == long)
        .copied()
        .ok_or_else(|| format!("unknown flag: {name}"))
}

impl Args {
    /// Reads them; the error says what is wrong.
    pub(super) fn read(args: &[String]) -> Result<Args, String> {
        let mut read = Args::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if !arg.starts_with('-') {
                read.words.push(arg.clone());
                continue;
            }
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            let flag = known(name)?;
            let value = match value {
                Some(value) => value,
                None if SWITCHES.contains(&flag) => "true".to_owned(),
                None => {
                    let next = rest.next();
                    next.cloned()
                        .ok_or_else(|| format!("flag needs an argument: {name}"))?
                }
            };
            if SWITCHES.contains(&flag) && !["true", "false"].contains(&value.as_str()) {
                return Err(format!("invalid argument {value:?} for {name:?} flag"));
            }
            read.flags.insert(flag, value);
        }
        Ok(read)
    }

    /// The words in order.
    pub(super) fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// A flag's value, when it was given.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.flags.get(name).map(String::as_str)
    }

    /// Whether a switch is on.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.value(name) == Some("true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Args, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Args::read(&args)
    }

    #[test]
    fn flags_stand_anywhere_in_either_form() {
        let args = read(&[
            "snapshot",
            "--data-dir=d",
            "restore",
            "--mark-compacted",
            "f",
            "-w",
            "json",
            "--skip-hash-check=false",
        ]);
        let args = args.expect("read");
        assert_eq!(args.words(), ["snapshot", "restore", "f"]);
        assert_eq!(args.value("data-dir"), Some("d"));
        assert_eq!(args.value("write-out"), Some("json"));
        assert_eq!(args.value("name"), None);
        assert!(args.flag("mark-compacted") && !args.flag("skip-hash-check"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (args, text) in [
            (&["--what"][..], "unknown flag: --what"),
            (&["-x"], "unknown shorthand flag: -x"),
            (&["--name"], "flag needs an argument: --name"),
            (
                &["--mark-compacted=maybe"],
                "invalid argument \"maybe\" for \"--mark-compacted\" flag",
            ),
        ] {
            assert_eq!(read(args).expect_err("refused"), text);
        }
    }
}
