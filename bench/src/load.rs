//! `bench`: runs etcd's `benchmark` tool and reads its summary.

use crate::Options;
use std::io;
use std::process::{Command, Stdio};

/// The tool's summary of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests per second.
    pub rate: f64,
    /// Median, seconds.
    pub p50: f64,
    /// 99th percentile, seconds.
    pub p99: f64,
}

/// Runs the tool with `words` against `endpoints`; the last summary it prints counts.
pub fn run(options: &Options, endpoints: &str, words: &[String]) -> io::Result<Load> {
    let out = Command::new(options.oracle.join("benchmark"))
        .args(["--precise", "--endpoints", endpoints])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|e| io::Error::other(format!("benchmark: {e}")))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let load = parse(&text);
    if !out.status.success() || load.rate == 0.0 || text.contains("Error distribution") {
        let tail: String = text
            .chars()
            .rev()
            .take(600)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        return Err(io::Error::other(format!(
            "benchmark {words:?}: {} …{tail}",
            out.status
        )));
    }
    Ok(load)
}

/// A load that runs until this is dropped; what it reports is not read.
pub struct Background(std::process::Child);

impl Background {
    /// Starts the tool with `words` against `endpoints`.
    pub fn start(options: &Options, endpoints: &str, words: &[String]) -> io::Result<Background> {
        let child = Command::new(options.oracle.join("benchmark"))
            .args(["--endpoints", endpoints])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| io::Error::other(format!("benchmark: {e}")))?;
        Ok(Background(child))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn parse(text: &str) -> Load {
    let number = |line: &str, key: &str| {
        line.trim()
            .strip_prefix(key)
            .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
    };
    let mut load = Load::default();
    for line in text.lines() {
        if let Some(v) = number(line, "Requests/sec:") {
            load.rate = v;
        }
        if let Some(v) = number(line, "50% in") {
            load.p50 = v;
        }
        if let Some(v) = number(line, "99% in") {
            load.p99 = v;
        }
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_summary_counts() {
        let text = "Summary:\n  Requests/sec:\t10.5\n  50% in 0.1 secs.\n\nSummary:\n  Requests/sec:\t4622.37\n\
                    Latency distribution:\n  50% in 0.0202 secs.\n  99% in 0.0446 secs.\n  99.9% in 0.05 secs.\n";
        let load = parse(text);
        assert_eq!((load.rate, load.p50, load.p99), (4622.37, 0.0202, 0.0446));
    }
}
