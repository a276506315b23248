//! Room `tests`: one HTTP/1 request of a script, and what matters of the answer. May touch sockets.
//!
//! `http METHOD PATH [header: value …]`: status, content type, the body's lines. Names of metrics come and go
//! by server; `metrics NAME…` says which of the named ones there are.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer, as far as a script tells of it.
struct Answer {
    status: String,
    content_type: Option<String>,
    allow: Option<String>,
    body: String,
}

/// Sends `METHOD PATH` to `url` (`http://host:port`); the lines of the answer.
///
/// # Errors
/// What the socket said, or that the answer is no HTTP.
pub async fn request(url: &str, text: &str) -> Result<Vec<String>, String> {
    let answer = send(url, text).await?;
    let mut lines = vec![answer.status];
    lines.extend(answer.allow.map(|value| format!("allow: {value}")));
    lines.extend(
        answer
            .content_type
            .map(|value| format!("content-type: {value}")),
    );
    let mut body: Vec<String> = answer
        .body
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    // The checks of a health answer come in any order.
    body.sort_by_key(|line| {
        if line.starts_with('[') {
            line.get(3..).map(str::to_owned)
        } else {
            None
        }
    });
    lines.extend(body);
    Ok(lines)
}

/// Which of `names` stand in `/metrics`.
///
/// # Errors
/// As [`request`].
pub async fn metrics(url: &str, names: &str) -> Result<Vec<String>, String> {
    let body = send(url, "GET /metrics").await?.body;
    let is_there = |name: &str| {
        body.lines().any(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        })
    };
    let mark = |name: &str| format!("{name} {}", if is_there(name) { "yes" } else { "no" });
    Ok(names.split_whitespace().map(mark).collect())
}

/// The body of `/metrics`.
///
/// # Errors
/// As [`request`].
pub async fn metrics_page(url: &str) -> Result<String, String> {
    Ok(send(url, "GET /metrics").await?.body)
}

async fn send(url: &str, text: &str) -> Result<Answer, String> {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)
        .await
        .map_err(|e| e.to_string())?;
    // HTTP/1.0: no chunks, and the connection ends with the answer.
    let request = format!("{text} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .await
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| format!("no HTTP: {text:.80}"))?;
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let status = head
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let (content_type, allow) = (header("content-type"), header("allow"));
    Ok(Answer {
        status,
        content_type,
        allow,
        body: body.to_owned(),
    })
}
