//! Room `server/shell`: what was set, by whichever way, with the table's defaults behind it. Pure.

use super::table::{Flag, Status, find};
use super::value::{GATES, Gate, Value, show_duration};
use std::collections::BTreeMap;

/// Why the program ends before serving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `--help`: print it, exit 0.
    Help,
    /// `--version`: print it, exit 0.
    Version,
    /// The command line does not parse: print the text and the usage, exit 2.
    Usage(String),
    /// The configuration is refused: log the text, exit 1.
    Rejected(String),
    /// The log level is unknown: print a panic's first line, exit 2, as etcd does.
    Panic(String),
}

impl Exit {
    /// Exit status of the process.
    pub fn code(&self) -> u8 {
        match self {
            Exit::Help | Exit::Version => 0,
            Exit::Usage(_) | Exit::Panic(_) => 2,
            Exit::Rejected(_) => 1,
        }
    }

    /// What to say; empty for help and version.
    pub fn text(&self) -> &str {
        match self {
            Exit::Help | Exit::Version => "",
            Exit::Usage(text) | Exit::Rejected(text) | Exit::Panic(text) => text,
        }
    }
}

/// Values of flags. Reading one that was not set gives its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    set: BTreeMap<&'static str, Value>,
}

impl Settings {
    /// Sets a flag, replacing an earlier value.
    pub fn put(&mut self, flag: &'static Flag, value: Value) {
        self.set.insert(flag.name, value);
    }

    /// Adds feature gates to those set.
    pub fn add_gates(&mut self, more: BTreeMap<String, bool>) {
        let mut gates = self.gates();
        gates.extend(more);
        self.set.insert("feature-gates", Value::Gates(gates));
    }

    /// Whether somebody set it.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// Names of the flags that were set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.set.keys().copied()
    }

    fn value(&self, name: &str) -> Value {
        if let Some(value) = self.set.get(name) {
            return value.clone();
        }
        let flag = find(name).unwrap_or_else(|| panic!("flag {name} is not in the table"));
        flag.kind
            .read(flag.default)
            .expect("defaults parse, a test checks it")
    }

    /// A text flag.
    pub fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(text) => text,
            other => panic!("flag {name} is no text but {other:?}"),
        }
    }

    /// A bool flag.
    pub fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Bool(on) => on,
            other => panic!("flag {name} is no bool but {other:?}"),
        }
    }

    /// A signed number.
    pub fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Int(n) => n,
            other => panic!("flag {name} is no signed number but {other:?}"),
        }
    }

    /// An unsigned number.
    pub fn uint(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Uint(n) => n,
            other => panic!("flag {name} is no unsigned number but {other:?}"),
        }
    }

    /// A duration in nanoseconds, possibly negative.
    pub fn nanos(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Duration(n) => n,
            other => panic!("flag {name} is no duration but {other:?}"),
        }
    }

    /// A list.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Value::List(list) => list,
            other => panic!("flag {name} is no list but {other:?}"),
        }
    }

    fn gates(&self) -> BTreeMap<String, bool> {
        match self.set.get("feature-gates") {
            Some(Value::Gates(gates)) => gates.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// Every feature gate. Checkpoints of leases are always on, whatever was said of their gates.
    pub fn all_gates(&self) -> Vec<Gate> {
        let always = |name| matches!(name, "LeaseCheckpoint" | "LeaseCheckpointPersist");
        let gate = |(name, default): &(&'static str, bool)| Gate {
            name,
            stage: match *default || *name == "AllBeta" {
                true => "BETA",
                false => "ALPHA",
            },
            enabled: always(*name) || self.gate(name),
        };
        GATES.iter().map(gate).collect()
    }

    /// A feature gate: as set, or its stage's switch, or its default.
    pub fn gate(&self, name: &str) -> bool {
        let gates = self.gates();
        let (_, default) = *GATES
            .iter()
            .find(|(known, _)| *known == name)
            .expect("known gate");
        let stage = if default { "AllBeta" } else { "AllAlpha" };
        gates
            .get(name)
            .or_else(|| gates.get(stage))
            .copied()
            .unwrap_or(default)
    }

    /// The first flag that was set to something Tenon refuses.
    pub fn refused(&self) -> Option<String> {
        for (name, value) in &self.set {
            let flag = find(name).expect("only the table's flags are set");
            let Status::Refused(why) = flag.status else {
                continue;
            };
            if Ok(value) != flag.kind.read(flag.default).as_ref() {
                return Some(format!("--{name} is not supported yet: {why}"));
            }
        }
        None
    }

    /// Every flag with its value, for the log line of a start.
    pub fn show(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(text) => text,
            Value::Bool(on) => on.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Uint(n) => n.to_string(),
            Value::Duration(n) => show_duration(n),
            Value::List(list) => list.join(","),
            Value::Gates(gates) => gates
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>()
                .join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_work_yet_is_refused_by_name() {
        let mut settings = Settings::default();
        settings.put(find("cert-file").unwrap(), Value::Text(String::new()));
        assert_eq!(settings.refused(), None, "the default is no request");
        settings.put(find("cert-file").unwrap(), Value::Text("a.pem".to_owned()));
        let text = settings.refused().unwrap();
        assert!(
            text.starts_with("--cert-file is not supported yet: "),
            "{text}"
        );
    }

    #[test]
    fn gates_follow_their_stage_unless_named() {
        let mut settings = Settings::default();
        assert!(settings.gate("FastLeaseKeepAlive"));
        settings.add_gates(BTreeMap::from([("AllAlpha".to_owned(), true)]));
        settings.add_gates(BTreeMap::from([("LeaseCheckpoint".to_owned(), false)]));
        assert!(settings.gate("CompactHashCheck"));
        assert!(!settings.gate("LeaseCheckpoint"));
    }
}
