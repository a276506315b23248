//! Room `server/shell`: `tenon util`, or the program started through a link named `etcdutl`: etcd's tools for
//! files of a member that does not run. Reads arguments, prints; what is done is the member's and storage's.

mod args;
mod restore;
mod status;

use args::Args;
use std::process::ExitCode;

const USAGE: &str = "\
Usage:
  tenon util snapshot restore FILE --data-dir DIR [--name NAME] [--initial-cluster N=URL,...]
      [--initial-cluster-token TOKEN] [--initial-advertise-peer-urls URL,...] [--wal-dir DIR]
      [--skip-hash-check] [--bump-revision N --mark-compacted] [--storage-engine redb|sled|memory]
  tenon util snapshot status FILE [-w simple|json|fields|table]
  tenon util version
";

/// Why a command ends otherwise than well.
enum Failure {
    /// It was asked for wrongly: exit 128.
    Usage(String),
    /// It could not be done: exit 1.
    Failed(String),
}

/// Runs the command; `args` are those after the program's name and verb.
pub fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(output) => {
            print!("{output}");
            ExitCode::SUCCESS
        }
        Err(Failure::Failed(text)) => {
            eprintln!("Error: {text}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(text)) => {
            eprintln!("Error: {text}\n\n{USAGE}");
            ExitCode::from(128)
        }
    }
}

fn run(args: &[String]) -> Result<String, Failure> {
    let args = Args::read(args).map_err(Failure::Usage)?;
    if args.flag("help") {
        return Ok(USAGE.to_owned());
    }
    match args.words().as_slice() {
        ["snapshot", "restore", file] => restore::run(&args, file),
        ["snapshot", "status", file] => status::run(&args, file),
        ["version"] => Ok(format!(
            "etcdutl version: {}\nAPI version: 3.7\n",
            crate::version::ETCD_VERSION
        )),
        ["snapshot", "restore" | "status", ..] => {
            Err(Failure::Usage("one snapshot file must be given".into()))
        }
        [] | ["help"] => Ok(USAGE.to_owned()),
        other => Err(Failure::Usage(format!(
            "unknown command {:?}",
            other.join(" ")
        ))),
    }
}
