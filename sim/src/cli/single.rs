//! Room `sim`, `tenon sim`: one seed in full: its plans, its runs, its page; and smaller runs that fail the same way.

#![expect(
    clippy::disallowed_methods,
    reason = "outside every simulated world: files and limits"
)]

use super::Options;
use crate::mask::{FAULTS, Mask};
use crate::shrink::{Ran, shrink};
use crate::story::Story;
use crate::swarm::Plan;
use crate::{l1, swarm};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a failing run is shrunk unless `--minutes` says otherwise.
const SHRINK_MOST: Duration = Duration::from_secs(600);

/// Runs one seed and shows it; whether it held.
pub(super) fn single(options: &Options) -> bool {
    let seed = options.first;
    if options.runs_member() {
        let plan = l1::Plan::of(seed);
        println!("seed {seed}, one member: {plan:#?}");
        let (verdict, story) = l1::run_told(seed, &plan);
        match verdict {
            Ok(report) => println!(
                "{report:#?}\ntrace of one member {:016x}",
                report.trace.hash()
            ),
            Err(finding) => {
                println!("seed {seed} failed: one member: {finding}");
                page(
                    options,
                    story,
                    &format!("{plan:?}"),
                    Some(finding.to_string()),
                );
                return false;
            }
        }
    }
    let plan = options.plan(seed);
    println!("seed {seed}, cluster: {plan:#?}");
    let (verdict, story) = swarm::run_told(seed, &plan);
    match verdict {
        Ok(report) => {
            page(options, story, &format!("{plan:?}"), None);
            println!("{report:#?}\ntrace {:016x}", report.trace.hash());
            true
        }
        Err(finding) => {
            println!("seed {seed} failed: cluster: {finding}");
            match options.shrink {
                true => smaller(options, plan, &finding.to_string(), story),
                false => page(
                    options,
                    story,
                    &format!("{plan:?}"),
                    Some(finding.to_string()),
                ),
            }
            false
        }
    }
}

fn page(options: &Options, story: Story, plan: &str, violation: Option<String>) {
    let Some(file) = &options.html else {
        return;
    };
    let facts = vec![("drawn".to_owned(), plan.to_owned())];
    let page = story.page(options.first, options.replay(), facts, violation);
    match std::fs::write(file, page.render()) {
        Ok(()) => println!("{} shows the run", file.display()),
        Err(error) => eprintln!("tenon sim: {}: {error}", file.display()),
    }
}

/// The kind of a finding: its words without numbers, and without what stands in brackets.
fn kind(finding: &str) -> String {
    let mut depth = 0_usize;
    let mut words = String::new();
    let text = finding.split("; at ").next().unwrap_or_default();
    for c in text.chars() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            c if depth == 0 && (c.is_alphabetic() || c == ' ') => words.push(c),
            _ => {}
        }
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Leaves out of a failing run what it can, and shows the rest.
fn smaller(options: &Options, plan: Plan, finding: &str, story: Story) {
    let seed = options.first;
    let (wanted, begun) = (kind(finding), Instant::now());
    let most = options.limit.unwrap_or(SHRINK_MOST);
    let (mut tries, before) = (0_u64, count(&story.done));
    println!(
        "shrinking {} faults and {} calls, looking for: {wanted}",
        before.0, before.1
    );
    let mut run = |left_out: &BTreeSet<(u64, u64)>| {
        if begun.elapsed() > most {
            return Ran::Enough;
        }
        tries += 1;
        let mut plan = plan.clone();
        plan.mask = Mask::without(left_out.clone());
        let (verdict, story) = swarm::run_told(seed, &plan);
        match verdict {
            Err(found) if kind(&found.to_string()) == wanted => {
                let (faults, calls) = count(&story.done);
                println!("run {tries}: {faults} faults and {calls} calls are left");
                Ran::Fails(story.done)
            }
            _ => Ran::Holds,
        }
    };
    let left_out = shrink(plan.mask.left_out().clone(), story.done, &mut run);
    let mut small = options.clone();
    small.mask = Mask::without(left_out);
    let plan = small.plan(seed);
    let (verdict, story) = swarm::run_told(seed, &plan);
    let (faults, calls) = count(&story.done);
    println!(
        "after {tries} runs {faults} of {} faults and {calls} of {} calls are left",
        before.0, before.1
    );
    println!("again: {}", small.replay());
    let violation = verdict.err().map(|found| found.to_string());
    println!(
        "{}",
        violation
            .as_deref()
            .unwrap_or("the last run held: the runs do not repeat")
    );
    page(&small, story, &format!("{plan:?}"), violation);
}

/// How many faults and calls.
fn count(items: &BTreeSet<(u64, u64)>) -> (usize, usize) {
    let faults = items.iter().filter(|(lane, _)| *lane == FAULTS).count();
    (faults, items.len() - faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_one_kind() {
        let one = "Call { client: 3, request: Range(x) } went back behind 17; at 3s [down]";
        let other = "Call { client: 1, request: Put(y { z }) } went back behind 4; at 9s [up]";
        assert_eq!(kind(one), "Call went back behind");
        assert_eq!(kind(one), kind(other));
        assert_ne!(kind(one), kind("revision 4 has no cause"));
    }
}
