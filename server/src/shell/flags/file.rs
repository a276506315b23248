//! Room `server/shell`: etcd's config file: YAML, of which JSON is a part. Pure: the caller reads the file.
//! Keys that name no flag are ignored, as in etcd; durations are integer nanoseconds.

use super::settings::{Exit, Settings};
use super::table::{FLAGS, Flag};
use super::value::{Kind, Value};
use saphyr::{LoadableYamlNode, Yaml};

/// Reads the text of a config file.
pub fn read_file(text: &str) -> Result<Settings, Exit> {
    let documents = Yaml::load_from_str(text)
        .map_err(|e| Exit::Rejected(format!("error converting YAML to JSON: yaml: {e}")))?;
    let mut settings = Settings::default();
    let Some(root) = documents.first() else {
        return Ok(settings);
    };
    if !root.is_null() && !root.is_mapping() {
        let text = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal a value \
                    that is no mapping into Go value of type embed.configYAML";
        return Err(Exit::Rejected(text.to_owned()));
    }
    for flag in FLAGS.iter().filter(|flag| !flag.key.is_empty()) {
        let Some(node) = look_up(root, flag.key) else {
            continue;
        };
        if node.is_null() {
            continue;
        }
        match convert(flag, node)? {
            Value::Gates(gates) => settings.add_gates(gates),
            value => settings.put(flag, value),
        }
    }
    Ok(settings)
}

fn look_up<'a, 'b>(root: &'a Yaml<'b>, key: &str) -> Option<&'a Yaml<'b>> {
    key.split('.')
        .try_fold(root, |node, part| node.as_mapping_get(part))
}

fn convert(flag: &Flag, node: &Yaml<'_>) -> Result<Value, Exit> {
    let wrong = || wrong_type(flag, node);
    match flag.kind {
        Kind::Bool => node.as_bool().map(Value::Bool).ok_or_else(wrong),
        Kind::Int => node.as_integer().map(Value::Int).ok_or_else(wrong),
        Kind::Duration => node.as_integer().map(Value::Duration).ok_or_else(wrong),
        Kind::Uint | Kind::Uint32 => node
            .as_integer()
            .and_then(|n| u64::try_from(n).ok())
            .map(Value::Uint)
            .ok_or_else(wrong),
        Kind::List => match node.as_str() {
            Some(text) if flag.name == "cors" => Ok(Value::List(vec![text.to_owned()])),
            Some(_) => Err(wrong()),
            None => node
                .as_sequence()
                .and_then(|items| {
                    items
                        .iter()
                        .map(|i| i.as_str().map(str::to_owned))
                        .collect()
                })
                .map(Value::List)
                .ok_or_else(wrong),
        },
        Kind::Text | Kind::Urls(_) | Kind::Set | Kind::Choice(..) | Kind::Gates | Kind::Old => {
            let text = node.as_str().ok_or_else(wrong)?;
            flag.kind.read(text).map_err(|why| {
                Exit::Rejected(format!("unexpected error setting up {}: {why}", flag.name))
            })
        }
    }
}

fn wrong_type(flag: &Flag, node: &Yaml<'_>) -> Exit {
    let found = if node.is_string() {
        "string"
    } else if node.is_boolean() {
        "bool"
    } else if node.is_integer() || node.is_floating_point() {
        "number"
    } else if node.is_sequence() {
        "array"
    } else {
        "object"
    };
    let wanted = match flag.kind {
        Kind::Bool => "bool",
        Kind::Int => "int64",
        Kind::Uint => "uint",
        Kind::Uint32 => "uint32",
        Kind::Duration => "time.Duration",
        Kind::List => "[]string",
        _ => "string",
    };
    Exit::Rejected(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go \
         struct field configYAML.Config.{} of type {wanted}",
        flag.key
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_by_their_keys_nested_ones_too() {
        let text = "
# a comment
name: m1
data-dir: '/var/lib/x'
listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2
grpc-keepalive-min-time: 3000000000
heartbeat-interval: 50
pre-vote: false
quota-backend-bytes: -1
log-outputs: [stdout, stderr]
socket-options: {reuse-port: true}
client-transport-security:
  cert-file: a.pem
feature-gates: LeaseCheckpoint=true
raft-read-timeout: 5
no-such-key: {a: [1]}
wal-dir:
";
        let settings = read_file(text).unwrap();
        assert_eq!(settings.text("name"), "m1");
        assert_eq!(settings.text("data-dir"), "/var/lib/x");
        assert_eq!(settings.list("listen-client-urls").len(), 2);
        assert_eq!(settings.nanos("grpc-keepalive-min-time"), 3_000_000_000);
        assert_eq!(settings.uint("heartbeat-interval"), 50);
        assert!(!settings.flag("pre-vote"));
        assert_eq!(settings.int("quota-backend-bytes"), -1);
        assert_eq!(settings.list("log-outputs"), ["stdout", "stderr"]);
        assert!(settings.flag("socket-reuse-port"));
        assert_eq!(settings.text("cert-file"), "a.pem");
        assert!(settings.gate("LeaseCheckpoint"));
        assert!(!settings.is_set("raft-read-timeout") && !settings.is_set("wal-dir"));
    }

    #[test]
    fn json_is_yaml_and_nothing_is_nothing() {
        let settings = read_file("{\"name\": \"j\", \"max-txn-ops\": 7}").unwrap();
        assert_eq!(
            (settings.text("name").as_str(), settings.uint("max-txn-ops")),
            ("j", 7)
        );
        assert_eq!(read_file("").unwrap(), Settings::default());
    }

    #[test]
    fn wrong_types_and_values_are_refused() {
        let cases = [
            (
                "heartbeat-interval: 1s",
                "cannot unmarshal string into Go struct field configYAML.Config.heartbeat-interval of type uint",
            ),
            (
                "name: 5",
                "cannot unmarshal number into Go struct field configYAML.Config.name of type string",
            ),
            ("grpc-keepalive-min-time: 5s", "of type time.Duration"),
            (
                "listen-client-urls: [http://127.0.0.1:1]",
                "cannot unmarshal array",
            ),
            (
                "listen-client-urls: foo",
                "unexpected error setting up listen-client-urls: URL scheme must be http",
            ),
            ("name: a\n  b: c", "error converting YAML to JSON: yaml: "),
            ("- a", "no mapping"),
        ];
        for (text, expected) in cases {
            let exit = read_file(text).unwrap_err();
            assert_eq!(exit.code(), 1);
            assert!(exit.text().contains(expected), "{text}: {}", exit.text());
        }
    }
}
