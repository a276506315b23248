//! Room `server/shell`: flag values as Go's flag package reads them, since etcd's texts are Go's. Pure.

use std::collections::BTreeMap;

/// What a flag holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`; on the command line the bare name means true.
    Bool,
    /// 64-bit signed number.
    Int,
    /// 64-bit unsigned number.
    Uint,
    /// 32-bit unsigned number, with the texts of etcd's own parser.
    Uint32,
    /// Go duration (`1h2m3.5s`); integer nanoseconds in a config file.
    Duration,
    /// Comma-separated URLs; the texts listed stand for themselves.
    Urls(&'static [&'static str]),
    /// Comma-separated texts; a list in a config file.
    List,
    /// Comma-separated texts, joined by commas in a config file too.
    Set,
    /// One of these; the second text is the message for any other.
    Choice(&'static [&'static str], ChoiceText),
    /// `Name=bool` pairs.
    Gates,
    /// Accepted and dropped, with or without a value.
    Old,
}

/// How a refused choice is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceText {
    /// `invalid value`
    Plain,
    /// `invalid value "x"`
    Quoted,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// [`Kind::Text`] and [`Kind::Choice`].
    Text(String),
    /// [`Kind::Bool`].
    Bool(bool),
    /// [`Kind::Int`].
    Int(i64),
    /// [`Kind::Uint`] and [`Kind::Uint32`].
    Uint(u64),
    /// Nanoseconds, possibly negative.
    Duration(i64),
    /// [`Kind::Urls`], [`Kind::List`] and [`Kind::Set`].
    List(Vec<String>),
    /// [`Kind::Gates`].
    Gates(BTreeMap<String, bool>),
}

/// The feature gates of etcd 3.7 with their defaults.
pub const GATES: &[(&str, bool)] = &[
    ("AllAlpha", false),
    ("AllBeta", false),
    ("CompactHashCheck", false),
    ("FastLeaseKeepAlive", true),
    ("InitialCorruptCheck", false),
    ("LeaseCheckpoint", false),
    ("LeaseCheckpointPersist", false),
    ("PriorityRequest", false),
    ("SetMemberLocalAddr", false),
    ("StopGRPCServiceOnDefrag", false),
    ("TxnModeWriteWithSharedBuffer", true),
];

/// A feature gate as the metrics tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// `ALPHA` or `BETA`.
    pub stage: &'static str,
    /// Whether what it stands for is on.
    pub enabled: bool,
}

impl Kind {
    /// Reads `text`; the error is Go's text for it.
    pub fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Bool => read_bool(text)
                .map(Value::Bool)
                .ok_or_else(|| PARSE_ERROR.to_owned()),
            Kind::Int => read_int(text).map(Value::Int),
            Kind::Uint => read_uint(text).map(Value::Uint),
            Kind::Uint32 => read_uint32(text).map(Value::Uint),
            Kind::Duration => read_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| PARSE_ERROR.to_owned()),
            Kind::Urls(special) if special.contains(&text) => {
                let list = if text.is_empty() {
                    vec![]
                } else {
                    vec![text.to_owned()]
                };
                Ok(Value::List(list))
            }
            Kind::Urls(_) => super::url::read_urls(text).map(Value::List),
            Kind::List | Kind::Set => Ok(Value::List(split(text))),
            Kind::Choice(allowed, _) if allowed.contains(&text) => Ok(Value::Text(text.to_owned())),
            Kind::Choice(_, ChoiceText::Plain) => Err("invalid value".to_owned()),
            Kind::Choice(_, ChoiceText::Quoted) => Err(format!("invalid value {text:?}")),
            Kind::Gates => read_gates(text).map(Value::Gates),
            Kind::Old => Ok(Value::Text(text.to_owned())),
        }
    }
}

const PARSE_ERROR: &str = "parse error";
const OUT_OF_RANGE: &str = "value out of range";

fn split(text: &str) -> Vec<String> {
    if text.is_empty() {
        vec![]
    } else {
        text.split(',').map(str::to_owned).collect()
    }
}

/// Go's `strconv.ParseBool`.
pub fn read_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// The magnitude of a Go integer with base prefix: `None` when it is none, `Some(None)` when too large.
fn magnitude(text: &str) -> Option<Option<u64>> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some(u64::from_str_radix(&plain, radix).ok())
}

fn read_int(text: &str) -> Result<i64, String> {
    let (negative, rest) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let size = magnitude(rest).ok_or(PARSE_ERROR)?.ok_or(OUT_OF_RANGE)?;
    let value = if negative {
        -i128::from(size)
    } else {
        i128::from(size)
    };
    i64::try_from(value).map_err(|_| OUT_OF_RANGE.to_owned())
}

fn read_uint(text: &str) -> Result<u64, String> {
    Ok(magnitude(text).ok_or(PARSE_ERROR)?.ok_or(OUT_OF_RANGE)?)
}

