//! Room `sim`, example: workers of which one leads, by a lock on a lease, and acts. Promise: whoever leads no longer
//! does not act any more. The guide is `docs/simulation.md`.
//!
//! `cargo run -p tenon-sim --example worker` tries ten seeds; all hold. With `--bug` the workers trust that they
//! still hold the lease which they have just renewed, and some seed shows what becomes of that: it is printed, and
//! `worker.html` shows how it came. `-- --bug --seed N` runs one seed.

use parking_lot::Mutex;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenon_sim::cluster::{Change, Fault, Lock};
use tenon_sim::world::CallError;
use tenon_sim::{Client, Cluster, Storm, Violation};

/// How a worker makes sure that it still leads when it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// The act itself is a transaction that holds only while the worker's lock stands.
    Fenced,
    /// It renewed its lease a moment ago; that will do. It will not.
    Trusting,
}

/// Seconds that a worker may be silent before another takes over.
const LEASE_SECONDS: i64 = 2;

/// One worker: leads when its turn comes, acts for as long as it leads, begins anew.
async fn worker(client: Client, care: Care) {
    loop {
        // An error means that we do not know; then we do not lead, and try again.
        if let Err(error) = term(&client, care).await {
            let _ = error;
            client.sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn term(client: &Client, care: Care) -> Result<(), CallError> {
    let lease = client.lease_grant(LEASE_SECONDS).await?;
    let lock = client.lock("boss", lease).await?;
    while client.lease_keep_alive(lease).await? > 0 {
        // The work that leads to the act. This is where the world may stop for us and go on for others.
        client.sleep(Duration::from_millis(100)).await;
        if !act(client, &lock, care).await? {
            break;
        }
    }
    Ok(())
}

/// An act: an order that others obey. It bears the fence of the one who gave it. False: we do not lead any more.
async fn act(client: &Client, lock: &Lock, care: Care) -> Result<bool, CallError> {
    let order = lock.fence.to_string();
    match care {
        Care::Fenced => {
            let guard = (lock.key.as_str(), lock.fence);
            client.put_if_created(guard, "orders", &order, 0).await
        }
        Care::Trusting => client.put("orders", &order).await.map(|_| true),
    }
}

/// Follows the orders in the order in which they took effect.
async fn follow(client: Client, orders: Arc<Mutex<Vec<i64>>>) {
    let mut next = 1;
    loop {
        let Some(mut watch) = client.watch_prefix("orders", next).await else {
            client.sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Ok(change) = watch.next().await {
            next = change.revision() + 1;
            if let Change::Put(entry) = change {
                orders.lock().push(entry.value.parse().expect("a fence"));
            }
        }
    }
}

/// One seed: three workers, a quarter of a minute of faults. The number of orders given.
pub fn run(seed: u64, care: Care) -> (Result<usize, Violation>, Cluster) {
    let cluster = Cluster::new(seed);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let seen = orders.clone();
    let mut checked = 0;
    cluster.invariant("nobody acts on an old lease", move || {
        let orders = seen.lock();
        for pair in orders[checked..].windows(2) {
            if pair[1] < pair[0] {
                return Err(format!(
                    "the holder of fence {} acted after the holder of fence {}",
                    pair[1], pair[0]
                ));
            }
        }
        checked = orders.len().saturating_sub(1);
        Ok(())
    });
    let follower = cluster.client();
    follower.spawn("follow", follow(follower.clone(), orders.clone()));
    let workers = [cluster.client(), cluster.client(), cluster.client()];
    for client in &workers {
        client.spawn("worker", worker(client.clone(), care));
    }
    let storm = Storm {
        lasts: Duration::from_secs(15),
        calm: Duration::from_secs(1),
        faults: vec![Fault::PauseClient, Fault::PauseClient, Fault::Crash],
        clients: workers.iter().map(Client::node).collect(),
        ..Storm::default()
    };
    let stormed = cluster.run(cluster.storm(storm));
    let rested = stormed.and_then(|()| cluster.advance(Duration::from_secs(3)));
    let given = orders.lock().len();
    (rested.map(|()| given), cluster)
}

#[expect(
    clippy::disallowed_methods,
    reason = "outside the simulated world: a page for its reader"
)]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let care = match args.iter().any(|a| a == "--bug") {
        true => Care::Trusting,
        false => Care::Fenced,
    };
    let seed = args.iter().position(|a| a == "--seed");
    let seed = seed.and_then(|at| args.get(at + 1)?.parse().ok());
    for seed in seed.map_or(1..=10, |seed: u64| seed..=seed) {
        let (result, cluster) = run(seed, care);
        match result {
            Ok(orders) => println!("seed {seed}: {orders} orders, all by whoever led"),
            Err(violation) => {
                println!("{violation}");
                std::fs::write("worker.html", cluster.html()).expect("a page");
                println!("worker.html shows how it came");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
