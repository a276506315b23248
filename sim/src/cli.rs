//! Room `sim`: `tenon sim`: runs seeds and says which failed. The only file of this room that knows real time,
//! threads and the terminal; what runs inside a seed knows none of them.

#![expect(
    clippy::disallowed_methods,
    reason = "outside every simulated world: limits and progress"
)]

use crate::executor::run::panic_text;
use crate::l1::{Plan, Report, run};
use crate::swarm;
use parking_lot::Mutex;
use std::io::Write;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
tenon sim: runs whole members in a simulated world, each run from one seed

Each seed runs twice over: one member under lives that end badly, and a cluster under everything at once.

  tenon sim [--seeds A..B] [--minutes M] [--jobs N]
  tenon sim --seed N

  --seeds A..B   seeds from A to B, both included (1..200)
  --seed N       one seed; its last line is `trace` and 16 hex digits, the same at every run
  --minutes M    begin no new seed after so many minutes
  --jobs N       runs at the same time (the number of cores)

Exit status: 0 when every seed held, 1 when one failed, 2 for a mistake in the arguments.
";

#[derive(Debug, PartialEq, Eq)]
struct Options {
    first: u64,
    last: u64,
    /// One seed was asked for: it is shown in full.
    single: bool,
    limit: Option<Duration>,
    jobs: usize,
}

fn number(name: &str, value: Option<&String>) -> Result<u64, String> {
    let value = value.ok_or(format!("{name} needs a value"))?;
    value
        .parse()
        .map_err(|_| format!("{name} {value:?} is not a number"))
}

fn parse(args: &[String]) -> Result<Options, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        first: 1,
        last: 200,
        single: false,
        limit: None,
        jobs: cores,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seed" => {
                let seed = number(arg, args.next())?;
                (options.first, options.last, options.single) = (seed, seed, true);
            }
            "--seeds" => {
                let value = args.next().ok_or("--seeds needs a value")?;
                let (first, last) = value.split_once("..").ok_or("--seeds wants A..B")?;
                options.first = number(arg, Some(&first.to_owned()))?;
                options.last = number(arg, Some(&last.to_owned()))?;
            }
            "--minutes" => {
                options.limit = Some(Duration::from_secs(60 * number(arg, args.next())?))
            }
            "--jobs" => options.jobs = number(arg, args.next())?.clamp(1, 1024) as usize,
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    if options.first > options.last {
        return Err(format!(
            "no seeds from {} to {}",
            options.first, options.last
        ));
    }
    Ok(options)
}

/// Sums over runs.
#[derive(Debug, Default)]
struct Total {
    seeds: u64,
    report: Report,
    clusters: swarm::Report,
    failed: Vec<u64>,
}

impl AddAssign<&Report> for Total {
    fn add_assign(&mut self, r: &Report) {
        let sum = &mut self.report;
        sum.answered += r.answered;
        sum.refused += r.refused;
        sum.unknown += r.unknown;
        sum.crashes += r.crashes;
        sum.orderly += r.orderly;
        sum.fatal += r.fatal;
        sum.cut_starts += r.cut_starts;
        sum.revisions += r.revisions;
        sum.pauses += r.pauses;
        sum.jumps += r.jumps;
        sum.full += r.full;
        sum.expired += r.expired;
        sum.hashes += r.hashes;
        sum.watches += r.watches;
        sum.disk_operations += r.disk_operations;
        sum.simulated += r.simulated;
    }
}

/// What a seed's two runs did.
struct Both {
    member: Report,
    cluster: swarm::Report,
}

/// Runs one seed; the failure as text.
fn one(seed: u64) -> Result<Both, String> {
    let both = || {
        let member = run(seed, &Plan::of(seed)).map_err(|f| format!("one member: {f}"))?;
        let cluster = swarm::run(seed, &swarm::Plan::of(seed));
        let cluster = cluster.map_err(|f| format!("cluster: {f}"))?;
        Ok(Both { member, cluster })
    };
    let ran = catch_unwind(AssertUnwindSafe(both));
    ran.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&*panic))))
}

/// Runs `tenon sim` with the arguments after the verb; the process's exit status.
pub fn cli(args: &[String]) -> u8 {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{USAGE}");
        return 0;
    }
    match parse(args) {
        Ok(options) if options.single => single(options.first),
        Ok(options) => many(&options),
        Err(mistake) => {
            eprintln!("tenon sim: {mistake}\n\n{USAGE}");
            2
        }
    }
}

