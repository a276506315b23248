//! Room `client`, command lines: one line of progress, redrawn on a terminal and printed once per step elsewhere.

use std::io::{IsTerminal, Write};
use tenon_proto::host::StatusResponse;

/// Width of the bar in characters.
const WIDTH: usize = 24;

/// Progress of a switch.
pub(super) struct Bar {
    is_terminal: bool,
    drawn: bool,
    last_step: u32,
}

impl Bar {
    pub(super) fn new() -> Bar {
        Bar {
            is_terminal: std::io::stderr().is_terminal(),
            drawn: false,
            last_step: 0,
        }
    }

    /// Shows how far the switch is.
    pub(super) fn show(&mut self, status: &StatusResponse) {
        if status.step.is_empty() {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        if self.is_terminal {
            let _ = write!(stderr, "\r\x1b[2K{}", line(status));
            let _ = stderr.flush();
            self.drawn = true;
        } else if status.step_number != self.last_step {
            let _ = writeln!(stderr, "{}", line(status));
        }
        self.last_step = status.step_number;
    }

    /// Leaves the line for what comes after.
    pub(super) fn end(&mut self) {
        if self.drawn {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
            self.drawn = false;
        }
    }
}

/// How much of the switch is done, of 1000.
fn permille(status: &StatusResponse) -> u64 {
    let steps = u64::from(status.steps.max(1));
    let before = u64::from(status.step_number.saturating_sub(1)) * 1000 / steps;
    let within = match status.entries_total {
        0 => 0,
        total => status.entries.min(total) * 1000 / total / steps,
    };
    (before + within).min(1000)
}

fn line(status: &StatusResponse) -> String {
    let full = usize::try_from(permille(status)).unwrap_or(0) * WIDTH / 1000;
    let bar = format!("{}{}", "=".repeat(full), " ".repeat(WIDTH - full));
    let mut text = format!(
        "[{bar}] {}/{} {}",
        status.step_number, status.steps, status.step
    );
    if status.entries_total > 0 {
        text += &format!(" {}/{} entries", status.entries, status.entries_total);
    }
    let seconds = |ms: u64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
    text += &format!(", {}", seconds(status.elapsed_ms));
    if status.expected_ms > status.elapsed_ms {
        text += &format!(" of about {}", seconds(status.expected_ms));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_step_entries_and_time() {
        let status = StatusResponse {
            step: "catch-up".to_owned(),
            step_number: 6,
            steps: 8,
            entries: 50,
            entries_total: 100,
            elapsed_ms: 1_250,
            expected_ms: 2_500,
            ..StatusResponse::default()
        };
        assert_eq!(
            line(&status),
            "[================        ] 6/8 catch-up 50/100 entries, 1.2 s of about 2.5 s"
        );
        assert_eq!(permille(&StatusResponse::default()), 0);
    }
}
