//! Room `tests`: three members under many clients that never rest, while one member after the other is killed (-9)
//! and leaders stand still for longer than an election takes. Nothing acknowledged is lost, no linearizable read is
//! stale, no revision goes back, and after each round all members hold the same keys at one named revision.
//!
//! `TENON_ROUNDS_KILLS` (4), `TENON_ROUNDS_STOPS` (1), `TENON_ROUNDS_STOP_MS` (3000), `TENON_ROUNDS_CLIENTS` (50) and
//! `TENON_ROUNDS_SEED` (drawn, printed) change it. May touch processes; must not look inside.

use crate::ledger::Ledger;
use crate::load::Caller;
use crate::{drawn, setting};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenon_tests::cluster::Cluster;

/// Elections within a second or two, also where builds run beside.
const FLAGS: &[&str] = &[
    "--heartbeat-interval=100",
    "--election-timeout=1000",
    "--log-level=warn",
];
const ALL: [usize; 3] = [0, 1, 2];
/// How long the clients go on undisturbed before a round, and how long a killed member stays away.
const CALM_MS: std::ops::Range<u64> = 100..1_000;
/// How long a key may not be readable through a member once all is well.
const READ_WITHIN: Duration = Duration::from_secs(60);

struct Rounds {
    cluster: Cluster,
    caller: Caller,
    ledger: Arc<Ledger>,
    rng: StdRng,
    runtime: tokio::runtime::Runtime,
    begun: Instant,
}

#[test]
fn three_members_keep_what_they_promised_through_kills_and_pauses() {
    let seed = setting("TENON_ROUNDS_SEED", drawn());
    let clients = setting("TENON_ROUNDS_CLIENTS", 50);
    let (kills, stops) = (
        setting("TENON_ROUNDS_KILLS", 4),
        setting("TENON_ROUNDS_STOPS", 1),
    );
    let pause = Duration::from_millis(setting("TENON_ROUNDS_STOP_MS", 3_000));
    println!(
        "TENON_ROUNDS_SEED={seed} kills={kills} stops={stops} pause={pause:?} clients={clients}"
    );
    let cluster = Cluster::found(3, FLAGS);
    let urls: Vec<String> = cluster.members.iter().map(|m| m.url.clone()).collect();
    let ledger = Arc::new(Ledger::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    let caller = runtime.block_on(async { Caller::new(&urls, &ledger) });
    let mut rounds = Rounds {
        cluster,
        caller,
        ledger,
        rng: StdRng::seed_from_u64(seed),
        runtime,
        begun: Instant::now(),
    };
    let tasks = rounds
        .runtime
        .block_on(async { rounds.caller.start(clients) });
    for round in 1..=kills {
        let at = rounds.kill();
        rounds.compare(&format!("kill {round} of member {at}"));
    }
    for round in 1..=stops {
        let at = rounds.stand_still(pause);
        rounds.compare(&format!("pause {round} of member {at}, the leader"));
    }
    rounds.caller.end();
    let ended = async {
        for task in tasks {
            task.await.expect("a client found something broken");
        }
    };
    rounds.runtime.block_on(ended);
    rounds.check_all();
}

impl Rounds {
    fn rest(&mut self) {
        let pause = Duration::from_millis(self.rng.random_range(CALM_MS));
        std::thread::sleep(pause);
    }

    /// Kills a member and starts it again; which.
    fn kill(&mut self) -> usize {
        self.rest();
        let at = self.rng.random_range(ALL[0]..ALL.len());
        self.cluster.kill(at);
        self.rest();
        let list = self.cluster.list();
        self.cluster.start(at, &list, "new");
        self.cluster.wait_serving(at);
        at
    }

    /// Has the leader stand still; which it was.
    fn stand_still(&mut self, pause: Duration) -> usize {
        self.rest();
        let at = self.cluster.leader(ALL[0]);
        self.cluster.stand_still(at);
        std::thread::sleep(pause);
        self.cluster.go_on(at);
        self.cluster.wait_serving(at);
        at
    }

    /// All members hold the same at one revision, and history goes on without a gap at one of them.
    fn compare(&mut self, what: &str) {
        let revision = self.cluster.assert_same_keys(&ALL);
        let at = self.rng.random_range(ALL[0]..ALL.len());
        self.runtime.block_on(self.caller.check_history(at));
        let (acknowledged, floor) = self.ledger.size();
        let (failed, seconds) = (self.caller.failed(), self.begun.elapsed().as_secs());
        println!(
            "{seconds} s, {what}: same keys at {revision}; {acknowledged} acknowledged, revision {floor}, \
             {failed} calls without an answer"
        );
    }

    /// Every key ever written, read through every member, and the rest of history.
    fn check_all(&mut self) {
        let keys = self.ledger.keys();
        for at in ALL {
            let all = async {
                for key in &keys {
                    let until = Instant::now() + READ_WITHIN;
                    while !self.caller.read(at, key).await {
                        assert!(
                            Instant::now() < until,
                            "no read of {key} through member {at}"
                        );
                    }
                }
                self.caller.check_history(at).await;
            };
            self.runtime.block_on(all);
        }
        self.compare("at rest");
        println!("{} keys read through three members", keys.len());
    }
}
