//! `bench`: runs etcd and Tenon in turn on the same cores under etcd's own load tool and writes ratios.
//!
//! One round runs every case on every server, A B A B …; the table gives the median of the rounds and the
//! ratio of medians. Absolute numbers of a shared machine mean little; the ratios are the result. May use
//! real clocks, threads and files: it is a program that watches other programs.
#![allow(
    clippy::disallowed_methods,
    reason = "measures real processes by real time"
)]

mod cases;
mod catch_up;
mod half;
mod load;
mod probe;
mod report;
mod server;
mod svg;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares Tenon with etcd; both are started by this program on 127.0.0.1.
#[derive(Parser, Debug, Clone)]
pub struct Options {
    /// Folder that `.ci/oracle-setup` made: etcd 3.7.3, etcdctl and etcd's `benchmark` are in it or in its `bin`.
    #[arg(long, env = "TENON_ORACLE_DIR")]
    oracle: PathBuf,
    /// Tenon's release binary.
    #[arg(long, default_value = "target/release/tenon")]
    tenon: PathBuf,
    /// The bare tonic server; `-` leaves it out.
    #[arg(long, default_value = "target/release/floor")]
    floor: PathBuf,
    /// Rounds; the median of them counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only cases whose name contains one of these, comma separated.
    #[arg(long, default_value = "")]
    only: String,
    /// Members of each cluster, all on this machine.
    #[arg(long, default_value_t = 1)]
    members: usize,
    /// Multiplies the number of requests of each case.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Folder for data; on the disk that is to be measured.
    #[arg(long, default_value = "bench/out")]
    work: PathBuf,
    /// Writes `<name>.md` and `<name>.svg` here besides printing.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.oracle.join("bin").is_dir() {
        options.oracle.push("bin");
    }
    match cases::run(&options) {
        Ok(samples) if samples.iter().all(|s| s.case == "idle") => {
            eprintln!("no case is named like --only {}", options.only);
            ExitCode::FAILURE
        }
        Ok(samples) => {
            let table = report::table(&options, &samples);
            println!("{table}");
            if let Some(base) = &options.out
                && let Err(e) = report::write(base, &table, &samples)
            {
                eprintln!("cannot write {}: {e}", base.display());
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("bench failed: {e}");
            ExitCode::FAILURE
        }
    }
}
