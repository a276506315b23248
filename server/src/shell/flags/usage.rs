//! Room `server/shell`: help, usage and version texts. Pure.

use super::config::Persona;
use super::table::{FLAGS, Status};
use super::value::Kind;
use crate::version::ETCD_VERSION;
use std::fmt::Write as _;

/// What follows the refusal of a command line.
pub fn usage(persona: Persona) -> String {
    let program = program(persona);
    let others = match persona {
        Persona::Tenon => {
            "\n  tenon\n    The same as tenon serve without flags.\n\n  tenon host --help\n    What a host is, \
             and switching it between server and client.\n\n  tenon util --help\n    Restoring a snapshot, and \
             looking at one.\n\n  tenon sim --help\n    The simulator: whole members from one seed.\n"
        }
        Persona::Etcd => "",
    };
    format!(
        "Usage:\n\n  {program} [flags]\n    Start a server.\n\n  {program} --version\n    Show the \
         version.\n\n  {program} -h | --help\n    Show every flag.\n\n  {program} --config-file FILE\n    \
         A YAML or JSON file. All other flags and ETCD_* and TENON_* variables are then ignored;\n    \
         durations in it are integer nanoseconds.\n{others}"
    )
}

/// Every flag with its default.
pub fn help(persona: Persona) -> String {
    let mut text = usage(persona);
    text.push_str(
        "\nFlags with their defaults; the variable of --data-dir is ETCD_DATA_DIR, and so on; that of a flag \
         that etcd\ndoes not have begins with TENON_, as TENON_MODE (--mode server|client, --endpoints, \
         --voters-target 1|3|5|7,\n--storage-engine redb|sled|memory and others: docs/host-modes.md):\n",
    );
    for flag in FLAGS.iter().filter(|flag| flag.kind != Kind::Old) {
        let note = match flag.status {
            Status::Works => "",
            Status::Ignored => "   accepted, without effect",
            Status::Refused(_) => "   not supported yet",
        };
        let _ = writeln!(text, "  --{} '{}'{note}", flag.name, flag.default);
    }
    text
}

/// The answer to `--version`.
pub fn version(persona: Persona) -> String {
    let tenon = format!("Tenon Version: {}\n", env!("CARGO_PKG_VERSION"));
    let etcd = format!("etcd Version: {ETCD_VERSION}\n");
    let os = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("OS/Arch: {}/{os}\n", std::env::consts::OS);
    match persona {
        Persona::Etcd => etcd + &tenon + &platform,
        Persona::Tenon => tenon + &etcd + &platform,
    }
}

fn program(persona: Persona) -> &'static str {
    match persona {
        Persona::Tenon => "tenon serve",
        Persona::Etcd => "etcd",
    }
}
