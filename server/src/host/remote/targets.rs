//! Room `server/host`: which member a host in client mode asks. Pure.
//!
//! One target is used until it fails; then the next that has not failed lately. A failed one is left alone for a
//! while that doubles with each failure, and is looked at again before it gets a request.

use std::time::Duration;
use tenon_env::Instant;

/// How long a failed target is left alone: the first time, doubled up to the last.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Most bytes kept of why a target failed. A target may be another host that says why *its* targets failed, this host
/// among them: without a bound the two texts double each time (seed 316 of hosts ran out of memory).
const WHY_MAX: usize = 200;

/// Both ends of a text, if it is long: the cause of all stands last.
fn brief(why: String) -> String {
    if why.len() <= WHY_MAX {
        return why;
    }
    let head = why.floor_char_boundary(WHY_MAX / 2);
    let tail = why.ceil_char_boundary(why.len() - WHY_MAX / 2);
    format!("{}…{}", &why[..head], &why[tail..])
}

/// One client URL.
#[derive(Clone, Debug)]
struct Target {
    url: String,
    /// Failures in a row.
    failures: u32,
    rests_until: Instant,
    /// Looked at since its last failure, and found fit.
    looked_at: bool,
    /// Why it failed last.
    why: String,
}

impl Target {
    fn new(url: String) -> Target {
        Target {
            url,
            failures: 0,
            rests_until: Instant::default(),
            looked_at: false,
            why: String::new(),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Ask this one.
    Ask(String),
    /// Look at this one first.
    Look(String),
    /// All rest; the first wakes then.
    Rest(Instant),
    /// There is none.
    None,
}

/// The targets of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    list: Vec<Target>,
    current: usize,
    /// As given at the start; kept as a last resort when members advertise what cannot be reached from here.
    given: Vec<String>,
    avoided: Vec<String>,
}

impl Targets {
    pub(super) fn new(given: &[String]) -> Targets {
        let mut targets = Targets {
            given: given.to_vec(),
            ..Targets::default()
        };
        targets.replace(&[]);
        targets
    }

    /// Never choose these.
    pub(super) fn avoid(&mut self, urls: &[String]) {
        self.avoided = urls.iter().map(|url| normal(url)).collect();
        let known: Vec<String> = self.list.iter().map(|t| t.url.clone()).collect();
        self.replace(&known);
    }

    /// What is to be asked now, rather not `other_than`.
    pub(super) fn choose(&mut self, now: Instant, other_than: Option<&str>) -> Choice {
        let count = self.list.len();
        let order = (0..count).map(|step| (self.current + step) % count);
        let awake: Vec<usize> = order
            .filter(|at| self.list[*at].rests_until <= now)
            .collect();
        let wanted = |at: &&usize| Some(self.list[**at].url.as_str()) != other_than;
        let found = awake.iter().find(wanted).or(awake.first()).copied();
        let Some(at) = found else {
            let wakes = self.list.iter().map(|target| target.rests_until).min();
            return wakes.map_or(Choice::None, Choice::Rest);
        };
        if other_than.is_none() {
            self.current = at;
        }
        let target = &self.list[at];
        if target.looked_at {
            Choice::Ask(target.url.clone())
        } else {
            Choice::Look(target.url.clone())
        }
    }

    /// It answered as it should.
    pub(super) fn is_fit(&mut self, url: &str) {
        if let Some(target) = self.list.iter_mut().find(|target| target.url == url) {
            (target.failures, target.looked_at) = (0, true);
        }
    }

    /// It did not.
    pub(super) fn failed(&mut self, url: &str, now: Instant, why: String) {
        if let Some(target) = self.list.iter_mut().find(|target| target.url == url) {
            let (first, longest) = REST;
            let rest = first * 2_u32.pow(target.failures.min(10));
            target.failures = target.failures.saturating_add(1);
            target.rests_until = now + rest.min(longest);
            target.looked_at = false;
            target.why = brief(why);
        }
    }

    /// Takes these as the members' URLs; what is known of those that stay is kept.
    pub(super) fn replace(&mut self, urls: &[String]) {
        let current = self.list.get(self.current).map(|t| t.url.clone());
        let mut list: Vec<Target> = Vec::new();
        for url in urls.iter().chain(&self.given) {
            let url = normal(url);
            if self.avoided.contains(&url) || list.iter().any(|target| target.url == url) {
                continue;
            }
            let known = self.list.iter().find(|target| target.url == url);
            list.push(known.cloned().unwrap_or_else(|| Target::new(url)));
        }
        self.current = list
            .iter()
            .position(|target| Some(&target.url) == current.as_ref())
            .unwrap_or(0);
        self.list = list;
    }

