//! Room `sim`: `tenon sim`: runs seeds and says which failed. This file and its folder are the only ones of this
//! room that know real time, threads, files and the terminal; what runs inside a seed knows none of them.

mod many;
mod single;
mod sums;

use crate::mask::Mask;
use crate::swarm::Plan;
use std::path::PathBuf;
use std::time::Duration;
use tenon_env::Plant;

const USAGE: &str = "\
tenon sim: runs whole members in a simulated world, each run from one seed

Each seed runs three times over: one member under lives that end badly, a cluster under everything at once, and
hosts that switch between server and client under everything at once.

  tenon sim [--seeds A..B] [--hosts] [--minutes M] [--jobs N] [--seconds S]
  tenon sim --seed N [--hosts] [--html FILE] [--shrink] [--mask MASK] [--plant NAME] [--seconds S]

  --seeds A..B   seeds from A to B, both included (1..200); one of a hundred runs twice, to compare traces
  --seed N       one seed; its last line is `trace` and 16 hex digits, the same at every run
  --minutes M    begin no new run after so many minutes
  --jobs N       runs at the same time (the number of cores)
  --seconds S    simulated seconds of trouble in a cluster (8)
  --hosts        run the hosts only; --seconds, --html, --shrink and --mask are about them then
  --html FILE    draw the run of --seed as a page: members, roles, faults, calls, and what broke
  --shrink       when the cluster (with --hosts: the hosts) of --seed fails, leave out faults and calls for as long
                 as it still fails the same way, at most 10 minutes; prints the MASK of what is left out
  --mask MASK    leave these faults and calls out; runs the cluster only, or with --hosts the hosts only
  --plant NAME   plant a mistake in every member, to see it found; runs the cluster only. One of:
                 PLANTS

Exit status: 0 when every seed held, 1 when one failed, 2 for a mistake in the arguments.
";

#[derive(Clone, Debug)]
struct Options {
    first: u64,
    last: u64,
    /// One seed was asked for: it is shown in full.
    single: bool,
    limit: Option<Duration>,
    jobs: usize,
    seconds: Option<u64>,
    /// Only hosts run.
    hosts: bool,
    html: Option<PathBuf>,
    shrink: bool,
    mask: Mask,
    plant: Plant,
}

impl Options {
    /// The plan of a seed's cluster.
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = match (self.plant, self.seconds) {
            (Plant::None, _) if self.hosts => Plan::hosts(seed),
            (Plant::None, None) => Plan::of(seed),
            (Plant::None, Some(seconds)) => Plan::lasting(seed, Duration::from_secs(seconds)),
            (plant, _) => Plan::proving(plant, seed),
        };
        if let Some(seconds) = self.seconds {
            plan.chaos = Duration::from_secs(seconds);
        }
        plan.mask = self.mask.clone();
        plan
    }

    /// Whether the runs of one member, and of hosts beside the cluster, belong to it.
    fn runs_all(&self) -> bool {
        self.plant == Plant::None && self.mask.is_empty() && !self.hosts
    }

    /// What [`Options::plan`] is about.
    fn what(&self) -> &'static str {
        match self.hosts {
            true => "hosts",
            false => "cluster",
        }
    }

    /// The plan of a seed's hosts, where they run beside the cluster.
    fn hosts_plan(&self, seed: u64) -> Plan {
        let seconds = self.seconds.map_or(8, |seconds| seconds);
        Plan::hosts_lasting(seed, Duration::from_secs(seconds))
    }

    /// The command that shows the run of one seed again.
    fn replay(&self) -> String {
        let mut text = format!("tenon sim --seed {}", self.first);
        if let Some(seconds) = self.seconds {
            text.push_str(&format!(" --seconds {seconds}"));
        }
        if self.hosts {
            text.push_str(" --hosts");
        }
        if self.plant != Plant::None {
            text.push_str(&format!(" --plant {}", name(self.plant)));
        }
        if !self.mask.is_empty() {
            text.push_str(&format!(" --mask '{}'", self.mask));
        }
        text
    }
}

