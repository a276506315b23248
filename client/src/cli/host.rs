//! Room `client`, command lines: `tenon host`: looks at a host's mode and changes it.

use super::bar::Bar;
use super::host_text;
use crate::{Client, ConnectOptions, Parts};
use std::time::Duration;
use tenon_proto::error::Error;
use tenon_proto::host as pb;

/// Where a host listens unless told otherwise.
const ENDPOINT: &str = "127.0.0.1:2379";
/// How long a question to the host may take.
const WITHIN: Duration = Duration::from_secs(10);
/// An abort answers once the host is what it was.
const ABORT_WITHIN: Duration = Duration::from_secs(60);

const USAGE: &str = "\
Usage: tenon host <command> [flags]

  status                  mode, cluster, member, and a switch under way
  mode server|client      switch; returns once the switch was accepted
      --wait              show progress and wait for the outcome
      --dry-run           only say what would happen, and what to know before
      --timeout DURATION  how long the switch may take (90s, 10m); else the host's --mode-change-timeout
      --require-fault-tolerance
                          refuse a switch after which the cluster stops when one member fails
  abort                   take the switch under way back, while that is possible
  watch                   print the status whenever it changes

Flags of every command:
      --endpoint ADDRESS  host:port, http://host:port or unix:path (127.0.0.1:2379)

Exit status: 0 done, 1 refused or failed, 2 not understood.
";

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Status,
    Watch,
    Abort,
    Mode {
        request: pb::ChangeModeRequest,
        wait: bool,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    command: Command,
    endpoint: String,
}

/// Runs `tenon host` with the arguments after it; its exit code.
pub fn host(args: &[String]) -> u8 {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return 0;
    }
    let line = match read(args) {
        Ok(line) => line,
        Err(why) => {
            eprint!("tenon host: {why}\n\n{USAGE}");
            return 2;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(&line)),
        Err(error) => Err(error.to_string()),
    };
    match ended {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("tenon host: {why}");
            1
        }
    }
}

/// Reads the command line.
fn read(args: &[String]) -> Result<Line, String> {
    let (mut words, mut endpoint) = (Vec::new(), ENDPOINT.to_owned());
    let (mut wait, mut request) = (false, pb::ChangeModeRequest::default());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (arg.as_str(), None),
        };
        let value = |rest: &mut std::slice::Iter<'_, String>| {
            let next = inline.clone().or_else(|| rest.next().cloned());
            next.ok_or_else(|| format!("{name} needs a value"))
        };
        match name {
            "--endpoint" | "--endpoints" => endpoint = value(&mut rest)?,
            "--timeout" => {
                let text = value(&mut rest)?;
                let time = duration(&text).ok_or_else(|| {
                    format!("--timeout {text:?} is no duration: write 90s, 10m or 1h")
                })?;
                request.timeout_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            }
            "--wait" => wait = true,
            "--dry-run" => request.dry_run = true,
            "--require-fault-tolerance" => request.require_fault_tolerance = true,
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
            _ => words.push(arg.as_str()),
        }
    }
    let command = match words.as_slice() {
        ["status"] => Command::Status,
        ["watch"] => Command::Watch,
        ["abort"] => Command::Abort,
        ["mode", to] => {
            let mode = match *to {
                "server" => pb::Mode::Server,
                "client" => pb::Mode::Client,
                other => {
                    return Err(format!(
                        "unknown mode {other:?}: a host is a server or a client"
                    ));
                }
            };
            request.mode = mode.into();
            Command::Mode { request, wait }
        }
        ["mode"] => return Err("mode needs one of: server, client".to_owned()),
        [] => return Err("which command?".to_owned()),
        [other, ..] => return Err(format!("unknown command {other:?}")),
    };
    Ok(Line { command, endpoint })
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3600)?)),
        _ => None,
    }
}

