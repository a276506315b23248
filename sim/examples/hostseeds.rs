//! scratch
use std::panic::{AssertUnwindSafe, catch_unwind};
use tenon_sim::swarm::{Plan, Report, run};
fn main() {
    let a: Vec<u64> = std::env::args()
        .skip(1)
        .map(|a| a.parse().unwrap())
        .collect();
    if std::env::var("RUST_LOG").is_ok() {
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .init();
    }
    let mut total = Report::default();
    let mut failed = vec![];
    for seed in a[0]..=a[1] {
        let began = std::time::Instant::now();
        let got = catch_unwind(AssertUnwindSafe(|| {
            run(
                seed,
                &Plan::hosts_lasting(
                    seed,
                    std::time::Duration::from_secs(*a.get(2).unwrap_or(&8)),
                ),
            )
        }));
        match got {
            Ok(Ok(r)) => {
                total += &r;
                println!(
                    "seed {seed} ok {:?} {:?} {:x}",
                    began.elapsed(),
                    r.simulated,
                    r.trace.hash()
                );
            }
            Ok(Err(e)) => {
                let t: String = e.to_string().chars().take(1500).collect();
                println!("seed {seed} FAILED {:?}: {t}", began.elapsed());
                failed.push(seed)
            }
            Err(_) => {
                println!("seed {seed} PANIC");
                failed.push(seed)
            }
        }
    }
    println!("{}", total.summary());
    println!("never: {:?}\nfailed {failed:?}", total.never());
}
