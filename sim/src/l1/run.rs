//! Room `sim`, L1: one run from its plan to its verdict.

use super::clients::Client;
use super::host::{self, Host, MEMBER, Running};
use super::plan::{End, LifePlan, Plan};
use super::troubles::{Counts, Troubles};
use super::watchers::{watch_all, watch_part};
use crate::check::reads::Answered;
use crate::check::{self, Finding, Verdict, positions, require};
use crate::disk::CrashMode;
use crate::history::{History, Outcome, Reply};
use crate::rng::SimRng;
use crate::sim::{Control, Sim};
use crate::story::{Story, caught};
use crate::trace::Trace;
use crate::workload::Mix;
use crate::workload::requests::Draw;
use crate::workload::seen::{Part, Seen};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::Env;
use tenon_env::sync::{oneshot, watch};
use tenon_proto::etcdserverpb as pb;
use tenon_server::member::config::Tuning;

/// The node of the clients.
const CLIENTS: u64 = 100;
/// How long a member may take to be ready, and clients and watchers to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Every lease of the workload is over after this long without renewal.
const LEASES_END: Duration = Duration::from_secs(20);

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls answered.
    pub answered: u64,
    /// Calls refused.
    pub refused: u64,
    /// Calls of unknown outcome.
    pub unknown: u64,
    /// Lives that ended by a crash.
    pub crashes: u64,
    /// Lives that ended in order.
    pub orderly: u64,
    /// Members that stopped by themselves after an error of the disk.
    pub fatal: u64,
    /// Starts that a crash cut short.
    pub cut_starts: u64,
    /// The newest revision at the end.
    pub revisions: i64,
    /// Times a node did nothing for a while.
    pub pauses: u64,
    /// Jumps of clocks.
    pub jumps: u64,
    /// Times a disk was full.
    pub full: u64,
    /// Leases that ended by themselves.
    pub expired: u64,
    /// Hashes compared with an earlier one of the same history.
    pub hashes: u64,
    /// Stretches of watches compared with the timeline.
    pub watches: u64,
    /// Mutating operations of the disk.
    pub disk_operations: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Everything that happened, as a hash.
    pub trace: Trace,
}

/// Runs one plan.
///
/// # Errors
/// What a checker found, or why the world could not go on; a panic too.
pub fn run(seed: u64, plan: &Plan) -> Result<Report, Finding> {
    run_told(seed, plan).0
}

/// As [`run`], with the story of the run.
pub fn run_told(seed: u64, plan: &Plan) -> (Result<Report, Finding>, Story) {
    let sim = Sim::new(seed);
    let mut scene = Scene::new(&sim);
    let history = scene.history.clone();
    let verdict = caught(|| {
        let lived = sim.run_until(scene.play(plan));
        lived.map_err(|stuck| Finding(stuck.to_string()))??;
        scene.judge(plan)
    });
    let story = Story {
        chronicle: sim.chronicle(),
        calls: history.calls(),
        members: vec![MEMBER],
        end: sim.now().as_nanos() as u64,
        ..Story::default()
    };
    (verdict, story)
}

struct Scene {
    sim: Control,
    history: History,
    seen: Seen,
    up: watch::Sender<Option<Running>>,
    clients: Env,
    report: Report,
    finding: Arc<Mutex<Option<Finding>>>,
    counts: Arc<Mutex<Counts>>,
    durable: Arc<Mutex<positions::Durable>>,
}

impl Scene {
    fn new(sim: &Sim) -> Scene {
        let clients = sim.node(CLIENTS);
        Scene {
            sim: (**sim).clone(),
            history: History::default(),
            seen: Seen::default(),
            up: watch::Sender::new(None),
            clients,
            report: Report::default(),
            finding: Arc::default(),
            counts: Arc::default(),
            durable: Arc::default(),
        }
    }

    fn host(&self) -> Host {
        Host::new(self.sim.clone(), self.up.subscribe())
    }

