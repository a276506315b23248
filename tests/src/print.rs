//! Room `tests`: the canonical text of an answer: fields by number, defaults left out, one top-level field a
//! line, bytes readable, and what cannot be equal between two servers masked. Pure.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value};
use std::fmt::Write as _;
use tonic::Status;

/// Longer strings and bytes are printed by their length and checksum.
const BYTES_MAX: usize = 256;

/// Fields whose value is a matter of size, time or history of the process: printed as `*` when not 0.
const MASKED: &[&str] = &[
    "etcdserverpb.StatusResponse.dbSize",
    "etcdserverpb.StatusResponse.dbSizeInUse",
    "etcdserverpb.StatusResponse.raftIndex",
    "etcdserverpb.StatusResponse.raftTerm",
    "etcdserverpb.StatusResponse.raftAppliedIndex",
    "etcdserverpb.HashResponse.hash",
];

/// Seconds of a lease's time that a script may spend.
const TTL_SPENT_MAX: i64 = 60;

/// Lists whose order etcd does not promise: printed sorted.
const UNORDERED: &[&str] = &[
    "etcdserverpb.LeaseTimeToLiveResponse.keys",
    "etcdserverpb.AlarmResponse.alarms",
];

/// How much of a message is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Everything.
    Full,
    /// Of a list of messages only how many there are, and the keys of the first and last.
    Counted,
    /// Everything but the revision of the outer header.
    Unnumbered,
    /// That it went well, and nothing else.
    Brief,
}

/// The lines of `message`.
#[must_use]
pub fn message(message: &DynamicMessage, detail: Detail) -> Vec<String> {
    if detail == Detail::Brief {
        return vec!["OK".to_owned()];
    }
    let mut lines = Vec::new();
    for field in sorted_fields(message) {
        let value = message.get_field(&field);
        if is_header(&field) && detail == Detail::Unnumbered {
            lines.push("header { revision: * }".to_owned());
        } else if is_header(&field) {
            lines.push(header(&value));
        } else if field.full_name() == "etcdserverpb.LeaseTimeToLiveResponse.TTL" {
            lines.push(remaining_ttl(message, &value));
        } else {
            lines.extend(field_lines(&field, &value, detail));
        }
    }
    lines.extend(
        message
            .unknown_fields()
            .map(|f| format!("unknown field {}", f.number())),
    );
    if lines.is_empty() {
        lines.push("(empty)".to_owned());
    }
    lines
}

/// The line of an error.
#[must_use]
pub fn status(status: &Status) -> String {
    format!(
        "{:?}({}) {}",
        status.code(),
        status.code() as i32,
        status.message()
    )
}

/// The set fields of a message by number.
fn sorted_fields(message: &DynamicMessage) -> Vec<FieldDescriptor> {
    let mut fields: Vec<FieldDescriptor> = message.fields().map(|(field, _)| field).collect();
    fields.sort_by_key(FieldDescriptor::number);
    fields
}

fn is_header(field: &FieldDescriptor) -> bool {
    matches!(field.kind(), Kind::Message(m) if m.full_name() == "etcdserverpb.ResponseHeader")
}

/// Ids and term are masked, but it shows when they are missing; `inner` when all three are.
fn header(value: &Value) -> String {
    let Value::Message(header) = value else {
        return format!("header {value:?}");
    };
    let mut out = "header {".to_owned();
    let missing: Vec<&str> = ["cluster_id", "member_id", "raft_term"]
        .into_iter()
        .filter(|name| !header.has_field_by_name(name))
        .collect();
    match missing.len() {
        0 => {}
        3 => out.push_str(" inner"),
        _ => _ = write!(out, " without {}", missing.join(", ")),
    }
    if let Some(revision) = header
        .get_field_by_name("revision")
        .and_then(|v| v.as_i64())
        && revision != 0
    {
        let _ = write!(out, " revision: {revision}");
    }
    out.push_str(" }");
    out
}