fn read_uint32(text: &str) -> Result<u64, String> {
    let fail = |why| Err(format!("strconv.ParseUint: parsing {text:?}: {why}"));
    match magnitude(text) {
        None => fail("invalid syntax"),
        Some(Some(n)) if n <= u64::from(u32::MAX) => Ok(n),
        Some(_) => fail(OUT_OF_RANGE),
    }
}

/// Go's `time.ParseDuration`, in nanoseconds.
pub fn read_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse::<u64>().ok()?.into()
        };
        total += whole * scale + fraction_of(fraction, scale);
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn fraction_of(digits: &str, scale: i128) -> i128 {
    let kept = &digits[..digits.len().min(18)];
    let value: i128 = kept.parse().unwrap_or(0);
    value * scale / 10_i128.pow(u32::try_from(kept.len()).unwrap_or(0))
}

/// A duration as Go prints it: `1m0s`, `100ms`, `0s`.
pub fn show_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let decimal = |value: u64, unit: u64| {
        let text = format!(
            "{}.{:09}",
            value / unit,
            (value % unit) * (1_000_000_000 / unit)
        );
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match n {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{n}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(n, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(n, 1_000_000)),
        _ => {
            let seconds = n / 1_000_000_000;
            let rest = decimal(n % 60_000_000_000, 1_000_000_000);
            match (seconds / 3600, seconds / 60 % 60) {
                (0, 0) => format!("{sign}{rest}s"),
                (0, m) => format!("{sign}{m}m{rest}s"),
                (h, m) => format!("{sign}{h}h{m}m{rest}s"),
            }
        }
    }
}

fn read_gates(text: &str) -> Result<BTreeMap<String, bool>, String> {
    let mut gates = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(format!("missing bool value for {pair}"));
        };
        let (name, value) = (name.trim(), value.trim());
        let value = read_bool(value).ok_or_else(|| {
            format!(
                "invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: \
                 invalid syntax"
            )
        })?;
        if !GATES.iter().any(|(known, _)| *known == name) {
            return Err(format!("unrecognized feature gate: {name}"));
        }
        gates.insert(name.to_owned(), value);
    }
    Ok(gates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let cases = [
            ("5s", Some(5_000_000_000)),
            ("2h0m0s", Some(7_200_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("-10ms", Some(-10_000_000)),
            ("100us", Some(100_000)),
            ("100µs", Some(100_000)),
            ("0", Some(0)),
            ("5", None),
            ("", None),
            ("-", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("1d", None),
            ("99999999999h", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read_duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (60_000_000_000, "1m0s"),
            (7_200_000_000_000, "2h0m0s"),
            (3_661_500_000_000, "1h1m1.5s"),
            (-2_000_000_000, "-2s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(show_duration(nanos), expected);
        }
    }

    #[test]
    fn numbers_take_gos_prefixes_and_fail_with_gos_texts() {
        let ok = [
            (Kind::Int, "-1", Value::Int(-1)),
            (Kind::Int, "0x10", Value::Int(16)),
            (Kind::Int, "1_000", Value::Int(1000)),
            (Kind::Int, "-9223372036854775808", Value::Int(i64::MIN)),
            (Kind::Uint, "010", Value::Uint(8)),
            (Kind::Uint32, "4294967295", Value::Uint(4_294_967_295)),
        ];
        for (kind, text, value) in ok {
            assert_eq!(kind.read(text), Ok(value));
        }
        let bad = [
            (Kind::Uint, "-1", "parse error"),
            (Kind::Uint, "1.5", "parse error"),
            (Kind::Int, "99999999999999999999999", "value out of range"),
            (Kind::Int, "9223372036854775808", "value out of range"),
            (
                Kind::Uint32,
                "abc",
                "strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
            (
                Kind::Uint32,
                "99999999999",
                "strconv.ParseUint: parsing \"99999999999\": value out of range",
            ),
        ];
        for (kind, text, error) in bad {
            assert_eq!(kind.read(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn gates_are_checked_by_name_and_value() {
        let bad = [
            ("Foo=true", "unrecognized feature gate: Foo"),
            ("LeaseCheckpoint", "missing bool value for LeaseCheckpoint"),
            (
                "LeaseCheckpoint=xx",
                "invalid value of LeaseCheckpoint=xx, err: strconv.ParseBool: parsing \"xx\": \
                 invalid syntax",
            ),
        ];
        for (text, error) in bad {
            assert_eq!(Kind::Gates.read(text), Err(error.to_owned()));
        }
        let gates = Kind::Gates.read("LeaseCheckpoint=true,AllBeta=f").unwrap();
        assert_eq!(
            gates,
            Value::Gates(BTreeMap::from([
                ("AllBeta".to_owned(), false),
                ("LeaseCheckpoint".to_owned(), true)
            ]))
        );
    }
}
