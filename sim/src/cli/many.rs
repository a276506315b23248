//! Room `sim`, `tenon sim`: many seeds on all cores.

#![expect(
    clippy::disallowed_methods,
    reason = "outside every simulated world: limits and progress"
)]

use super::Options;
use super::sums::{Total, summary};
use crate::{l1, swarm};
use parking_lot::Mutex;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One seed of so many is run twice and its traces compared.
const AGAIN: u64 = 100;

/// What a seed's runs did. The member's and the hosts' are left out when something is planted, masked or asked for
/// alone; `cluster` is what was asked for then.
struct All {
    member: Option<l1::Report>,
    hosts: Option<swarm::Report>,
    cluster: swarm::Report,
}

impl All {
    fn traces(&self) -> (Option<u64>, Option<u64>, u64) {
        let member = self.member.as_ref().map(|r| r.trace.hash());
        let hosts = self.hosts.as_ref().map(|r| r.trace.hash());
        (member, hosts, self.cluster.trace.hash())
    }
}

/// Runs one seed; the failure as text.
fn one(seed: u64, options: &Options) -> Result<All, String> {
    let member = match options.runs_all() {
        true => {
            let ran = l1::run(seed, &l1::Plan::of(seed));
            Some(ran.map_err(|f| format!("one member: {f}"))?)
        }
        false => None,
    };
    let hosts = match options.runs_all() {
        true => {
            let ran = swarm::run(seed, &options.hosts_plan(seed));
            Some(ran.map_err(|f| format!("hosts: {f}"))?)
        }
        false => None,
    };
    let cluster = swarm::run(seed, &options.plan(seed));
    let cluster = cluster.map_err(|f| format!("{}: {f}", options.what()))?;
    Ok(All {
        member,
        hosts,
        cluster,
    })
}

/// Whether the seed is one of those that are run twice, and then whether both runs were one.
fn repeats(seed: u64, options: &Options, first: &All) -> Result<bool, String> {
    if !seed.is_multiple_of(AGAIN) {
        return Ok(false);
    }
    let again = one(seed, options)?;
    match again.traces() == first.traces() {
        true => Ok(true),
        false => Err("two runs of this seed differ".to_owned()),
    }
}

/// Runs the seeds; whether all held.
pub(super) fn many(options: &Options) -> bool {
    let begun = Instant::now();
    let next = AtomicU64::new(options.first);
    let total = Mutex::new(Total::default());
    let work = || {
        while options.limit.is_none_or(|limit| begun.elapsed() < limit) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > options.last {
                return;
            }
            let ran = one(seed, options);
            let ran = ran.and_then(|all| Ok((repeats(seed, options, &all)?, all)));
            let mut total = total.lock();
            total.seeds += 1;
            match ran {
                Ok((again, all)) => {
                    total.again += u64::from(again);
                    if let Some(member) = &all.member {
                        *total += member;
                    }
                    if let Some(hosts) = &all.hosts {
                        total.clusters += hosts;
                    }
                    total.clusters += &all.cluster;
                }
                Err(why) => {
                    println!("seed {seed} failed: {why}");
                    total.failed.push(seed);
                }
            }
            progress(options, &total, begun);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(work);
        }
    });
    let mut total = total.into_inner();
    total.failed.sort_unstable();
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    summary(&total, begun.elapsed());
    total.failed.is_empty()
}

/// Width of the bar.
const BAR: u64 = 30;

fn progress(options: &Options, total: &Total, begun: Instant) {
    let all = options.last - options.first + 1;
    let (done, failed) = (total.seeds, total.failed.len());
    if std::io::stderr().is_terminal() {
        let full = done * BAR / all;
        let bar: String = (0..BAR).map(|n| if n < full { '#' } else { '.' }).collect();
        let rate = done as f64 / begun.elapsed().as_secs_f64().max(0.001);
        eprint!("\r[{bar}] {done}/{all} seeds, {failed} failed, {rate:.1} seeds/s");
        let _ = std::io::stderr().flush();
    } else if done.is_multiple_of(100) {
        println!("{done} seeds, {failed} failed");
    }
}