/// A time left that is plausible is printed by what was granted; anything else as it is.
fn remaining_ttl(message: &DynamicMessage, value: &Value) -> String {
    let left = value.as_i64().unwrap_or_default();
    let granted = message
        .get_field_by_name("grantedTTL")
        .and_then(|v| v.as_i64())
        .unwrap_or_default();
    match left {
        _ if left >= 0 && left <= granted && left >= granted - TTL_SPENT_MAX => {
            "TTL: at most grantedTTL".to_owned()
        }
        _ => format!("TTL: {left}"),
    }
}

fn field_lines(field: &FieldDescriptor, value: &Value, detail: Detail) -> Vec<String> {
    if let Value::List(values) = value {
        if detail == Detail::Counted && matches!(field.kind(), Kind::Message(_)) {
            return vec![counted(field, values)];
        }
        let mut lines: Vec<String> = values.iter().map(|v| one(field, v, detail)).collect();
        if UNORDERED.contains(&field.full_name()) {
            lines.sort();
        }
        return lines;
    }
    vec![one(field, value, detail)]
}

fn counted(field: &FieldDescriptor, values: &[Value]) -> String {
    let mut out = format!("{} × {}", field.name(), values.len());
    if let (Some(first), Some(last)) = (values.first(), values.last()) {
        let _ = write!(out, " ({} … {})", key_of(first), key_of(last));
    }
    out
}

/// The key of a key-value, or of the event or answer around it.
fn key_of(value: &Value) -> String {
    let Value::Message(message) = value else {
        return String::new();
    };
    for name in [
        "key",
        "kv",
        "response_put",
        "response_range",
        "response_txn",
    ] {
        match message.get_field_by_name(name).as_deref() {
            Some(Value::Bytes(bytes)) if !bytes.is_empty() => return escape(bytes),
            Some(inner @ Value::Message(_)) if message.has_field_by_name(name) => {
                return key_of(inner);
            }
            _ => {}
        }
    }
    "-".to_owned()
}

/// `name: value` or `name { … }` on one line.
fn one(field: &FieldDescriptor, value: &Value, detail: Detail) -> String {
    if MASKED.contains(&field.full_name()) {
        return format!("{}: *", field.name());
    }
    match value {
        Value::Message(_) if is_header(field) => header(value),
        Value::Message(inner) => {
            let parts: Vec<String> = sorted_fields(inner)
                .iter()
                .flat_map(|f| field_lines(f, &inner.get_field(f), detail))
                .chain(
                    inner
                        .unknown_fields()
                        .map(|f| format!("unknown field {}", f.number())),
                )
                .collect();
            match parts.is_empty() {
                true => format!("{} {{}}", field.name()),
                false => format!("{} {{ {} }}", field.name(), parts.join(" ")),
            }
        }
        _ => format!("{}: {}", field.name(), scalar(field, value)),
    }
}

fn scalar(field: &FieldDescriptor, value: &Value) -> String {
    match (value, field.kind()) {
        (Value::EnumNumber(number), Kind::Enum(descriptor)) => descriptor
            .get_value(*number)
            .map_or_else(|| number.to_string(), |known| known.name().to_owned()),
        (Value::Bytes(bytes), _) => escape(bytes),
        (Value::String(text), _) => escape(text.as_bytes()),
        (Value::Bool(v), _) => v.to_string(),
        (Value::I32(v), _) => v.to_string(),
        (Value::I64(v), _) => v.to_string(),
        (Value::U32(v), _) => v.to_string(),
        (Value::U64(v), _) => v.to_string(),
        _ => format!("{value:?}"),
    }
}

/// Bytes in quotes, printable ASCII as it is, the rest as `\n`-like or `\xhh` escapes.
fn escape(bytes: &[u8]) -> String {
    if bytes.len() > BYTES_MAX {
        return format!("<{} bytes, fnv {:08x}>", bytes.len(), fnv(bytes));
    }
    format!("\"{}\"", bytes.escape_ascii())
}

/// FNV-1a, enough to tell two long values apart in a diff.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