    pub(super) fn is_avoided(&self, url: &str) -> bool {
        self.avoided.contains(&normal(url))
    }

    /// Whether it is not this host's own and has not failed just now.
    pub(super) fn is_worth_asking(&self, url: &str, now: Instant) -> bool {
        let known = self.list.iter().find(|target| target.url == normal(url));
        !self.is_avoided(url) && known.is_none_or(|target| target.rests_until <= now)
    }

    /// Why none can be asked, for people.
    pub(super) fn complaint(&self) -> String {
        let lines: Vec<String> = self
            .list
            .iter()
            .map(|target| match target.why.as_str() {
                "" => format!("{}: no answer", target.url),
                why => format!("{}: {why}", target.url),
            })
            .collect();
        if lines.is_empty() {
            return "no endpoint is known".to_owned();
        }
        lines.join("; ")
    }
}

/// URLs that differ in nothing that counts are the same.
fn normal(url: &str) -> String {
    url.trim().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::default() + Duration::from_millis(ms)
    }

    fn targets(urls: &[&str]) -> Targets {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        Targets::new(&urls)
    }

    #[test]
    fn one_is_kept_until_it_fails_and_looked_at_before_use() {
        let mut targets = targets(&["a", "b"]);
        assert_eq!(targets.choose(at(0), None), Choice::Look("a".into()));
        targets.is_fit("a");
        assert_eq!(targets.choose(at(0), None), Choice::Ask("a".into()));
        targets.failed("a", at(0), "why".into());
        assert_eq!(targets.choose(at(0), None), Choice::Look("b".into()));
        targets.is_fit("b");
        assert_eq!(targets.choose(at(60), None), Choice::Ask("b".into()));
        let other = targets.choose(at(60), Some("b"));
        assert_eq!(other, Choice::Look("a".into()), "awake again");
        assert_eq!(targets.choose(at(60), None), Choice::Ask("b".into()));
        targets.avoid(&["b".into()]);
        targets.failed("a", at(60), "why".into());
        let worth = |url, ms| targets.is_worth_asking(url, at(ms));
        assert_eq!((worth("a", 61), worth("a", 900)), (false, true));
        assert_eq!((worth("b", 61), worth("c", 61)), (false, true));
    }

    #[test]
    fn rests_double_and_end() {
        let mut targets = targets(&["a"]);
        for (now, wakes) in [(0, 50), (50, 150), (150, 350)] {
            targets.failed("a", at(now), String::new());
            assert_eq!(targets.choose(at(now), None), Choice::Rest(at(wakes)));
        }
        for _ in 0..40 {
            targets.failed("a", at(1000), String::new());
        }
        assert_eq!(targets.choose(at(1000), None), Choice::Rest(at(3000)));
        targets.is_fit("a");
        targets.failed("a", at(5000), String::new());
        assert_eq!(targets.choose(at(5000), None), Choice::Rest(at(5050)));
    }

    #[test]
    fn members_replace_what_was_given_but_never_the_hosts_own() {
        let mut targets = targets(&["http://a:1/"]);
        targets.is_fit("http://a:1");
        targets.replace(&["http://b:1".into(), "http://me:1".into()]);
        targets.avoid(&["http://me:1/".into()]);
        assert!(targets.is_avoided("http://me:1"));
        let urls: Vec<&str> = targets.list.iter().map(|t| t.url.as_str()).collect();
        assert_eq!(urls, ["http://b:1", "http://a:1"]);
        let kept = targets.choose(at(0), None);
        assert_eq!(kept, Choice::Ask("http://a:1".into()), "the one in use");
        targets.avoid(&["http://a:1".into(), "http://b:1".into()]);
        assert_eq!(targets.choose(at(0), None), Choice::None);
        assert_eq!(targets.complaint(), "no endpoint is known");
    }

    #[test]
    fn what_two_hosts_say_of_each_other_stays_short() {
        let mut hosts = [
            Targets::new(&["http://b:2379".to_owned(), "http://c:2379".to_owned()]),
            Targets::new(&["http://a:2379".to_owned(), "http://c:2379".to_owned()]),
        ];
        let dead = format!("{}é refuses", "x".repeat(WHY_MAX - 1));
        for turn in 0..100 {
            let said = hosts[1 - turn % 2].complaint();
            let own = &mut hosts[turn % 2];
            let other = own.list[0].url.clone();
            own.failed(&other, Instant::default(), said);
            own.failed("http://c:2379", Instant::default(), dead.clone());
            assert!(own.complaint().len() < 600, "{}", own.complaint());
            assert!(own.complaint().ends_with("refuses"), "the cause is kept");
        }
    }
}
