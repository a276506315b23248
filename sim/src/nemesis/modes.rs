//! Room `sim`, nemesis: operators of hosts, and what befalls hosts that switch: they are asked to change their mode,
//! several at a time; some lose their power at a drawn step, some are told to go back, some are cut off from the
//! others' client ports; one may lose its disk.

use super::Record;
use crate::NodeId;
use crate::check::modes::Modes;
use crate::check::{Finding, require};
use crate::disk::CrashMode;
use crate::rng::SimRng;
use crate::world::{CallError, Client, Lost, State, World};
use std::time::Duration;
use tenon_env::sync::watch;
use tenon_proto::caller::Caller;
use tenon_proto::etcdserverpb as pb;
use tenon_server::host::edges::Step;
use tenon_server::host::{ChangeOptions, Host, Mode};

/// What befalls hosts in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switching {
    /// Longest time between two orders.
    pub every: Duration,
    /// Accidents at steps of switches, in parts per million of switches.
    pub accidents_ppm: u32,
    /// One disk is lost.
    pub loses_disk: bool,
}

/// Looks at hosts that should come to rest.
const LOOK: Duration = Duration::from_millis(20);

/// Who gives orders to hosts.
pub(crate) struct Operator {
    pub(crate) world: World,
    pub(crate) record: Record,
    pub(crate) modes: Modes,
    pub(crate) rng: SimRng,
    pub(crate) plan: Switching,
    pub(crate) over: watch::Receiver<bool>,
}

/// What befalls a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accident {
    None,
    /// The host loses its power at this step, and what its disk had not synced goes this way.
    Dies(Step, CrashMode, Duration),
    /// The operator takes the order back.
    Aborts(Duration),
    /// The host and another one do not hear each other's client ports.
    Cut(NodeId, Duration),
}

impl Operator {
    /// Gives orders until it is over.
    pub(crate) async fn order(mut self) {
        loop {
            let pause = self.rng.below(self.plan.every.as_nanos() as u64 + 1);
            self.world.sim().sleep(Duration::from_nanos(pause)).await;
            if *self.over.borrow() {
                return;
            }
            let nodes = self.world.nodes();
            let node = *self.rng.pick(&nodes);
            let within = *self.rng.pick(&[1_000, 4_000, 20_000]);
            let accident = self.accident();
            let Some(host) = self.world.host(node) else {
                continue;
            };
            if self.record.is_closed() {
                continue;
            }
            self.record.count("switch asked for");
            let befalls = befall(self.world.clone(), self.record.clone(), node, accident);
            let over = self.over.clone();
            self.world
                .operator()
                .spawn("accident", befalls(host.clone(), over));
            let options = ChangeOptions {
                within: Some(Duration::from_millis(within)),
                ..ChangeOptions::default()
            };
            let switch = switch(host, options, self.record.clone());
            self.world.operator().spawn("switch", switch);
        }
    }

    fn accident(&mut self) -> Accident {
        if !self.rng.chance(self.plan.accidents_ppm) {
            return Accident::None;
        }
        let step = *self.rng.pick(Step::ALL);
        let modes = [CrashMode::Kept, CrashMode::Lost, CrashMode::Torn];
        let mode = *self.rng.pick(&modes);
        let nodes = self.world.nodes();
        let (other, most) = (*self.rng.pick(&nodes), *self.rng.pick(&[1, 20, 1_500]));
        let lasts = Duration::from_micros(self.rng.below(most * 1_000));
        match self.rng.below(8) {
            0 => Accident::Aborts(lasts),
            1 | 2 => Accident::Cut(other, lasts),
            _ => Accident::Dies(step, mode, lasts.min(Duration::from_millis(20))),
        }
    }
}

async fn switch(host: Host, options: ChangeOptions, record: Record) {
    let to = match host.status().mode {
        Mode::Server => Mode::Client,
        Mode::Client => Mode::Server,
    };
    let changed = match host.change_mode(to, options).await {
        Ok(change) => change.await,
        Err(error) => Err(error),
    };
    match (changed, to) {
        (Ok(()), Mode::Server) => record.count("switch to server"),
        (Ok(()), Mode::Client) => record.count("switch to client"),
        (Err(error), _) if error.step == Some(Step::Check) => record.count("switch refused"),
        (Err(_), _) => record.count("switch that failed"),
    }
}

/// Has an accident befall a host that is about to switch.
fn befall(
    world: World,
    record: Record,
    node: NodeId,
    accident: Accident,
) -> impl FnOnce(Host, watch::Receiver<bool>) -> tenon_env::BoxFuture<'static, ()> {
    move |host, over| {
        Box::pin(async move {
            let sim = world.sim().clone();
            match accident {
                Accident::None => {}
                Accident::Dies(step, mode, later) => {
                    let mut status = host.watch_status();
                    let life = world.life(node);
                    drop(host);
                    let at = |s: &tenon_server::host::HostStatus| {
                        s.progress.as_ref().is_some_and(|p| p.step == step)
                    };
                    let reached = async { status.wait_for(at).await.is_ok() };
                    let far = Duration::from_secs(30);
                    if world.operator().timeout(far, reached).await != Some(true) {
                        return;
                    }
                    sim.sleep(later).await;
                    if !*over.borrow() && world.life(node) == life {
                        record.count(killed_at(step));
                        world.kill(node, mode);
                    }
                }
                Accident::Aborts(later) => {
                    sim.sleep(later).await;
                    if host.abort().await.is_ok() {
                        record.count("switch taken back");
                    }
                }
                Accident::Cut(other, lasts) => {
                    record.count("client ports cut");
                    world.cut_ports(node, other, true);
                    sim.sleep(lasts).await;
                    world.cut_ports(node, other, false);
                }
            }
        })
    }
}

