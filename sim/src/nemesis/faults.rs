//! Room `sim`, nemesis: the faults, each with its end.

use super::Nemesis;
use crate::NodeId;
use crate::disk::CrashMode;
use crate::rng::SimRng;
use crate::world::World;
use std::time::Duration;
use tenon_env::sync::watch;

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A member dies; its unsynced writes are kept, lost or torn.
    Kill,
    /// The leader dies.
    KillLeader,
    /// A member dies within one of its next disk operations.
    KillAtOperation,
    /// Every member loses its power at once.
    PowerCut,
    /// The leader loses its power and is back within a moment.
    Reboot,
    /// The leader dies, and the moment another one is elected every member loses its power and what was not synced.
    ElectionCut,
    /// A member is stopped in order.
    Stop,
    /// A member does nothing for a while.
    Pause,
    /// The leader does nothing for a while.
    PauseLeader,
    /// A member is cut off from all others.
    Isolate,
    /// The leader is cut off from all others.
    IsolateLeader,
    /// The members fall into two groups.
    Split,
    /// One direction of one link is cut.
    OneWay,
    /// A member hears nothing from the leader, which everybody else hears.
    Deafen,
    /// A link loses messages.
    Loss,
    /// A member's links are slow.
    SlowLinks,
    /// Streams between two members break.
    Reset,
    /// A member's clock jumps forward.
    Jump,
    /// A member's disk is slow.
    SlowDisk,
    /// A sync of a member's disk fails.
    FailSync,
    /// Leadership is moved to a drawn member.
    MoveLeader,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 21] = [
        Fault::Kill,
        Fault::KillLeader,
        Fault::KillAtOperation,
        Fault::PowerCut,
        Fault::Reboot,
        Fault::ElectionCut,
        Fault::Stop,
        Fault::Pause,
        Fault::PauseLeader,
        Fault::Isolate,
        Fault::IsolateLeader,
        Fault::Split,
        Fault::OneWay,
        Fault::Deafen,
        Fault::Loss,
        Fault::SlowLinks,
        Fault::Reset,
        Fault::Jump,
        Fault::SlowDisk,
        Fault::FailSync,
        Fault::MoveLeader,
    ];

    /// Its name in the summary of coverage.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::KillLeader => "kill of a leader",
            Fault::KillAtOperation => "kill at a disk operation",
            Fault::PowerCut => "power cut",
            Fault::Reboot => "reboot of a leader",
            Fault::ElectionCut => "power cut at an election",
            Fault::Stop => "orderly stop",
            Fault::Pause => "pause",
            Fault::PauseLeader => "pause of a leader",
            Fault::Isolate => "isolated member",
            Fault::IsolateLeader => "isolated leader",
            Fault::Split => "split",
            Fault::OneWay => "one-way cut",
            Fault::Deafen => "deaf member",
            Fault::Loss => "loss",
            Fault::SlowLinks => "slow links",
            Fault::Reset => "reset of streams",
            Fault::Jump => "jump of a clock",
            Fault::SlowDisk => "slow disk",
            Fault::FailSync => "failed sync",
            Fault::MoveLeader => "move of leadership",
        }
    }
}

/// Draws of [`Nemesis::lasts`].
const LASTS: usize = 2;

impl Nemesis {
    fn crash_mode(&mut self) -> CrashMode {
        let modes = [
            CrashMode::Kept,
            CrashMode::Lost,
            CrashMode::Torn,
            CrashMode::Torn,
        ];
        *self.rng.pick(&modes)
    }

    fn node(&mut self) -> NodeId {
        let nodes = self.world.nodes();
        *self.rng.pick(&nodes)
    }

    fn leader(&mut self) -> NodeId {
        match self.world.leader() {
            Some(leader) => leader,
            None => self.node(),
        }
    }

    /// How long a fault lasts: mostly around an election, now and then much longer.
    fn lasts(&mut self) -> Duration {
        let most = *self.rng.pick(&[100, 600, 2_000, 4_000]);
        Duration::from_millis(self.rng.between(1, most))
    }

    /// Has `end` done when the fault is over.
    fn until(&mut self, end: impl FnOnce(&World) + Send + 'static) {
        let (world, lasts) = (self.world.clone(), self.lasts());
        self.world.operator().spawn("end of a fault", async move {
            world.sim().sleep(lasts).await;
            end(&world);
        });
    }

    /// Cuts `node` off until the fault is over.
    fn isolate(&mut self, node: NodeId) {
        let all = self.world.nodes();
        let rest: Vec<NodeId> = all.into_iter().filter(|n| *n != node).collect();
        self.world.partition(&[&[node], &rest]);
        self.until(move |world| world.partition(&[&world.nodes()]));
    }

    fn pause(&mut self, node: NodeId) {
        self.world.sim().pause(node);
        self.until(move |world| world.sim().resume(node));
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        let (node, leader) = (self.node(), self.leader());
        let other = self.node();
        self.record.count(fault.name());
        let mode = self.crash_mode();
        match fault {
            Fault::Kill => self.world.kill(node, mode),
            Fault::KillLeader => self.world.kill(leader, mode),
            Fault::KillAtOperation => {
                let disk = self.world.sim().disk(node);
                disk.crash_at(disk.ops() + self.rng.between(1, 60), mode);
            }
            Fault::PowerCut => {
                for node in self.world.nodes() {
                    let mode = self.crash_mode();
                    self.world.kill(node, mode);
                }
            }
            Fault::Reboot => {
                let life = self.world.life(leader);
                self.world.kill(leader, CrashMode::Lost);
                self.world.start(leader);
                // Nobody mends the disk in between: what was armed long ago may still go off (seed 259).
                if self.record.is_spoiled(leader, life) {
                    self.record.spoil(leader, life + 1);
                }
            }
            Fault::ElectionCut => {
                let (world, rng) = (self.world.clone(), self.rng.clone());
                self.rng.next_u64();
                let cut = election_cut(world, rng, leader, self.over.clone());
                self.world.operator().spawn("election cut", cut);
            }
            Fault::Stop => {
                let world = self.world.clone();
                let stop = async move { world.stop(node).await };
                self.world.operator().spawn("stop", stop);
            }
            Fault::Pause => self.pause(node),
            Fault::PauseLeader => self.pause(leader),
            Fault::Isolate => self.isolate(node),
            Fault::IsolateLeader => self.isolate(leader),
            Fault::Split => self.split(),
            _ => self.wear(fault, (node, other, leader)),
        }
    }

