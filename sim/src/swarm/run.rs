//! Room `sim`, swarm: one run from its plan to its verdict.

use super::plan::Plan;
use super::report::Report;
use crate::NodeId;
use crate::check::modes::Modes;
use crate::check::{Docket, Finding, Verdict, require};
use crate::disk::DEAD;
use crate::history::History;
use crate::nemesis::{self, Nemesis, Record};
use crate::net::{Delay, LinkConfig};
use crate::observe::Observer;
use crate::sim::Sim;
use crate::story::{Story, caught};
use crate::workload::requests::{Draw, Reach};
use crate::workload::seen::{Part, Seen};
use crate::workload::{self, Desk, Manner};
use crate::world::World;
use bytes::Bytes;
use std::time::Duration;
use tenon_env::Task;
use tenon_env::sync::watch;
use tenon_proto::ids::Term;

/// How long the founders may take to serve.
const START: Duration = Duration::from_secs(30);
/// How errors of a disk end.
const DISK_ERROR: &str = "Input/output error";

/// Runs one plan.
///
/// # Errors
/// What a checker found, or why the world could not go on; a panic too.
pub fn run(seed: u64, plan: &Plan) -> Result<Report, Finding> {
    run_told(seed, plan).0
}

/// As [`run`], with the story of the run.
pub fn run_told(seed: u64, plan: &Plan) -> (Result<Report, Finding>, Story) {
    run_within(seed, plan, Duration::from_secs(3_600))
}

/// As [`run_told`], in so much simulated time; a run that takes longer has failed.
pub(crate) fn run_within(
    seed: u64,
    plan: &Plan,
    most: Duration,
) -> (Result<Report, Finding>, Story) {
    let mut sim = Sim::new(seed);
    sim.limit(most);
    sim.plant(plan.plant);
    let mut plan = plan.clone();
    plan.mask = plan.mask.afresh();
    let mask = plan.mask.clone();
    let scene = Scene::new(&sim, plan);
    let (history, world) = (scene.history.clone(), scene.world.clone());
    let verdict = caught(|| {
        let lived = sim.run_until(scene.play());
        let lived = lived.map_err(|stuck| Finding(stuck.to_string()));
        lived.and_then(|verdict| verdict).map_err(|found| {
            let (now, members) = (sim.now(), scene.world.describe());
            Finding(format!("{found}; at {now:?} {members}"))
        })?;
        scene.judge()
    });
    let nodes = world.nodes().into_iter();
    let names = nodes.filter_map(|node| Some((world.member_id(node)?.get(), node)));
    let story = Story {
        chronicle: sim.chronicle(),
        calls: history.calls(),
        members: world.nodes(),
        end: sim.now().as_nanos() as u64,
        done: mask.done(),
        names: names.collect(),
    };
    (verdict, story)
}

/// A run under way.
pub(super) struct Scene {
    pub(super) plan: Plan,
    pub(super) world: World,
    pub(super) history: History,
    pub(super) seen: Seen,
    pub(super) docket: Docket,
    /// What hosts answered, in a world of hosts.
    pub(super) modes: Option<Modes>,
    pub(super) observer: Observer,
    pub(super) record: Record,
    pub(super) over: watch::Sender<bool>,
    pub(super) rest: watch::Sender<bool>,
}

impl Scene {
    fn new(sim: &Sim, plan: Plan) -> Scene {
        let docket = Docket::default();
        let world = World::new(sim, plan.world.clone());
        let modes = plan.world.hosts.as_ref().map(|_| Modes::default());
        let observer = Observer::new(docket.clone(), modes.clone());
        observer.attend(&world);
        let record = Record::new(docket.clone());
        Scene {
            world,
            observer,
            docket,
            modes,
            plan,
            history: History::default(),
            seen: Seen::default(),
            record,
            over: watch::Sender::new(false),
            rest: watch::Sender::new(false),
        }
    }

    pub(super) fn desk(&self) -> Desk {
        Desk {
            world: self.world.clone(),
            history: self.history.clone(),
            seen: self.seen.clone(),
            modes: self.modes.clone(),
            mask: self.plan.mask.clone(),
            over: self.over.subscribe(),
            rest: self.rest.subscribe(),
        }
    }

    pub(super) fn found(&self) -> Verdict {
        self.docket.verdict()?;
        self.seen.finding().map_or(Ok(()), Err)
    }