/// The name of a kill at a step in the summary of coverage.
pub(crate) fn killed_at(step: Step) -> &'static str {
    match step {
        Step::Check => "kill at check",
        Step::Intent => "kill at intent",
        Step::Credentials => "kill at credentials",
        Step::AddLearner => "kill at add-learner",
        Step::Attach => "kill at attach",
        Step::CatchUp => "kill at catch-up",
        Step::Reach => "kill at reach",
        Step::HandOver => "kill at hand-over",
        Step::ToMembers => "kill at to-members",
        Step::ToMember => "kill at to-member",
        Step::RemoveSelf => "kill at remove-self",
        Step::SeeRemoval => "kill at see-removal",
        Step::Detach => "kill at detach",
        Step::Delete => "kill at delete",
        Step::Done => "kill at done",
    }
}

/// Whether a host is up and no switch is under way or owed.
pub(crate) fn is_settled(world: &World, node: NodeId) -> bool {
    let status = world.host(node).map(|host| host.status());
    let settled = status.is_some_and(|s| s.progress.is_none() && s.leftover.is_none());
    settled && world.state(node) == State::Serving
}

/// Takes a host's disk away while nobody switches, sees that it founds nothing, and replaces it as the guide says: its
/// member is removed, then it begins anew as a client.
pub(crate) async fn lose_a_disk(mut operator: Operator) {
    let Operator { world, record, .. } = &operator;
    let (world, record) = (world.clone(), record.clone());
    let wait = Duration::from_millis(operator.rng.between(500, 6_000));
    world.sim().sleep(wait).await;
    record.close(true);
    if let Some(node) = quiet_voter(&mut operator).await {
        let what = *operator.rng.pick(&[Lost::Storage, Lost::Everything]);
        record.count(match what {
            Lost::Storage => "storage lost",
            Lost::Everything => "disk lost",
        });
        record.retire(node);
        world.kill(node, CrashMode::Lost);
        world.lose(node, what);
        operator.modes.lost(node);
        if what == Lost::Storage {
            let refused = founds_nothing(&world, node).await;
            record.docket().note(refused);
        }
        let client = world.client(99_100);
        remove_for_good(&world, &client, node).await;
        world.kill(node, CrashMode::Kept);
        world.lose(node, Lost::Everything);
        record.engage(node);
        world.start(node);
    }
    record.close(false);
}

/// A voter that the others can do without, once all hosts are at rest; `None` when they do not come to rest in time.
async fn quiet_voter(operator: &mut Operator) -> Option<NodeId> {
    let world = operator.world.clone();
    for _ in 0..200 {
        if *operator.over.borrow() {
            return None;
        }
        world.sim().sleep(LOOK).await;
        let nodes = world.nodes();
        let voters: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|node| world.running(*node).is_some())
            .collect();
        let leader = world.leader().and_then(|at| world.status(at));
        let all = leader.is_some_and(|s| s.voters.len() == voters.len() && s.learners.is_empty());
        if all && voters.len() >= 3 && nodes.iter().all(|node| is_settled(&world, *node)) {
            return Some(*operator.rng.pick(&voters));
        }
    }
    None
}

/// A host without its storage does not start, and says why.
async fn founds_nothing(world: &World, node: NodeId) -> Result<(), Finding> {
    world.start(node);
    for _ in 0..100 {
        world.sim().sleep(LOOK).await;
        require(world.state(node) != State::Serving, || {
            format!("{node} serves without its storage")
        })?;
        if world.state(node) == State::Down {
            return Ok(());
        }
    }
    Ok(())
}

/// Removes a node's member by the word of a quorum, whoever answers.
async fn remove_for_good(world: &World, client: &Client, node: NodeId) {
    let url = crate::default_url(node);
    loop {
        let list = client.call(|services| async move {
            let request = pb::MemberListRequest { linearizable: true };
            services
                .cluster
                .member_list(&Caller::default(), request)
                .await
        });
        let listed = list.await.map(|list| {
            let mut members = list.members.into_iter();
            members.find(|m| m.peer_urls.contains(&url)).map(|m| m.id)
        });
        let removed: Result<(), CallError> = match listed {
            Ok(None) => return,
            Ok(Some(_)) => world.remove(client, node).await,
            Err(error) => Err(error),
        };
        if removed.is_err() {
            world.sim().sleep(Duration::from_millis(50)).await;
        }
    }
}