fn single(seed: u64) -> u8 {
    println!("seed {seed}, one member: {:#?}", Plan::of(seed));
    println!("seed {seed}, cluster: {:#?}", swarm::Plan::of(seed));
    match one(seed) {
        Ok(Both { member, cluster }) => {
            let trace = member.trace.hash().rotate_left(1) ^ cluster.trace.hash();
            println!("{member:#?}\n{cluster:#?}\ntrace {trace:016x}");
            0
        }
        Err(why) => {
            println!("seed {seed} failed: {why}");
            1
        }
    }
}

fn many(options: &Options) -> u8 {
    let begun = Instant::now();
    let next = AtomicU64::new(options.first);
    let total = Mutex::new(Total::default());
    let work = || {
        while options.limit.is_none_or(|limit| begun.elapsed() < limit) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > options.last {
                return;
            }
            let outcome = one(seed);
            let mut total = total.lock();
            total.seeds += 1;
            match outcome {
                Ok(both) => {
                    *total += &both.member;
                    total.clusters += &both.cluster;
                }
                Err(why) => {
                    println!("seed {seed} failed: {why}");
                    total.failed.push(seed);
                }
            }
            if total.seeds % 100 == 0 {
                println!("{} seeds, {} failed", total.seeds, total.failed.len());
                let _ = std::io::stdout().flush();
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(work);
        }
    });
    let mut total = total.into_inner();
    total.failed.sort_unstable();
    summary(&total, begun.elapsed());
    u8::from(!total.failed.is_empty())
}

fn summary(total: &Total, took: Duration) {
    let r = &total.report;
    let simulated = (r.simulated + total.clusters.simulated).as_secs_f64();
    let speed = simulated / took.as_secs_f64().max(0.001);
    println!(
        "{} seeds in {:.1} s: {simulated:.0} simulated seconds ({speed:.0} per second)",
        total.seeds,
        took.as_secs_f64()
    );
    println!(
        "calls: {} answered, {} refused, {} of unknown outcome; {} revisions",
        r.answered, r.refused, r.unknown, r.revisions
    );
    println!(
        "lives: {} crashed, {} ended in order, {} stopped by a disk error, {} starts cut short; \
         {} disk operations",
        r.crashes, r.orderly, r.fatal, r.cut_starts, r.disk_operations
    );
    println!(
        "troubles: {} pauses, {} jumps of clocks, {} full disks",
        r.pauses, r.jumps, r.full
    );
    println!(
        "compared: {} hashes, {} stretches of watches; {} leases ended by themselves",
        r.hashes, r.watches, r.expired
    );
    println!("{}", total.clusters.summary());
    let never: Vec<&str> = [
        ("crash", r.crashes),
        ("orderly end", r.orderly),
        ("disk error", r.fatal),
        ("cut start", r.cut_starts),
        ("pause", r.pauses),
        ("jump of a clock", r.jumps),
        ("full disk", r.full),
        ("unknown outcome", r.unknown),
        ("lease that ends", r.expired),
        ("hash compared", r.hashes),
    ]
    .into_iter()
    .filter_map(|(what, n)| (n == 0).then_some(what))
    .collect();
    let never: Vec<&str> = never.into_iter().chain(total.clusters.never()).collect();
    if !never.is_empty() {
        println!("never happened: {}", never.join(", "));
    }
    match total.failed.as_slice() {
        [] => println!("every seed held"),
        failed => println!("failed: {failed:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Options, String> {
        parse(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let seeds = parsed(&["--seeds", "3..9", "--minutes", "2", "--jobs", "4"]).unwrap();
        let limit = Some(Duration::from_secs(120));
        assert_eq!(
            seeds,
            Options {
                first: 3,
                last: 9,
                single: false,
                limit,
                jobs: 4
            }
        );
        assert!(parsed(&["--seed", "7"]).unwrap().single);
        for wrong in [
            &["--seeds", "9..3"][..],
            &["--seeds", "9"],
            &["--seed"],
            &["--seed", "x"],
            &["x"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(cli(&["--nonsense".to_owned()]), 2);
        assert_eq!(cli(&["--help".to_owned()]), 0);
    }
}
