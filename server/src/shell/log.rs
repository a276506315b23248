//! Room `server/shell`: log lines as etcd writes them, one JSON object or one text line each, to stderr,
//! stdout or files. Events come from `tracing` in every room; their fields become keys.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell opens log files and reads the wall clock"
)]

use super::flags::config::LogConfig;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging for the whole process. Later calls change nothing, so that tests may call it.
pub fn start(config: &LogConfig) -> io::Result<()> {
    let mut outputs = Vec::new();
    for output in &config.outputs {
        outputs.push(match output.as_str() {
            "default" | "stderr" | "/dev/stderr" => Output::Stderr,
            "stdout" | "/dev/stdout" => Output::Stdout,
            path => Output::File(OpenOptions::new().create(true).append(true).open(path)?),
        });
    }
    let lines = Lines {
        outputs: Mutex::new(outputs),
        json: config.json,
    };
    let max = level(&config.level);
    let wanted = FilterFn::new(move |meta| {
        let shown = shown(meta.target(), max);
        *meta.level() <= shown || max >= LevelFilter::DEBUG && *meta.level() <= max
    })
    .with_max_level_hint(max);
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(wanted))
        .try_init();
    Ok(())
}

/// Libraries tell their own workings at `info`; that is our `debug`. openraft warns at every heartbeat that a dead
/// peer does not answer, and calls an orderly end an error; what matters of it the raft room says itself.
fn shown(target: &str, max: LevelFilter) -> LevelFilter {
    match target.split("::").next() {
        Some("openraft") => LevelFilter::OFF,
        Some(ours) if ours.starts_with("tenon") => max,
        _ => LevelFilter::WARN.min(max),
    }
}

fn level(name: &str) -> LevelFilter {
    match name {
        "debug" => LevelFilter::DEBUG,
        "info" => LevelFilter::INFO,
        "warn" => LevelFilter::WARN,
        _ => LevelFilter::ERROR,
    }
}

enum Output {
    Stderr,
    Stdout,
    File(File),
}

struct Lines {
    outputs: Mutex<Vec<Output>>,
    json: bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let meta = event.metadata();
        let caller = caller(meta.file(), meta.line());
        let fatal = fields.rest.remove("fatal").is_some();
        let level = if fatal {
            "fatal"
        } else {
            level_name(*meta.level())
        };
        let line = if self.json {
            json_line(level, &timestamp(SystemTime::now()), &caller, fields)
        } else {
            text_line(level, &timestamp(SystemTime::now()), &caller, fields)
        };
        // A log that cannot be written must not stop the member.
        for output in self.outputs.lock().iter_mut() {
            let _ = match output {
                Output::Stderr => io::stderr().write_all(line.as_bytes()),
                Output::Stdout => io::stdout().write_all(line.as_bytes()),
                Output::File(file) => file.write_all(line.as_bytes()),
            };
        }
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    }
}

/// The last folder and the file, as in etcd's `caller`.
fn caller(file: Option<&str>, line: Option<u32>) -> String {
    let file = file.unwrap_or("?");
    let short = match file.rmatch_indices('/').nth(1) {
        Some((at, _)) => &file[at + 1..],
        None => file,
    };
    format!("{short}:{}", line.unwrap_or(0))
}

fn json_line(level: &str, ts: &str, caller: &str, fields: Fields) -> String {
    let msg = Value::String(fields.message);
    let mut text =
        format!("{{\"level\":\"{level}\",\"ts\":\"{ts}\",\"caller\":\"{caller}\",\"msg\":{msg}");
    for (name, value) in fields.rest {
        let _ = write!(text, ",{}:{value}", Value::String(name));
    }
    text.push_str("}\n");
    text
}

fn text_line(level: &str, ts: &str, caller: &str, fields: Fields) -> String {
    let rest = Value::Object(fields.rest);
    let rest = if rest.as_object().is_some_and(Map::is_empty) {
        String::new()
    } else {
        format!("\t{rest}")
    };
    format!("{ts}\t{level}\t{caller}\t{}{rest}\n", fields.message)
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            // Field names cannot hold dashes in the macros; etcd's keys do.
            (name, value) => {
                self.rest.insert(name.replace('_', "-"), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

/// `2026-11-30T17:33:35.239010Z`.
pub fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(i64::try_from(days).unwrap_or(0));
    let mut text = String::with_capacity(27);
    let _ = write!(
        text,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_micros()
    );
    text
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar. Counts in eras of 400 years
/// that begin on 1 March, so that the leap day is an era's last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_utc_with_microseconds() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (1_796_052_815, "2026-11-30T15:33:35.000000Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(
                timestamp(UNIX_EPOCH + Duration::from_secs(seconds)),
                expected
            );
        }
        let fine = UNIX_EPOCH + Duration::from_micros(1);
        assert_eq!(timestamp(fine), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn lines_are_one_object_each() {
        let fields = Fields {
            message: "two\nlines \"quoted\"".into(),
            rest: Map::from_iter([("took".to_owned(), Value::from(3))]),
        };
        let line = json_line("info", "T", "a/b.rs:1", fields);
        assert_eq!(line.matches('\n').count(), 1);
        let back: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["msg"], "two\nlines \"quoted\"");
        assert_eq!(back["took"], 3);
        assert_eq!(
            caller(Some("server/src/shell/log.rs"), Some(7)),
            "shell/log.rs:7"
        );
    }
}
