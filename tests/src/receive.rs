//! Room `tests`: what arrives on a script's stream, told in lines. May wait; must not compare.

use crate::print::{self, Detail};
use crate::schema::Schema;
use crate::stream::{Arrival, Stream};
use prost_reflect::MethodDescriptor;
use std::time::{Duration, Instant};

/// How long `recv` waits for each message unless told, and `drain` for everything.
pub const RECV_MAX: Duration = Duration::from_secs(8);
/// How long `silent` listens.
pub const SILENCE: Duration = Duration::from_millis(400);

/// Whether the order of what is told matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As it came.
    Kept,
    /// Sorted.
    Sorted,
}

/// The next `count` arrivals, each introduced by `--`.
pub async fn receive(
    stream: &mut Stream,
    count: usize,
    detail: Detail,
    order: Order,
    wait: Duration,
) -> Vec<String> {
    let mut answers = Vec::new();
    for _ in 0..count {
        match stream.next(wait).await {
            None => {
                answers.push(vec![format!("-- nothing within {} ms", wait.as_millis())]);
                break;
            }
            Some(arrival) => {
                answers.push(arrival_lines(&arrival, detail));
                if matches!(arrival, Arrival::End(_)) {
                    break;
                }
            }
        }
    }
    if order == Order::Sorted {
        answers.sort();
    }
    answers.concat()
}

/// All events of a watch up to now, whatever responses they came in: it asks for progress, whose answer
/// comes after them, again and again (a watcher that is behind is not answered).
///
/// # Errors
/// When it cannot be asked, or does not catch up.
pub async fn drain(stream: &mut Stream, method: &MethodDescriptor) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let deadline = Instant::now() + RECV_MAX;
    while Instant::now() < deadline {
        stream.send(Schema::request(method.input(), "progress_request { }")?)?;
        while let Some(arrival) = stream.next(SILENCE).await {
            let new = arrival_lines(&arrival, Detail::Full);
            if matches!(arrival, Arrival::End(_)) || new.iter().any(|line| line == "watch_id: -1") {
                return Ok(lines);
            }
            lines.extend(new.into_iter().filter(|line| line.starts_with("events")));
        }
    }
    Err("no progress".to_owned())
}

/// The lines of one arrival.
#[must_use]
pub fn arrival_lines(arrival: &Arrival, detail: Detail) -> Vec<String> {
    match arrival {
        Arrival::End(None) => vec!["-- end".to_owned()],
        Arrival::End(Some(status)) => vec![format!("-- end: {}", print::status(status))],
        Arrival::Message(message) => {
            let mut lines = vec!["--".to_owned()];
            lines.extend(print::message(message, detail));
            lines
        }
    }
}