/// The name of a planted mistake: its words with dashes.
fn name(plant: Plant) -> String {
    let mut name = String::new();
    for c in format!("{plant:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}

fn usage() -> String {
    let names: Vec<String> = Plant::ALL.into_iter().map(name).collect();
    let lines: Vec<String> = names.chunks(3).map(|three| three.join(", ")).collect();
    USAGE.replace("PLANTS", &lines.join(",\n                 "))
}

fn number(name: &str, value: Option<&String>) -> Result<u64, String> {
    let value = value.ok_or(format!("{name} needs a value"))?;
    value
        .parse()
        .map_err(|_| format!("{name} {value:?} is not a number"))
}

fn planted(value: Option<&String>) -> Result<Plant, String> {
    let value = value.ok_or("--plant needs a name")?;
    let found = Plant::ALL.into_iter().find(|plant| name(*plant) == *value);
    found.ok_or(format!("no mistake has the name {value:?}"))
}

fn parse(args: &[String]) -> Result<Options, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        first: 1,
        last: 200,
        single: false,
        limit: None,
        jobs: cores,
        seconds: None,
        hosts: false,
        html: None,
        shrink: false,
        mask: Mask::default(),
        plant: Plant::None,
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
            "--seconds" => options.seconds = Some(number(arg, args.next())?.clamp(1, 3_600)),
            "--hosts" => options.hosts = true,
            "--html" => options.html = Some(args.next().ok_or("--html needs a file")?.into()),
            "--shrink" => options.shrink = true,
            "--mask" => options.mask = args.next().ok_or("--mask needs a value")?.parse()?,
            "--plant" => options.plant = planted(args.next())?,
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    if options.first > options.last {
        let (first, last) = (options.first, options.last);
        return Err(format!("no seeds from {first} to {last}"));
    }
    if options.hosts && options.plant != Plant::None {
        return Err("--plant is for clusters, not for --hosts".to_owned());
    }
    let of_one = options.html.is_some() || options.shrink || !options.mask.is_empty();
    if of_one && !options.single {
        return Err("--html, --shrink and --mask are for one --seed".to_owned());
    }
    Ok(options)
}

/// Runs `tenon sim` with the arguments after the verb; the process's exit status.
pub fn cli(args: &[String]) -> u8 {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{}", usage());
        return 0;
    }
    let held = match parse(args) {
        Ok(options) if options.single => single::single(&options),
        Ok(options) => many::many(&options),
        Err(mistake) => {
            eprintln!("tenon sim: {mistake}\n\n{}", usage());
            return 2;
        }
    };
    u8::from(!held)
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
        assert_eq!((seeds.first, seeds.last, seeds.single), (3, 9, false));
        assert_eq!(
            (seeds.limit, seeds.jobs),
            (Some(Duration::from_secs(120)), 4)
        );
        let one = [
            "--seed",
            "7",
            "--seconds",
            "3",
            "--html",
            "f",
            "--shrink",
            "--mask",
            "0:1",
        ];
        let one = parsed(&one).unwrap();
        assert!(one.single && one.shrink && !one.runs_all());
        assert_eq!(one.replay(), "tenon sim --seed 7 --seconds 3 --mask '0:1'");
        let plan = one.plan(7);
        assert_eq!(plan.chaos, Duration::from_secs(3));
        assert_eq!(plan.mask.to_string(), "0:1");
        let planted = parsed(&["--seed", "7", "--plant", "stale-read"]).unwrap();
        assert_eq!(planted.plan(7).plant, Plant::StaleRead);
        assert_eq!(planted.replay(), "tenon sim --seed 7 --plant stale-read");
        let hosts = parsed(&["--seed", "7", "--hosts"]).unwrap();
        assert!(hosts.plan(7).switching.is_some() && !hosts.runs_all());
        assert_eq!(hosts.replay(), "tenon sim --seed 7 --hosts");
        for wrong in [
            &["--seeds", "9..3"][..],
            &["--seeds", "9"],
            &["--seed"],
            &["--seed", "x"],
            &["--plant", "nothing"],
            &["--mask", "0:1"],
            &["--seed", "1", "--mask", "1"],
            &["--seeds", "1..2", "--html", "f"],
            &["x"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(cli(&["--nonsense".to_owned()]), 2);
        assert_eq!(cli(&["--help".to_owned()]), 0);
        assert!(usage().contains("stale-read") && !usage().contains("PLANTS"));
    }
}
