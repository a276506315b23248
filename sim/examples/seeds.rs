//! Room `sim`: `tenon sim` without the rest of the program, for a quick build:
//! `cargo run -p tenon-sim --example seeds -- --seeds 1..100`. With `RUST_LOG` set it shows the members' logs.

use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .without_time()
            .with_env_filter(filter)
            .init();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(tenon_sim::cli(&args))
}
