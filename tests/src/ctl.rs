//! Room `tests`: real etcdctl as a command of a script: what it prints and how it exits, with times, sizes and
//! terms masked. May touch processes; must not compare.
//!
//! - `ctl ARGS [<<< "stdin"]`: runs to the end; its lines, then `exit N` when not 0.
//! - `ctl ARGS -> name=hex:N`: remembers the N-th word of the first line, a hex id.
//! - `start p ARGS`, `lines p N`, `stop p`: one that does not end by itself.
//!
//! Words may be quoted `"…"` with `\n` and `\"` inside.

use crate::server::oracle;
use crate::table;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// How long etcdctl may take, and how long `lines` waits for each line.
const CTL_MAX: Duration = Duration::from_secs(15);

/// Values that follow these are sizes, times or terms.
const MASKED_AFTER: &[&str] = &[
    "took = ",
    "]. took ",
    "\"took\":",
    "\"Took\" : ",
    "\"raft_term\":",
    "\"RaftTerm\" : ",
    "\"raftTerm\":",
    "\"dbSize\":",
    "\"dbSizeInUse\":",
    "\"raftIndex\":",
    "\"raftAppliedIndex\":",
    "\"DBSize\" : ",
    "\"DBSizeInUse\" : ",
    "\"RaftIndex\" : ",
    "\"RaftAppliedIndex\" : ",
    "remaining(",
];

/// Columns of the simple form of `endpoint status` that are sizes, term and indices.
const STATUS_COLUMNS: &[usize] = &[4, 5, 6, 10, 11, 12];

/// The etcdctl processes a script left running, by name.
#[derive(Default)]
pub struct Ctl {
    running: BTreeMap<String, (Child, Lines<BufReader<ChildStdout>>)>,
}

impl Ctl {
    /// Runs etcdctl to its end.
    ///
    /// # Errors
    /// When etcdctl is missing or does not end in time.
    pub async fn run(&self, url: &str, text: &str) -> Result<Vec<String>, String> {
        let (args, stdin) = text.split_once("<<< ").unwrap_or((text, ""));
        let mut command = command(url, args)?;
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let mut input = child.stdin.take().ok_or("no stdin")?;
        for text in words(stdin)? {
            input
                .write_all(text.as_bytes())
                .await
                .map_err(|e| e.to_string())?;
        }
        drop(input);
        let output = timeout(CTL_MAX, child.wait_with_output()).await;
        let output = output
            .map_err(|_| "etcdctl did not end".to_owned())?
            .map_err(|e| e.to_string())?;
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(mask)
            .collect();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // etcdctl logs its retries as JSON; they are not its answer.
        lines.extend(
            errors
                .lines()
                .filter(|l| !l.starts_with('{'))
                .map(|l| format!("stderr: {}", mask(l))),
        );
        if !output.status.success() {
            lines.push(format!("exit {}", output.status.code().unwrap_or(-1)));
        }
        let lines = table::narrowed(&lines);
        Ok(lines.iter().map(|line| shown(line)).collect())
    }

    /// Starts etcdctl and leaves it running as `name`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, url: &str, name: &str, args: &str) -> Result<(), String> {
        let mut child = command(url, args)?.spawn().map_err(|e| e.to_string())?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        self.running.insert(name.to_owned(), (child, lines));
        Ok(())
    }

    /// The next `count` lines of `name`.
    ///
    /// # Errors
    /// When no such process runs.
    pub async fn lines(&mut self, name: &str, count: usize) -> Result<Vec<String>, String> {
        let (_, lines) = self
            .running
            .get_mut(name)
            .ok_or_else(|| format!("no process {name}"))?;
        let mut found = Vec::new();
        for _ in 0..count {
            let (line, more) = match timeout(CTL_MAX, lines.next_line()).await {
                Ok(Ok(Some(line))) => (shown(&mask(&line)), true),
                Ok(_) => ("(end)".to_owned(), false),
                Err(_) => ("(nothing more)".to_owned(), false),
            };
            found.push(line);
            if !more {
                break;
            }
        }
        Ok(found)
    }

    /// Ends `name`.
    pub fn stop(&mut self, name: &str) {
        self.running.remove(name);
    }
}

/// A line that is part of a script: an empty one would end the answer there.
fn shown(line: &str) -> String {
    if line.is_empty() {
        "(empty line)".to_owned()
    } else {
        line.to_owned()
    }
}

fn command(url: &str, args: &str) -> Result<Command, String> {
    let program = oracle("etcdctl").ok_or("no etcdctl: run .ci/oracle-setup")?;
    let mut command = Command::new(program);
    command
        .env_clear()
        .arg(format!("--endpoints={url}"))
        .args(words(args)?);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok(command)
}

/// Splits at blanks outside quotes; unescapes `\n`, `\"` and `\\` inside them.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut found, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if quoted => word.get_or_insert_default().push(match chars.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => return Err("a lone backslash".to_owned()),
            }),
            ' ' if !quoted => found.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    found.extend(word.take());
    if quoted {
        Err(format!("open quote: {text}"))
    } else {
        Ok(found)
    }
}

/// `line` with its sizes, times and terms as `*`; a list of members in the order of their names.
fn mask(line: &str) -> String {
    let mut line = line.to_owned();
    if let Some(list) = line.strip_prefix("ETCD_INITIAL_CLUSTER=\"") {
        let mut members: Vec<&str> = list.trim_end_matches('"').split(',').collect();
        members.sort_unstable();
        line = format!("ETCD_INITIAL_CLUSTER=\"{}\"", members.join(","));
    }
    for key in MASKED_AFTER {
        let mut from = 0;
        while let Some(at) = line[from..].find(key) {
            let start = from + at + key.len();
            let length = line[start..]
                .find([',', '}', ')', ' '])
                .unwrap_or(line.len() - start);
            line.replace_range(start..start + length, "*");
            from = start;
        }
    }
    let mut columns: Vec<&str> = line.split(", ").collect();
    if columns.len() == 16 {
        STATUS_COLUMNS.iter().for_each(|i| columns[*i] = "*");
        line = columns.join(", ");
    }
    line
}

/// The N-th word of the first line as a hex id, for `name=hex:N`.
///
/// # Errors
/// When there is no such word.
pub fn hex_word(lines: &[String], place: &str) -> Result<i128, String> {
    let index: usize = place
        .strip_prefix("hex:")
        .and_then(|n| n.parse().ok())
        .ok_or("hex:N")?;
    let word = lines
        .first()
        .and_then(|line| line.split_whitespace().nth(index));
    let word = word.ok_or_else(|| format!("no word {index} in {lines:?}"))?;
    let id = u64::from_str_radix(word, 16).map_err(|e| format!("{word}: {e} in {lines:?}"))?;
    Ok(i128::from(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_unquoted() {
        assert_eq!(words("put \"a b\" -w  json \"x\\n\\\"\" \"\""), {
            Ok(["put", "a b", "-w", "json", "x\n\"", ""]
                .map(str::to_owned)
                .to_vec())
        });
        assert!(words("put \"a").is_err());
    }

    #[test]
    fn times_sizes_and_terms_are_masked() {
        assert_eq!(mask("x: took = 7.07ms"), "x: took = *");
        assert_eq!(
            mask("{\"raft_term\":2},\"dbSize\":20,\"x\":1}"),
            "{\"raft_term\":*},\"dbSize\":*,\"x\":1}"
        );
        assert_eq!(
            hex_word(&["lease 00ff granted".to_owned()], "hex:1"),
            Ok(255)
        );
    }
}