    /// Draws what [`Nemesis::inject`] would draw and does nothing, so that what is drawn later stays the same.
    pub(super) fn pass_over(&mut self, fault: Fault) {
        let (node, leader, _) = (self.node(), self.leader(), self.node());
        self.crash_mode();
        let nodes = self.world.nodes().len();
        let draws = match fault {
            Fault::Kill
            | Fault::KillLeader
            | Fault::Reboot
            | Fault::Stop
            | Fault::Reset
            | Fault::MoveLeader => 0,
            Fault::KillAtOperation | Fault::ElectionCut => 1,
            Fault::PowerCut => nodes,
            Fault::Pause | Fault::PauseLeader | Fault::Isolate | Fault::IsolateLeader => LASTS,
            Fault::Split => nodes + LASTS,
            Fault::Deafen if node == leader => 0,
            Fault::Deafen | Fault::OneWay => LASTS,
            Fault::Loss | Fault::SlowLinks | Fault::SlowDisk => 1 + LASTS,
            Fault::Jump => 3,
            Fault::FailSync => usize::from(self.world.running(node).is_some()),
        };
        (0..draws).for_each(|_| {
            self.rng.next_u64();
        });
    }

    /// Cuts one direction of a link until the fault is over.
    fn cut_one_way(&mut self, from: NodeId, to: NodeId) {
        self.world.sim().link(from, to, |link| link.cut = true);
        self.until(move |w| w.sim().link(from, to, |link| link.cut = false));
    }

    fn split(&mut self) {
        let nodes = self.world.nodes();
        let (one, two): (Vec<NodeId>, Vec<NodeId>) =
            nodes.into_iter().partition(|_| self.rng.chance(500_000));
        self.world.partition(&[&one, &two]);
        self.until(move |world| world.partition(&[&world.nodes()]));
    }

    /// The faults of one link, clock or disk.
    fn wear(&mut self, fault: Fault, (node, other, leader): (NodeId, NodeId, NodeId)) {
        let sim = self.world.sim().clone();
        match fault {
            Fault::OneWay => self.cut_one_way(node, other),
            Fault::Deafen if node != leader => {
                let deaf = *self.deaf.get_or_insert(node);
                if deaf != leader {
                    self.cut_one_way(leader, deaf);
                }
            }
            Fault::Loss => {
                let ppm = *self.rng.pick(&[1_000, 20_000, 200_000]);
                sim.link(node, other, |link| link.loss_ppm = ppm);
                self.until(move |w| w.sim().link(node, other, |link| link.loss_ppm = 0));
            }
            Fault::SlowLinks => {
                let most = *self.rng.pick(&[20_000_000, 100_000_000, 400_000_000]);
                let set = move |world: &World, max: u64| {
                    for other in world.nodes() {
                        world.sim().link(node, other, |link| link.delay.max = max);
                        world.sim().link(other, node, |link| link.delay.max = max);
                    }
                };
                set(&self.world, most);
                let usual = crate::LinkConfig::default().delay.max;
                self.until(move |world| set(world, usual));
            }
            Fault::Reset => sim.reset_streams(node, other),
            Fault::Jump => {
                let ms = *self.rng.pick(&[50, 500, 5_000, 60_000]);
                sim.jump(node, Duration::from_millis(self.rng.between(1, ms)));
                sim.jump_wall(node, self.rng.between(0, 2 * ms) as i64 - ms as i64);
            }
            Fault::SlowDisk => {
                sim.disk(node).slow(*self.rng.pick(&[300, 1_000, 5_000]));
                self.until(move |world| world.sim().disk(node).slow(100));
            }
            Fault::FailSync => {
                if let Some(running) = self.world.running(node) {
                    self.record.spoil(node, running.life);
                    sim.disk(node).fail_sync(self.rng.between(1, 30));
                }
            }
            Fault::MoveLeader => {
                let client = self.world.client(99_000);
                let world = self.world.clone();
                self.world.operator().spawn("move leader", async move {
                    let _ = world.move_leader(&client, node).await;
                });
            }
            _ => {}
        }
    }
}

/// Waits for a new leader and cuts the power of everybody within half a millisecond.
async fn election_cut(world: World, mut rng: SimRng, old: NodeId, over: watch::Receiver<bool>) {
    let term = |world: &World| {
        let leader = world.leader()?;
        world.status(leader).map(|status| status.term)
    };
    let before = term(&world);
    world.kill(old, CrashMode::Kept);
    for _ in 0..40_000 {
        world.sim().sleep(Duration::from_micros(100)).await;
        if term(&world).is_some_and(|now| Some(now) > before) {
            break;
        }
    }
    let moment = Duration::from_micros(rng.below(500));
    world.sim().sleep(moment).await;
    if *over.borrow() {
        return;
    }
    for node in world.nodes() {
        world.kill(node, CrashMode::Lost);
    }
}
