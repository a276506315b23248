//! Room `src`: the program. It finds out which program it is asked to be and hands over; no logic.

use std::path::Path;
use std::process::ExitCode;
use tenon_server::shell::{self, flags::Persona, flags::usage};

/// The system's allocator takes a sixth of the CPU of a put, spread over many small messages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let name = Path::new(&program)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    if name == "etcd" {
        return shell::main(Persona::Etcd, &args);
    }
    if name == "etcdutl" {
        return shell::util::main(&args);
    }
    match args.split_first() {
        None => shell::main(Persona::Tenon, &[]),
        Some((verb, rest)) => match verb.as_str() {
            "serve" => shell::main(Persona::Tenon, rest),
            "host" => ExitCode::from(tenon_client::cli::host(rest)),
            "util" => shell::util::main(rest),
            "sim" => ExitCode::from(tenon_sim::cli(rest)),
            "--version" | "-version" | "version" => {
                print!("{}", usage::version(Persona::Tenon));
                ExitCode::SUCCESS
            }
            "--help" | "-help" | "-h" | "help" => {
                print!("{}", usage::help(Persona::Tenon));
                ExitCode::SUCCESS
            }
            other => {
                eprintln!(
                    "tenon: unknown command {other:?}; try `tenon serve`, `tenon host`, `tenon util`, `tenon sim` or `tenon --help`"
                );
                ExitCode::from(2)
            }
        },
    }
}