    async fn play(&mut self, plan: &Plan) -> Verdict {
        let watch_all = watch_all(self.host(), self.seen.clone(), self.history.clone());
        self.clients.spawn("watch-all", watch_all);
        let parts = self.start_watchers(plan);
        let mut working = self.start_clients(plan);
        let mut number = 0;
        for life in &plan.lives {
            number += 1;
            self.live(number, plan, life).await?;
        }
        self.last_life(number + 1, plan, &mut working, parts).await
    }

    fn start_clients(&self, plan: &Plan) -> Vec<tenon_env::Task> {
        let client = |number| Client {
            number,
            env: self.clients.clone(),
            host: self.host(),
            history: self.history.clone(),
            seen: self.seen.clone(),
            draw: Draw::new(
                SimRng::fork(self.sim.seed(), "client", number),
                number,
                plan.keys,
                Mix::usual(plan.leases),
            ),
            calls: plan.calls,
            think: plan.think,
        };
        let spawn = |number| self.clients.spawn("client", client(number).work());
        (1..=plan.clients).map(spawn).collect()
    }

    fn start_watchers(&self, plan: &Plan) -> Vec<(tenon_env::Task, oneshot::Sender<()>)> {
        let mut rng = self.sim.rng("watchers");
        let mut start = |_| {
            let (key, range_end) = match rng.below(3) {
                0 => ("k".to_owned(), "l".to_owned()),
                1 => (format!("k{:02}", rng.below(plan.keys)), String::new()),
                _ => (format!("k{:02}", rng.below(plan.keys)), "k99".to_owned()),
            };
            let part = Part {
                key: Bytes::from(key),
                range_end: Bytes::from(range_end),
                start: rng.below(10) as i64,
            };
            let (tx, rx) = oneshot::channel();
            let (host, seen, sim) = (self.host(), self.seen.clone(), self.sim.clone());
            let delay = Duration::from_millis(rng.below(3_000));
            let task = self.clients.spawn("watch-part", async move {
                sim.sleep(delay).await;
                watch_part(host, seen, part, rx).await;
            });
            (task, tx)
        };
        (0..plan.watchers).map(&mut start).collect()
    }

    /// One life with its troubles.
    async fn live(&mut self, number: u64, plan: &Plan, life: &LifePlan) -> Verdict {
        let env = self.begin(plan);
        let disk = self.sim.disk(MEMBER);
        disk.slow(life.slow_percent);
        disk.lie(life.lies);
        disk.errors_ppm(0, life.write_errors_ppm, 0);
        if let Some(n) = life.fail_sync {
            disk.fail_sync(n);
        }
        if let End::AtOperation(n, mode) = life.end {
            disk.crash_at(disk.ops() + n, mode);
        }
        let running = match self.start(number, &env, plan.tuning).await? {
            Some(running) => running,
            None => {
                self.report.cut_starts += 1;
                self.end(CrashMode::Torn);
                return Ok(());
            }
        };
        let most = match life.end {
            End::AtOperation(..) => plan.life_most,
            End::At(moment, _) | End::Orderly(moment) => moment,
        };
        let ended = self.until_end(&running, life, most).await;
        let mode = match life.end {
            End::AtOperation(_, mode) | End::At(_, mode) => mode,
            End::Orderly(_) => CrashMode::Lost,
        };
        if let Ended::Fatal(reason) = &ended {
            require(life.has_disk_errors(), || {
                format!("life {number} stopped by itself: {reason}")
            })?;
            self.report.fatal += 1;
        } else if matches!(life.end, End::Orderly(_)) && self.sim.is_alive(MEMBER) {
            self.up.send_replace(None);
            let stopped = self.clients.timeout(PATIENCE, host::stop(&running)).await;
            require(stopped.is_some(), || {
                format!("life {number} does not stop in order")
            })?;
            self.report.orderly += 1;
        } else {
            self.report.crashes += 1;
        }
        self.end(mode);
        self.found()
    }

