//! Room `sim`, `tenon sim`: one seed in full: its plans, its runs, its page; and smaller runs that fail the same way.

#![expect(
    clippy::disallowed_methods,
    reason = "outside every simulated world: files and limits"
)]

use super::Options;
use crate::mask::{FAULTS, Item, Mask};
use crate::shrink::{Ran, shrink};
use crate::story::Story;
use crate::{l1, swarm};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a failing run is shrunk unless `--minutes` says otherwise.
const SHRINK_MOST: Duration = Duration::from_secs(600);

/// Runs one seed and shows it; whether it held.
pub(super) fn single(options: &Options) -> bool {
    let seed = options.first;
    if options.runs_all() {
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
    if options.runs_all() {
        let plan = options.hosts_plan(seed);
        println!("seed {seed}, hosts: {plan:#?}");
        match swarm::run(seed, &plan) {
            Ok(report) => println!("{report:#?}\ntrace of hosts {:016x}", report.trace.hash()),
            Err(finding) => {
                println!("seed {seed} failed: hosts: {finding}");
                println!("alone, and as a page: tenon sim --seed {seed} --hosts --html FILE");
                return false;
            }
        }
    }
    let (plan, what) = (options.plan(seed), options.what());
    println!("seed {seed}, {what}: {plan:#?}");
    let (verdict, story) = swarm::run_told(seed, &plan);
    match verdict {
        Ok(report) => {
            page(options, story, &format!("{plan:?}"), None);
            println!("{report:#?}\ntrace {:016x}", report.trace.hash());
            true
        }
        Err(finding) => {
            println!("seed {seed} failed: {what}: {finding}");
            match options.shrink {
                true => smaller(options, &finding.to_string(), story, u64::MAX).show(),
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

/// A search for a smaller run that fails the same way.
struct Smaller {
    options: Options,
    /// The kind of finding looked for.
    wanted: String,
    begun: Instant,
    most: Duration,
    /// Simulated time within which a run must fail: those that fail later are no smaller.
    within: Duration,
    tries: u64,
    tries_most: u64,
}

/// What a search came to.
struct Small {
    /// These show the smallest run that was found.
    options: Options,
    story: Story,
    /// What it violates; `None` would be a run that does not repeat.
    violation: Option<String>,
    /// Faults and calls of the run that was shrunk.
    before: (usize, usize),
    tries: u64,
}

impl Smaller {
    /// Runs with a mask.
    fn run(&mut self, left_out: &BTreeSet<Item>) -> Ran {
        if self.tries >= self.tries_most || self.begun.elapsed() > self.most {
            return Ran::Enough;
        }
        self.tries += 1;
        let seed = self.options.first;
        let mut plan = self.options.plan(seed);
        plan.mask = Mask::without(left_out.clone());
        let (verdict, story) = swarm::run_within(seed, &plan, self.within);
        match verdict {
            Err(found) if kind(&found.to_string()) == self.wanted => {
                self.within = self.within.min(bound(&story));
                Ran::Fails(story.done)
            }
            _ => Ran::Holds,
        }
    }

    /// Shortens the time of troubles; what the shortest run that fails did.
    fn shorten(&mut self, done: BTreeSet<Item>) -> BTreeSet<Item> {
        let before = self.options.seconds;
        let left_out = self.options.mask.left_out().clone();
        let usual = self.options.plan(self.options.first).chaos.as_secs();
        for seconds in [1, 2, 4].into_iter().filter(|s| *s < usual) {
            self.options.seconds = Some(seconds);
            if let Ran::Fails(done) = self.run(&left_out) {
                println!("it fails within {seconds} seconds of troubles too");
                return done;
            }
        }
        self.options.seconds = before;
        done
    }
}

/// How long a smaller run than this one may take.
fn bound(story: &Story) -> Duration {
    Duration::from_nanos(story.end + story.end / 4) + Duration::from_millis(500)
}

/// Leaves out of a failing run what it can, by so many runs at most.
fn smaller(options: &Options, finding: &str, story: Story, tries_most: u64) -> Small {
    let before = count(&story.done);
    let mut search = Smaller {
        options: options.clone(),
        wanted: kind(finding),
        begun: Instant::now(),
        most: options.limit.unwrap_or(SHRINK_MOST),
        within: bound(&story),
        tries: 0,
        tries_most,
    };
    println!(
        "shrinking {} faults and {} calls, looking for: {}",
        before.0, before.1, search.wanted
    );
    let done = search.shorten(story.done);
    let left_out = search.options.mask.left_out().clone();
    let left_out = shrink(left_out, done, &mut |left_out| {
        let ran = search.run(left_out);
        if let Ran::Fails(done) = &ran {
            let (faults, calls) = count(done);
            let tries = search.tries;
            println!("run {tries}: still fails, with {faults} faults and {calls} calls");
        }
        ran
    });
    let mut options = search.options;
    options.mask = Mask::without(left_out);
    let seed = options.first;
    let (verdict, story) = swarm::run_told(seed, &options.plan(seed));
    Small {
        options,
        story,
        violation: verdict.err().map(|found| found.to_string()),
        before,
        tries: search.tries,
    }
}

impl Small {
    /// Shows the run that is left.
    fn show(self) {
        let (faults, calls) = count(&self.story.done);
        println!(
            "after {} runs {faults} of {} faults and {calls} of {} calls are left",
            self.tries, self.before.0, self.before.1
        );
        println!("again: {}", self.options.replay());
        let held = "the last run held: the runs do not repeat";
        println!("{}", self.violation.as_deref().unwrap_or(held));
        let plan = format!("{:?}", self.options.plan(self.options.first));
        page(&self.options, self.story, &plan, self.violation);
    }
}

/// How many faults and calls.
fn count(items: &BTreeSet<Item>) -> (usize, usize) {
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

    /// A mistake that faults bring out: most of the other faults and calls have nothing to do with it.
    #[test]
    fn a_planted_mistake_is_shrunk_to_a_smaller_run_that_fails_the_same_way() {
        let arguments = ["--seed", "1", "--plant", "grant-pre-vote"];
        let arguments = arguments.map(str::to_owned);
        let options = crate::cli::parse(&arguments).unwrap();
        let (verdict, story) = swarm::run_told(1, &options.plan(1));
        let finding = verdict.unwrap_err().to_string();
        let small = smaller(&options, &finding, story, 12);
        let (faults, calls) = count(&small.story.done);
        assert!(calls < small.before.1 && faults <= small.before.0);
        assert!(small.tries <= 12 && !small.options.mask.is_empty());
        let left = small.violation.expect("what is left fails");
        assert_eq!(kind(&left), kind(&finding));
        let again = small.options.replay();
        assert!(again.starts_with("tenon sim --seed 1") && again.contains("--mask '"));
    }
}
