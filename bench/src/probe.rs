//! `bench`: what a running process shows of itself: /proc, /metrics, /health, its folder.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// Running totals of one or more server processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// User and system time, seconds.
    pub cpu: f64,
    /// Bytes handed to the block layer.
    pub written: f64,
    /// Syncs of log and backend, from the server's own histograms.
    pub syncs: f64,
    /// Resident memory now, bytes.
    pub resident: f64,
}

impl Counters {
    /// Reads one process; `port` gives its /metrics.
    pub fn read(pid: u32, port: Option<u16>) -> Counters {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        let ticks = |i: usize| {
            fields
                .get(i)
                .and_then(|f| f.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let metrics = port.and_then(|p| get(p, "/metrics")).unwrap_or_default();
        let syncs = value_after(&metrics, "etcd_disk_wal_fsync_duration_seconds_count ")
            + value_after(&metrics, "etcd_disk_backend_commit_duration_seconds_count ");
        Counters {
            cpu: (ticks(11) + ticks(12)) / 100.0,
            written: value_after(&io, "\nwrite_bytes: "),
            syncs,
            resident: value_after(&status, "VmRSS:") * 1024.0,
        }
    }

    /// Adds another process.
    pub fn add(&mut self, other: &Counters) {
        self.cpu += other.cpu;
        self.written += other.written;
        self.syncs += other.syncs;
        self.resident += other.resident;
    }

    /// What passed since `earlier`; resident memory stays as it is now.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            cpu: self.cpu - earlier.cpu,
            written: self.written - earlier.written,
            syncs: self.syncs - earlier.syncs,
            resident: self.resident,
        }
    }
}

fn value_after(text: &str, key: &str) -> f64 {
    text.find(key)
        .map(|at| &text[at + key.len()..])
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}

/// Whether `/health` answers 200, which needs one linearizable read.
pub fn healthy(port: u16) -> bool {
    get(port, "/health").is_some()
}

/// Body of a plain HTTP GET, or `None` unless it answers 200 within five seconds.
pub fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

/// Bytes of all files below `dir`.
pub fn folder_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
