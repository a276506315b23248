//! Room `tests`: kill -9 at a random moment under many clients, again and again on one directory. Every
//! acknowledged write is there, history is whole, and no answer goes back behind an earlier one.
//!
//! `members` does it to three members.
//!
//! `TENON_KILL_ROUNDS` (5), `TENON_KILL_CLIENTS` (20), `TENON_KILL_SEED` (drawn, printed) and
//! `TENON_KILL_ETCD=1` (run real etcd, to test the test) change it. May touch processes; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

mod clients;
mod ledger;
mod load;
mod members;

use clients::{Clients, Key};
use ledger::Ledger;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tenon_tests::run::wait_ready;
use tenon_tests::schema::Schema;
use tenon_tests::server::{Kind, Server};

/// When the kill falls, counted from the first write of a round.
const KILL_AFTER_MS: std::ops::Range<u64> = 20..900;
/// How long one round may take, restart and checks included.
const ROUND_MAX: Duration = Duration::from_secs(120);

fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |v| {
        v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}"))
    })
}

/// A new seed for each run; the run prints it.
fn drawn() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let (rounds, clients) = (
        setting("TENON_KILL_ROUNDS", 5),
        setting("TENON_KILL_CLIENTS", 20),
    );
    let seed = setting("TENON_KILL_SEED", drawn());
    println!("TENON_KILL_SEED={seed} rounds={rounds} clients={clients}");
    let kind = if setting("TENON_KILL_ETCD", 0) == 1 {
        Kind::Etcd
    } else {
        Kind::Tenon
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("runtime").block_on(async {
        let schema = Schema::load().expect("schemas");
        let mut server = Server::start(kind, &[]).expect("server starts");
        let mut rng = StdRng::seed_from_u64(seed);
        let ledger = Arc::new(Ledger::default());
        for round in 1..=rounds {
            let wait = Duration::from_millis(rng.random_range(KILL_AFTER_MS));
            let one = round_of(&schema, &mut server, &ledger, clients, wait);
            tokio::time::timeout(ROUND_MAX, one).await.expect("a round ends in time");
            let (acknowledged, revision) = ledger.size();
            println!("round {round}: killed after {wait:?}; {acknowledged} acknowledged, revision {revision}");
        }
        server.kill();
    });
}

/// Load, kill in the middle of it, restart, check everything.
async fn round_of(
    schema: &Schema,
    server: &mut Server,
    ledger: &Arc<Ledger>,
    clients: u64,
    wait: Duration,
) {
    let channel = wait_ready(schema, server).await.expect("server answers");
    let load = Clients::start(schema, &channel, ledger, clients);
    tokio::time::sleep(wait).await;
    load.expect_errors();
    server.kill();
    load.join().await;

    server.spawn().expect("server starts again");
    let channel = wait_ready(schema, server)
        .await
        .expect("server answers after kill -9");
    let all = Clients::idle(schema, &channel, ledger);
    for key in ledger.keys() {
        all.check_read(Key(key)).await;
    }
    all.check_history().await;
}