    /// Waits for a task of the run to be done.
    pub(super) async fn within<T>(
        &self,
        most: Duration,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Result<T, Finding> {
        let limit = self.world.sim().sleep(most);
        let (future, limit) = (std::pin::pin!(future), std::pin::pin!(limit));
        match futures_util::future::select(future, limit).await {
            futures_util::future::Either::Left((out, _)) => Ok(out),
            futures_util::future::Either::Right(_) => {
                self.found()?;
                Err(Finding(format!("{what} within {most:?}: never")))
            }
        }
    }

    async fn play(&self) -> Verdict {
        self.set_links(self.plan.delay);
        let nodes = self.world.nodes();
        for node in &nodes {
            self.world.start(*node);
            self.drift(*node);
        }
        let all = async {
            for node in &nodes {
                self.world.until_up(*node).await;
            }
        };
        self.within(START, "the founders serve", all).await?;
        let term = self.term();
        let looking = self.observer.clone().watch_storage(self.world.clone());
        let looking = self.world.operator().spawn("storage", looking);
        let watching = self.start_watchers();
        let mut working = self.start_workers();
        working.extend(self.start_operators());
        let raging = self.start_nemesis();
        self.rage().await?;
        self.over.send_replace(true);
        for task in raging {
            task.ended().await;
        }
        self.come_to_rest(working).await?;
        drop(looking);
        require(!self.plan.is_steady() || self.term() == term, || {
            format!(
                "a leader whom a quorum heard all the time lost its office: {:?}",
                self.term()
            )
        })?;
        self.rest.send_replace(true);
        for task in watching {
            self.within(START, "a watcher ends", task.ended()).await?;
        }
        self.found()
    }

    /// The newest term that has a leader.
    fn term(&self) -> Option<Term> {
        let leader = self.world.leader()?;
        self.world.status(leader).map(|status| status.term)
    }

    /// The time of troubles; ends early when something was found.
    async fn rage(&self) -> Verdict {
        let end = self.world.sim().now() + self.plan.chaos;
        while self.world.sim().now() < end {
            self.world.sim().sleep(Duration::from_millis(100)).await;
            self.found()?;
            self.exits_are_excused()?;
        }
        Ok(())
    }

    pub(super) fn all_nodes(&self) -> Vec<NodeId> {
        let hosts = self.plan.world.hosts.as_ref();
        let spare = self.plan.churn.unwrap_or(0) + hosts.map_or(0, |hosts| hosts.spares);
        (1..=self.plan.world.founders + spare).map(NodeId).collect()
    }

    pub(super) fn set_links(&self, delay: Delay) {
        let nodes = self.all_nodes();
        let usual = LinkConfig {
            delay,
            ..LinkConfig::default()
        };
        for a in &nodes {
            for b in &nodes {
                self.world.sim().link(*a, *b, |link| *link = usual.clone());
            }
        }
    }

    fn drift(&self, node: NodeId) {
        let most = self.plan.drift_ppb;
        if most > 0 {
            let mut rng = self.world.sim().rng("drift");
            let draw = |rng: &mut crate::SimRng| rng.between(0, 2 * most) as i64 - most as i64;
            let drift = (0..node.0).map(|_| draw(&mut rng)).last();
            self.world.sim().drift(node, drift.unwrap_or(0));
        }
    }

    fn start_workers(&self) -> Vec<Task> {
        let (plan, sim) = (&self.plan, self.world.sim());
        let client = |n| {
            let mut client = self.world.client(n);
            client.patience = plan.patience;
            client
        };
        let mut tasks = Vec::new();
        for n in 1..=plan.callers.0 {
            let rng = sim.rng(&format!("caller {n}"));
            let mut draw = Draw::new(rng, n, plan.keys, plan.mix);
            draw.reach = Reach::Own;
            let client = client(n);
            let env = client.env().clone();
            let work = workload::make_calls(self.desk(), client, draw, plan.callers.1, plan.think);
            tasks.push(env.spawn("caller", work));
        }
        for n in 1..=plan.appenders {
            let client = client(100 + n);
            let env = client.env().clone();
            let rng = sim.rng(&format!("appender {n}"));
            let work = workload::append(self.desk(), client, 100 + n, rng, 2, plan.think);
            tasks.push(env.spawn("appender", work));
        }
        for n in 1..=plan.lockers {
            let client = client(200 + n);
            let env = client.env().clone();
            let rng = sim.rng(&format!("locker {n}"));
            let work = workload::lock_and_write(self.desk(), client, 200 + n, rng);
            tasks.push(env.spawn("locker", work));
        }
        for n in 1..=plan.electors {
            let client = client(250 + n);
            let env = client.env().clone();
            let rng = sim.rng(&format!("elector {n}"));
            let work = workload::stand_for_election(self.desk(), client, 250 + n, rng);
            tasks.push(env.spawn("elector", work));
        }
        tasks
    }

    fn start_watchers(&self) -> Vec<Task> {
        let sim = self.world.sim();
        let mut rng = sim.rng("watchers");
        let client = self.world.client(300);
        let env = client.env().clone();
        let stays = Duration::from_secs(3);
        let all = workload::watch_all(self.desk(), client, sim.rng("watch all"), stays);
        let mut tasks = vec![env.spawn("watch-all", all)];
        for n in 1..=self.plan.watchers {
            let own = format!("k{:02}", rng.below(self.plan.keys));
            let (key, range_end) = match rng.below(4) {
                0 => ("k".to_owned(), "l".to_owned()),
                1 => ("\0".to_owned(), "\0".to_owned()),
                2 => (own, "k99".to_owned()),
                _ => (own, String::new()),
            };
            let part = Part {
                key: Bytes::from(key),
                range_end: Bytes::from(range_end),
                start: *rng.pick(&[0, 1, 5, 100]),
            };
            let manner = Manner {
                slow: Duration::from_millis(*rng.pick(&[0, 0, 300])),
                stays: Duration::from_millis(*rng.pick(&[500, 4_000])),
                progress: rng.chance(300_000),
            };
            let client = self.world.client(300 + n);
            let env = client.env().clone();
            let (desk, own) = (self.desk(), sim.rng(&format!("watcher {n}")));
            let watch = workload::watch_part(desk, client, own, part, manner);
            tasks.push(env.spawn("watch-part", watch));
        }
        tasks
    }

    fn start_nemesis(&self) -> Vec<Task> {
        let (world, sim) = (&self.world, self.world.sim());
        let operator = world.operator();
        let nemesis = Nemesis {
            world: world.clone(),
            rng: sim.rng("nemesis"),
            record: self.record.clone(),
            faults: self.plan.faults.clone(),
            deaf: None,
            mask: self.plan.mask.clone(),
            every: self.plan.every,
            over: self.over.subscribe(),
        };
        let (rng, over) = (sim.rng("restarts"), self.over.subscribe());
        let restarts = nemesis::restart_the_dead(world.clone(), self.record.clone(), rng, over);
        let mut tasks = vec![
            operator.spawn("nemesis", nemesis.rage()),
            operator.spawn("restarts", restarts),
        ];
        if let Some(spare) = self.plan.churn {
            let (rng, over) = (sim.rng("churn"), self.over.subscribe());
            let churn = nemesis::churn(world.clone(), self.record.clone(), rng, spare, over);
            tasks.push(operator.spawn("churn", churn));
        }
        tasks
    }

    /// Members stop by themselves only over a disk that gave errors, or because they were removed, or when they
    /// cannot join yet.
    pub(super) fn exits_are_excused(&self) -> Verdict {
        use crate::world::Why;
        for exit in self.world.exits() {
            let excused = match &exit.why {
                Why::Killed | Why::Stopped => true,
                // The power went, and the process saw that before it was gone.
                Why::NotStarted(why) | Why::Failed(why) if why.contains(DEAD) => true,
                Why::NotStarted(why) if why.contains(DISK_ERROR) => {
                    self.record.was_ever_spoiled(exit.node, exit.life)
                }
                // Whoever is told that its storage is gone may not found anything.
                Why::NotStarted(why) if why.contains("never founds") => self.modes.is_some(),
                Why::Removed => self.plan.churn.is_some(),
                Why::Failed(_) => self.record.is_spoiled(exit.node, exit.life),
                Why::NotStarted(why) => {
                    self.record.is_spoiled(exit.node, exit.life)
                        || why.contains("member count is unequal")
                        || why.contains("cannot fetch cluster info")
                        || why.contains("no match found for existing member")
                }
            };
            require(excused, || format!("a member stopped by itself: {exit:?}"))?;
        }
        Ok(())
    }
}
