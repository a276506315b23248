//! Room `server/shell`: what the operating system says of this process. Reads `/proc`; where that is missing
//! the families are left out.

#![allow(clippy::disallowed_methods, reason = "the shell reads /proc")]

use super::text::{Kind, Page};

/// Clock ticks per second in `/proc/self/stat`: Linux' user interface fixes it at 100.
const TICKS: f64 = 100.0;

/// Writes the process' families.
pub fn write(page: &mut Page) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    if let Some(stat) = read("stat").as_deref().and_then(parse_stat) {
        page.single(
            "process_cpu_seconds_total",
            Kind::Counter,
            "User and system CPU time spent, in seconds.",
            stat.cpu_seconds,
        );
        page.single(
            "process_virtual_memory_bytes",
            Kind::Gauge,
            "Virtual memory.",
            stat.virtual_bytes,
        );
        if let Some(boot) = boot_time() {
            page.single(
                "process_start_time_seconds",
                Kind::Gauge,
                "Start of the process, in seconds since the Unix epoch.",
                boot + stat.started_seconds,
            );
        }
    }
    if let Some(pages) = read("statm").as_deref().and_then(|s| field(s, 1)) {
        let help = "Resident memory.";
        page.single(
            "process_resident_memory_bytes",
            Kind::Gauge,
            help,
            pages * 4096,
        );
    }
    let open = std::fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    let most = read("limits").and_then(|limits| limit(&limits, "Max address space"));
    if let Some(most) = most {
        page.single(
            "process_virtual_memory_max_bytes",
            Kind::Gauge,
            "Virtual memory that may be used.",
            most,
        );
    }
    let limit = descriptors_max();
    for (name, value) in [("process_open_fds", open), ("os_fd_used", open)] {
        if let Some(value) = value {
            page.single(name, Kind::Gauge, "Open file descriptors.", value);
        }
    }
    for name in ["process_max_fds", "os_fd_limit"] {
        if let Some(limit) = limit {
            page.single(
                name,
                Kind::Gauge,
                "File descriptors that may be open.",
                limit,
            );
        }
    }
}

/// How many files may be open, where the system tells.
pub fn descriptors_max() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let limit = limit(&limits, "Max open files")?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

struct Stat {
    cpu_seconds: f64,
    started_seconds: f64,
    virtual_bytes: u64,
}

/// The fields after the program's name, which stands in parentheses and may hold anything.
fn parse_stat(text: &str) -> Option<Stat> {
    let rest = &text[text.rfind(')')? + 1..];
    let number = |index: usize| field(rest, index - 3);
    Some(Stat {
        cpu_seconds: (number(14)? + number(15)?) as f64 / TICKS,
        started_seconds: number(22)? as f64 / TICKS,
        virtual_bytes: number(23)?,
    })
}

fn field(text: &str, index: usize) -> Option<u64> {
    text.split_whitespace().nth(index)?.parse().ok()
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// The soft limit of that name; a limit that is not one counts as the largest number.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let soft = line.split_whitespace().next()?;
    Some(soft.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let text = "7 (a) b)) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 1000 8192 200";
        let stat = parse_stat(text).unwrap();
        assert!((stat.cpu_seconds - 3.0).abs() < 1e-9);
        assert!((stat.started_seconds - 10.0).abs() < 1e-9);
        assert_eq!(stat.virtual_bytes, 8192);
    }

    #[test]
    fn limits_are_the_soft_ones() {
        let text = "Limit Soft Hard Units\nMax open files            1024      4096      files\n";
        assert_eq!(limit(text, "Max open files"), Some(1024));
    }
}