    async fn until_end(&self, running: &Running, life: &LifePlan, most: Duration) -> Ended {
        let sim = self.sim.clone();
        let troubles = Troubles {
            sim: sim.clone(),
            clients: self.clients.clone(),
            host: self.host(),
            history: self.history.clone(),
            finding: self.finding.clone(),
            counts: self.counts.clone(),
            life: running.life,
        };
        troubles.begin(life);
        tokio::select! {
            biased;
            () = sim.died(MEMBER) => Ended::Died,
            reason = running.member.failed() => Ended::Fatal(reason),
            () = sim.sleep(most) => Ended::Time,
        }
    }

    fn begin(&self, plan: &Plan) -> Env {
        let first = !self.sim.is_alive(MEMBER) && self.sim.disk(MEMBER).ops() == 0;
        let env = if first {
            self.sim.node(MEMBER)
        } else {
            self.sim.restart(MEMBER)
        };
        self.sim.drift(MEMBER, plan.drift_ppb);
        env
    }

    /// Ends the member's life.
    fn end(&self, mode: CrashMode) {
        self.up.send_replace(None);
        self.sim.resume(MEMBER);
        self.sim.kill(MEMBER, mode);
        self.sim.disk(MEMBER).heal();
    }

    /// Starts the member and shows it to clients; `None` when its node died over it.
    async fn start(
        &mut self,
        number: u64,
        env: &Env,
        tuning: Tuning,
    ) -> Result<Option<Running>, Finding> {
        let started = self
            .clients
            .timeout(PATIENCE, host::start(env, tuning))
            .await;
        let member = match started {
            Some(Ok(member)) => member,
            _ if !self.sim.is_alive(MEMBER) => return Ok(None),
            // An error of the disk was asked for; the member may refuse to start over it.
            Some(Err(why)) if why.contains("os error 5") => {
                self.report.fatal += 1;
                return Ok(None);
            }
            Some(Err(why)) => return Err(Finding(format!("life {number} does not start: {why}"))),
            None => return Err(Finding(format!("life {number} hangs at its start"))),
        };
        let running = Running {
            life: number,
            env: env.clone(),
            member,
        };
        self.watch_positions(&running);
        let ready = running.clone();
        let up = self.up.clone();
        // Clients are let in as the shell does it: once recovery is over.
        let (tx, rx) = oneshot::channel();
        env.spawn("ready", async move {
            ready.member.wait_recovered().await;
            up.send_replace(Some(ready));
            let _ = tx.send(());
        });
        let _ = rx.await;
        Ok(Some(running))
    }

    fn watch_positions(&self, running: &Running) {
        let (member, sim) = (running.member.clone(), self.sim.clone());
        let (durable, finding) = (self.durable.clone(), self.finding.clone());
        running.env.spawn("positions", async move {
            loop {
                if let Err(found) = positions::check(&member, &mut durable.lock()) {
                    finding.lock().get_or_insert(found);
                }
                sim.sleep(Duration::from_millis(5)).await;
            }
        });
    }

    fn found(&self) -> Verdict {
        let found = self.finding.lock().clone().or(self.seen.finding());
        found.map_or(Ok(()), Err)
    }

    /// The life without troubles: everything must come to rest.
    async fn last_life(
        &mut self,
        number: u64,
        plan: &Plan,
        working: &mut Vec<tenon_env::Task>,
        parts: Vec<(tenon_env::Task, oneshot::Sender<()>)>,
    ) -> Verdict {
        let env = self.begin(plan);
        let Some(running) = self.start(number, &env, plan.tuning).await? else {
            return Err(Finding("the last life died".to_owned()));
        };
        let member = running.member.clone();
        tokio::select! {
            biased;
            reason = member.failed() => {
                Err(Finding(format!("the last life stopped by itself: {reason}")))
            }
            rested = self.come_to_rest(number, plan, &running, working, parts) => rested,
        }
    }