async fn run(line: &Line) -> Result<(), String> {
    let options = ConnectOptions {
        request_timeout: WITHIN,
        ..ConnectOptions::default()
    };
    let client = Client::connect([line.endpoint.clone()], options).map_err(|e| e.to_string())?;
    let told = |error: Error| {
        let text = error.to_string();
        text.strip_prefix("tenon: ").unwrap_or(&text).to_owned()
    };
    match &line.command {
        Command::Status => {
            let status = client.host_status().await.map_err(told)?;
            print!("{}", host_text::status(&status));
            Ok(())
        }
        Command::Watch => {
            let mut changes = client.host_watch().await.map_err(told)?;
            while let Some(status) = changes.next().await.map_err(told)? {
                println!("{}", host_text::status(&status));
            }
            Ok(())
        }
        Command::Abort => {
            let client = client.with_timeout(ABORT_WITHIN);
            let answer = client.host_abort().await;
            let status = answer.map_err(told)?.status.unwrap_or_default();
            println!(
                "aborted; the host is a {}",
                host_text::mode_name(status.mode())
            );
            Ok(())
        }
        Command::Mode { request, wait } => {
            let progress = client.host_change_mode(*request).await.map_err(told)?;
            match (request.dry_run, wait) {
                (true, _) => dry_run(progress).await,
                (false, true) => follow(progress).await,
                (false, false) => accepted(progress).await,
            }
        }
    }
}

async fn accepted(mut progress: Parts<pb::ChangeModeResponse>) -> Result<(), String> {
    let first = progress.next().await.map_err(|e| e.to_string())?;
    let first = first.unwrap_or_default();
    if first.done && !first.error.is_empty() {
        return Err(first.error);
    }
    println!("the switch has begun; `tenon host status` tells how it goes");
    Ok(())
}

async fn follow(mut progress: Parts<pb::ChangeModeResponse>) -> Result<(), String> {
    let (mut bar, mut warned) = (Bar::new(), Vec::new());
    while let Some(part) = progress.next().await.map_err(|e| e.to_string())? {
        let status = part.status.unwrap_or_default();
        for warning in &status.warnings {
            if !warned.contains(warning) {
                bar.end();
                eprintln!("warning: {warning}");
                warned.push(warning.clone());
            }
        }
        if !part.done {
            bar.show(&status);
            continue;
        }
        bar.end();
        if !part.error.is_empty() {
            return Err(part.error);
        }
        println!("{}", status.note);
        return Ok(());
    }
    Err("the host hung up before the outcome; see `tenon host status`".to_owned())
}

async fn dry_run(mut progress: Parts<pb::ChangeModeResponse>) -> Result<(), String> {
    let plan = progress.next().await.map_err(|e| e.to_string())?;
    let plan = plan.unwrap_or_default();
    if !plan.error.is_empty() {
        return Err(plan.error);
    }
    for (at, step) in plan.plan.iter().enumerate() {
        println!("{:>2}. {step}", at + 1);
    }
    println!("expected: no failed request; calls may wait for a moment while the endpoint moves");
    for warning in &plan.warnings {
        println!("warning: {warning}");
    }
    println!("nothing was changed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Line, String> {
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        read(&args)
    }

    #[test]
    fn command_lines_are_understood() {
        let plain = line("status").unwrap();
        assert_eq!(
            (plain.command, plain.endpoint.as_str()),
            (Command::Status, ENDPOINT)
        );
        let mode = line("mode client --wait --timeout=2m --endpoint unix:/run/s").unwrap();
        let request = pb::ChangeModeRequest {
            mode: pb::Mode::Client.into(),
            timeout_ms: 120_000,
            ..pb::ChangeModeRequest::default()
        };
        let expected = Command::Mode {
            request,
            wait: true,
        };
        assert_eq!(
            (mode.command, mode.endpoint.as_str()),
            (expected, "unix:/run/s")
        );
        for (text, why) in [
            ("", "which command?"),
            ("mode", "mode needs one of: server, client"),
            (
                "mode witness",
                "unknown mode \"witness\": a host is a server or a client",
            ),
            ("status --fast", "unknown flag --fast"),
            (
                "mode client --timeout 5",
                "--timeout \"5\" is no duration: write 90s, 10m or 1h",
            ),
            ("mode client --timeout", "--timeout needs a value"),
        ] {
            assert_eq!(line(text), Err(why.to_owned()));
        }
    }
}
