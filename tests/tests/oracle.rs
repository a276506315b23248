//! Room `tests`: every script under `tests/scripts` on Tenon against the answers recorded from real etcd, and,
//! where etcd can be had (`.ci/oracle-setup`), on etcd again, so that the recorded answers stay true.
//!
//! `TENON_ORACLE_RECORD=1` writes the answers anew from real etcd. Each script has its own fresh server, at
//! most six run at once, each is bounded by time.

#![allow(clippy::disallowed_methods, reason = "reads script files, real time")]

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenon_tests::compare;
use tenon_tests::random;
use tenon_tests::run::{self, Answers, Place};
use tenon_tests::schema::Schema;
use tenon_tests::script::{self, Item};
use tenon_tests::server::{Kind, oracle};

/// How long one script may take on one server.
const SCRIPT_MAX: Duration = Duration::from_secs(120);
/// Seeds of CI, and commands of each drawn script.
const SEEDS: &str = "0..8";
const RANDOM_STEPS: usize = 200;
/// Scripts at once: each is a server of its own, and mostly waits (for elections, for leases to end).
const PARALLEL: usize = 6;

fn main() {
    let mut args = Arguments::from_args();
    args.test_threads = Some(args.test_threads.map_or(PARALLEL, |n| n.min(PARALLEL)));
    let schema = Schema::load().unwrap_or_else(|error| panic!("{error}"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut files = Vec::new();
    script_files(&root, &mut files);
    assert!(!files.is_empty(), "no scripts under {}", root.display());
    let (etcd, etcdctl) = (oracle("etcd").is_some(), oracle("etcdctl").is_some());
    let record = std::env::var_os("TENON_ORACLE_RECORD").is_some_and(|v| v == "1");
    if !etcd {
        println!(
            "SKIP: oracle: no etcd here (.ci/oracle-setup builds it); answers recorded before stand in"
        );
    }
    if !etcdctl {
        println!("SKIP: oracle: no etcdctl here; the etcdctl scripts are ignored");
    }
    let mut trials = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).with_extension("");
        let script = Script {
            name: name.display().to_string(),
            text: std::fs::read_to_string(&file)
                .unwrap_or_else(|e| panic!("{}: {e}", file.display())),
            file,
            schema: schema.clone(),
        };
        let on_etcd = script.clone();
        let trial = Trial::test(format!("etcd::{}", script.name), move || {
            on_etcd.on_etcd(record)
        });
        trials.push(trial.with_ignored_flag(!etcd));
        if !record {
            trials.extend(script.trials());
        }
    }
    if !record {
        trials.extend(random_trials(&schema, etcd));
    }
    libtest_mimic::run(&args, trials).exit();
}

/// Scripts drawn from seeds, on both servers: `TENON_ORACLE_SEEDS=FIRST..LAST` for others than CI's.
fn random_trials(schema: &Schema, etcd: bool) -> Vec<Trial> {
    let range = std::env::var("TENON_ORACLE_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let ends = range
        .split_once("..")
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (first, last): (u64, u64) =
        ends.unwrap_or_else(|| panic!("TENON_ORACLE_SEEDS={range}: not A..B"));
    let trial = |seed| {
        let schema = schema.clone();
        let name = format!("random::{seed}");
        Trial::test(name, move || check_random(&schema, seed)).with_ignored_flag(!etcd)
    };
    (first..last).map(trial).collect()
}

/// Tenon answers a drawn script as etcd does.
fn check_random(schema: &Schema, seed: u64) -> Result<(), Failed> {
    let mut items = script::parse(&random::script(seed, RANDOM_STEPS))?;
    let expected = answers(schema, Kind::Etcd, Place::Alone, &items)?;
    fill(&mut items, expected);
    let answers = answers(schema, Kind::Tenon, Place::Alone, &items)?;
    judge(
        Path::new(&format!("seed {seed}")),
        &items,
        &answers,
        Kind::Tenon,
    )
}

/// Writes etcd's answers below their commands.
fn fill(items: &mut [Item], answers: Answers) {
    let mut answers = answers.into_iter();
    for item in items {
        if let Item::Command(command) = item {
            command.answer = answers.next().unwrap_or_default();
        }
    }
}

/// One file.
#[derive(Clone)]
struct Script {
    name: String,
    text: String,
    file: PathBuf,
    schema: Schema,
}

impl Script {
    /// Tenon alone, and three Tenons asked through the leader and through a follower. A line `# alone: …` says
    /// why a script has one member only; one that begins with `cluster` says itself how many it has; one with
    /// `# long on three members: …` runs there in the long lane.
    fn trials(&self) -> Vec<Trial> {
        let has = |start: &str| self.text.lines().any(|line| line.starts_with(start));
        let (is_alone, is_cluster) = (has("# alone: "), has("> cluster "));
        let is_left_out =
            has("# long on three members: ") && std::env::var_os("TENON_ORACLE_LONG").is_none();
        let mut places = vec![("tenon", Place::Alone)];
        if !is_alone && !is_cluster {
            places.extend([("leader", Place::Leader), ("follower", Place::Follower)]);
        }
        let trial = |(label, place)| {
            let script = self.clone();
            let trial = Trial::test(format!("{label}::{}", self.name), move || {
                script.check(Kind::Tenon, place)
            });
            trial.with_ignored_flag(is_left_out && place != Place::Alone)
        };
        places.into_iter().map(trial).collect()
    }

    /// The recorded answers are etcd's (or become so, when recording).
    fn on_etcd(&self, record: bool) -> Result<(), Failed> {
        if !record {
            return self.check(Kind::Etcd, Place::Alone);
        }
        let mut items = self.items()?;
        let answers = answers(&self.schema, Kind::Etcd, Place::Alone, &items)?;
        fill(&mut items, answers);
        Ok(std::fs::write(&self.file, script::write(&items))?)
    }

    /// Everybody answers as etcd did; Tenon, where the script says it differs on purpose, as it says.
    fn check(&self, kind: Kind, place: Place) -> Result<(), Failed> {
        let items = self.items()?;
        let answers = answers(&self.schema, kind, place, &items)?;
        judge(&self.file, &items, &answers, kind)
    }

    fn items(&self) -> Result<Vec<Item>, Failed> {
        Ok(script::parse(&self.text).map_err(|e| format!("{}: {e}", self.file.display()))?)
    }
}

fn judge(file: &Path, items: &[Item], answers: &Answers, kind: Kind) -> Result<(), Failed> {
    let wrong = compare::differences(items, answers, kind);
    if wrong.is_empty() {
        return Ok(());
    }
    let count = wrong.len();
    let place = |w: &String| format!("{}:{w}", file.display());
    let text: Vec<String> = wrong.iter().map(place).collect();
    Err(format!(
        "{count} answers differ (- expected, + got)\n{}",
        text.join("\n")
    )
    .into())
}

fn answers(schema: &Schema, kind: Kind, place: Place, items: &[Item]) -> Result<Answers, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let bounded =
        async { tokio::time::timeout(SCRIPT_MAX, run::run(schema, kind, place, items)).await };
    let late = |_| format!("not done within {} s", SCRIPT_MAX.as_secs());
    Ok(runtime.block_on(bounded).map_err(late)??)
}

fn script_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for entry in entries {
        let path = entry
            .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
            .path();
        if path.is_dir() {
            script_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "txt") {
            found.push(path);
        }
    }
    found.sort();
}