    async fn come_to_rest(
        &mut self,
        number: u64,
        plan: &Plan,
        running: &Running,
        working: &mut Vec<tenon_env::Task>,
        parts: Vec<(tenon_env::Task, oneshot::Sender<()>)>,
    ) -> Verdict {
        let member = running.member.clone();
        let ready = self.clients.timeout(PATIENCE, member.wait_ready()).await;
        require(ready.is_some(), || {
            "the last life is never ready".to_owned()
        })?;
        for task in working.drain(..) {
            let ended = self.clients.timeout(10 * PATIENCE, task.ended()).await;
            self.found()?;
            require(ended.is_some(), || "a client never ends".to_owned())?;
        }
        if plan.leases {
            self.sim.sleep(LEASES_END).await;
            let left = running.member.services().context.store().leases().list();
            self.found()?;
            require(left.is_empty(), || format!("leases never end: {left:?}"))?;
        }
        let last = self.final_read(number).await?;
        self.catch_up(last).await?;
        // Whoever watches a part has been told by now too, or never will.
        self.sim.sleep(Duration::from_millis(500)).await;
        for (task, end) in parts {
            let _ = end.send(());
            let ended = self.clients.timeout(PATIENCE, task.ended()).await;
            require(ended.is_some(), || "a watcher never ends".to_owned())?;
        }
        self.found()
    }

    /// Reads everything once more; the revision of the answer.
    async fn final_read(&mut self, number: u64) -> Result<i64, Finding> {
        let all = Bytes::from_static(b"\0");
        let request = pb::RangeRequest {
            key: all.clone(),
            range_end: all,
            ..Default::default()
        };
        let mut host = self.host();
        let now = self.sim.now().as_nanos() as u64;
        let (id, request) = self
            .history
            .begin(0, now, |_| crate::history::Request::Range(request));
        let call = host.call(|services| crate::workload::requests::carry_out_at(services, request));
        let answer = self.clients.timeout(PATIENCE, call).await.flatten();
        let outcome = answer.map_or(Outcome::Unknown, Outcome::of);
        let last = match &outcome {
            Outcome::Reply(reply @ Reply::Range(_)) => reply.revision(),
            other => return Err(Finding(format!("life {number} does not answer: {other:?}"))),
        };
        self.history
            .end(id, self.sim.now().as_nanos() as u64, outcome);
        Ok(last)
    }

    async fn catch_up(&self, last: i64) -> Verdict {
        let caught_up = async {
            while self.seen.last() < last && self.seen.finding().is_none() {
                self.sim.sleep(Duration::from_millis(10)).await;
            }
        };
        let done = self.clients.timeout(PATIENCE, caught_up).await;
        require(done.is_some(), || {
            format!(
                "the watch of all stands at {}, the store at {last}",
                self.seen.last()
            )
        })
    }

    /// Has every checker read the history.
    fn judge(mut self, plan: &Plan) -> Result<Report, Finding> {
        let calls = self.history.calls();
        let timeline = self.seen.timeline();
        let compaction = self.history.compaction();
        let last = timeline.last();
        let (model, expired) = check::writes::check(&calls, &timeline, compaction)?;
        check::reads::check(&calls, &model, compaction, last, Answered::ByOne)?;
        let hashes = check::hashes::check(&calls)?;
        let fast = plan.drift_ppb.unsigned_abs().div_ceil(10_000_000);
        if !plan.lives.iter().any(LifePlan::hastens) {
            check::leases::check(&calls, &expired, &self.seen.seen_at(), fast)?;
        }
        let watched = self.seen.watched();
        let stretches = watched.len() as u64;
        for watched in &watched {
            check::watches::check(watched, &timeline)?;
        }
        let report = &mut self.report;
        for call in &calls {
            match call.outcome {
                Outcome::Reply(_) => report.answered += 1,
                Outcome::Refused(_) => report.refused += 1,
                Outcome::Unknown => report.unknown += 1,
            }
        }
        let counts = *self.counts.lock();
        (report.pauses, report.jumps, report.full) = (counts.pauses, counts.jumps, counts.full);
        report.revisions = last;
        report.expired = expired.len() as u64;
        report.hashes = hashes;
        report.watches = stretches;
        report.disk_operations = self.sim.disk(MEMBER).ops();
        report.simulated = self.sim.now();
        self.sim
            .note(&[report.answered, report.unknown, last as u64]);
        report.trace = self.sim.trace();
        Ok(report.clone())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Died,
    Fatal(String),
    Time,
}
