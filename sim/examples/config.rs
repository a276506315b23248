//! Room `sim`, example: an application that follows its configuration by a watch. Promise: it sees every change, in
//! order. The guide is `docs/simulation.md`.
//!
//! `cargo run -p tenon-sim --example config` tries ten seeds; all hold. With `--bug` it watches from "now" after its
//! stream broke, as code does that was only ever tried with a cluster that runs; some seed shows the gap, and
//! `config.html` shows how it came. `-- --bug --seed N` runs one seed.

use parking_lot::Mutex;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenon_sim::cluster::{Change, Watch, WatchEnd};
use tenon_sim::world::CallError;
use tenon_sim::{Client, Cluster, Storm, Violation};

/// Where the application goes on after its stream broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// At the revision after the last one it saw.
    AfterLast,
    /// At whatever is current then.
    FromNow,
}

/// What the application knows: the highest setting, how many changes it saw, and the first gap between them.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    setting: u64,
    changes: usize,
    gap: Option<(u64, u64)>,
}

impl Known {
    fn learn(&mut self, setting: u64) {
        // The writer repeats a change of which it does not know whether it took effect.
        // Such a change may even take effect late, after others; that is no gap.
        if setting > self.setting + 1 {
            self.gap = Some((self.setting, setting));
        }
        self.setting = self.setting.max(setting);
        self.changes += 1;
    }
}

/// Reads what stands, then follows from the revision after it.
async fn application(client: Client, resume: Resume, known: Arc<Mutex<Known>>) {
    let mut next = loop {
        match client.get_prefix("config/").await {
            Ok((entries, at)) => {
                if let Some(entry) = entries.first() {
                    known.lock().learn(entry.value.parse().expect("a number"));
                }
                break at + 1;
            }
            Err(_) => client.sleep(Duration::from_millis(50)).await,
        }
    };
    loop {
        match client.watch_prefix("config/", next).await {
            Some(watch) => next = follow(watch, next, &known).await,
            None => client.sleep(Duration::from_millis(50)).await,
        }
        if resume == Resume::FromNow {
            next = 0;
        }
    }
}

/// Follows one stream to its end; where the next has to begin.
async fn follow(mut watch: Watch, mut next: i64, known: &Mutex<Known>) -> i64 {
    loop {
        match watch.next().await {
            Ok(change) => {
                next = change.revision() + 1;
                if let Change::Put(entry) = change {
                    known.lock().learn(entry.value.parse().expect("a number"));
                }
            }
            Err(WatchEnd::Broken) => return next,
            // Nobody compacts here. Who does must read anew and take what stands as the change.
            Err(WatchEnd::Compacted(revision)) => return revision + 1,
        }
    }
}

/// Raises the setting one by one; each is known to stand before the next is written.
async fn operator(client: Client, written: Arc<Mutex<u64>>) {
    for setting in 1.. {
        loop {
            match client.put("config/limit", &setting.to_string()).await {
                Ok(_) => break,
                // Written or not, and maybe later: writing the same again is right either way.
                Err(CallError::Unknown(_) | CallError::NotSent) => {}
                Err(error) => panic!("refused: {error}"),
            }
        }
        *written.lock() = setting;
        client.sleep(Duration::from_millis(100)).await;
    }
}

/// One seed: a quarter of a minute of faults. The number of changes seen.
pub fn run(seed: u64, resume: Resume) -> (Result<usize, Violation>, Cluster) {
    let cluster = Cluster::new(seed);
    let known = Arc::new(Mutex::new(Known::default()));
    let seen = known.clone();
    cluster.invariant("no change is missed", move || match seen.lock().gap {
        Some((from, to)) => Err(format!("after setting {from} came {to}")),
        None => Ok(()),
    });
    let (app, writer) = (cluster.client(), cluster.client());
    app.spawn(
        "application",
        application(app.clone(), resume, known.clone()),
    );
    let written = Arc::new(Mutex::new(0));
    writer.spawn("operator", operator(writer.clone(), written.clone()));
    let storm = Storm {
        lasts: Duration::from_secs(15),
        clients: vec![app.node()],
        ..Storm::default()
    };
    let result = cluster.run(cluster.storm(storm)).and_then(|()| {
        // With everything whole it must have caught up soon.
        let goal = *written.lock();
        cluster.advance(Duration::from_secs(5))?;
        let known = *known.lock();
        assert!(
            known.setting >= goal,
            "still at {}, not {goal}",
            known.setting
        );
        Ok(known.changes)
    });
    (result, cluster)
}

#[expect(
    clippy::disallowed_methods,
    reason = "outside the simulated world: a page for its reader"
)]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let resume = match args.iter().any(|a| a == "--bug") {
        true => Resume::FromNow,
        false => Resume::AfterLast,
    };
    let seed = args.iter().position(|a| a == "--seed");
    let seed = seed.and_then(|at| args.get(at + 1)?.parse().ok());
    for seed in seed.map_or(1..=10, |seed: u64| seed..=seed) {
        let (result, cluster) = run(seed, resume);
        match result {
            Ok(changes) => println!("seed {seed}: {changes} changes, none missed"),
            Err(violation) => {
                println!("{violation}");
                std::fs::write("config.html", cluster.html()).expect("a page");
                println!("config.html shows how it came");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
