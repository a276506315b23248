//! Room `sim`: the simulation as its user holds it: nodes, faults, time.

use crate::NodeId;
use crate::chronicle::{Chronicle, What};
use crate::disk::{CrashMode, DiskControl, LifeDisk, SimDisk};
use crate::executor::clock::SimClock;
use crate::executor::run::{Limits, OnPanic, Stuck, run};
use crate::executor::spawn::SimSpawn;
use crate::executor::timers::WorldSleep;
use crate::executor::{Life, World};
use crate::net::{Learn, LifeNet, LinkConfig, NetCounts, SimNet};
use crate::rng::{NodeRng, SimRng};
use crate::trace::Trace;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::{Env, Plant};

/// A simulated world. Dropping it ends every node.
///
/// All its methods but the runs are those of [`Control`], which tasks may hold too.
pub struct Sim {
    control: Control,
    limits: Limits,
}

/// A hand on the simulated world: faults and looks. Cheap to clone.
#[derive(Clone)]
pub struct Control(Arc<Shared>);

struct Shared {
    world: Arc<World>,
    net: Arc<SimNet>,
    disks: Mutex<BTreeMap<NodeId, Arc<SimDisk>>>,
    envs: Mutex<BTreeMap<NodeId, (Life, Env)>>,
    /// The mistake in every life that begins.
    plant: Mutex<Plant>,
}

impl Sim {
    /// A world in which everything follows from `seed`.
    pub fn new(seed: u64) -> Sim {
        let world = World::new(seed);
        let net = SimNet::new(world.clone());
        let told = Arc::downgrade(&net);
        world.on_death(Box::new(move |life| {
            if let Some(net) = told.upgrade() {
                net.on_death(life);
            }
        }));
        let shared = Shared {
            world,
            net,
            disks: Mutex::new(BTreeMap::new()),
            envs: Mutex::new(BTreeMap::new()),
            plant: Mutex::default(),
        };
        let limits = Limits {
            time: 3_600_000_000_000,
            turns: 200_000,
            on_panic: OnPanic::Fail,
        };
        Sim {
            control: Control(Arc::new(shared)),
            limits,
        }
    }

    /// Bounds each run to so much simulated time (one hour unless set).
    pub fn limit(&mut self, simulated: Duration) {
        self.limits.time = nanos(simulated);
    }

    /// What a panic in a task of a living node does.
    pub fn on_panic(&mut self, what: OnPanic) {
        self.limits.on_panic = what;
    }

    /// Runs the world until `future` is done. The future belongs to no node; what it does through a node's
    /// `Env` the node does.
    pub fn run_until<F: Future>(&self, future: F) -> Result<F::Output, Stuck> {
        self.run_while(&mut || Ok(()), future)
    }

    /// As [`Sim::run_until`]; asks `holds` after every turn of a task and stops with [`Stuck::Violated`] once it
    /// says what is wrong. It may look at what tasks share, and must not touch the world.
    pub fn run_while<F: Future>(
        &self,
        holds: &mut dyn FnMut() -> Result<(), String>,
        future: F,
    ) -> Result<F::Output, Stuck> {
        let mut future = std::pin::pin!(future);
        run(&self.control.0.world, self.limits, future.as_mut(), holds)
    }

    /// Runs the world for so much simulated time.
    pub fn run_for(&self, simulated: Duration) -> Result<(), Stuck> {
        self.run_until(self.sleep(simulated))
    }
}

impl Deref for Sim {
    type Target = Control;
    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.control.0.envs.lock().clear();
        self.control.0.world.clear();
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Control {
    /// Plants a mistake in every node's life that begins from now on.
    pub fn plant(&self, plant: Plant) {
        *self.0.plant.lock() = plant;
    }

    /// The seed of this world.
    pub fn seed(&self) -> u64 {
        self.0.world.seed
    }

    /// Time since the start of the simulation.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.world.now())
    }

    /// Sleeps in the world's own time, which no node's clock disturbs.
    pub fn sleep(&self, simulated: Duration) -> impl Future<Output = ()> + Send + use<> {
        let at = self.0.world.now().saturating_add(nanos(simulated));
        WorldSleep::new(self.0.world.clone(), at)
    }

    /// The trace so far.
    pub fn trace(&self) -> Trace {
        self.0.world.core.lock().trace
    }

    /// Adds words of the caller to the trace, such as results of operations.
    pub fn note(&self, words: &[u64]) {
        self.0.world.note(crate::trace::Kind::Note, words);
    }

    /// Notes something for those who look at the run later; of no effect on it.
    pub fn tell(&self, what: What) {
        self.0.world.tell(what);
    }

    /// What happened so far: lives, faults, roles, and what was told.
    pub fn chronicle(&self) -> Chronicle {
        self.0.world.chronicle()
    }

    /// A stream of random numbers for `purpose`, of no effect on any other.
    pub fn rng(&self, purpose: &str) -> SimRng {
        SimRng::fork(self.0.world.seed, purpose, 0)
    }

    /// The world of node `id`, which begins to live when it never did.
    ///
    /// # Panics
    /// When the node is dead; see [`Control::restart`].
    pub fn node(&self, id: impl Into<NodeId>) -> Env {
        let id = id.into();
        let held = self.0.envs.lock().get(&id).cloned();
        match held {
            Some((life, env)) => {
                assert!(
                    self.0.world.is_alive(life),
                    "{id} is dead; restart it first"
                );
                env
            }
            None => self.begin(id),
        }
    }

    /// Begins the node's next life, with the disk that the last one left.
    ///
    /// # Panics
    /// When it is alive.
    pub fn restart(&self, id: impl Into<NodeId>) -> Env {
        self.begin(id.into())
    }

    fn begin(&self, id: NodeId) -> Env {
        let shared = &self.0;
        let world = shared.world.clone();
        let life = world.begin_life(id);
        world.tell(What::Began(id, life.number));
        let disk = self.sim_disk(id);
        let rng = SimRng::fork(world.seed, "env", id.0 << 32 | life.number);
        let env = Env {
            clock: Arc::new(SimClock {
                world: world.clone(),
                life,
            }),
            rng: Arc::new(NodeRng(Mutex::new(rng))),
            disk: Arc::new(LifeDisk {
                disk: disk.clone(),
                life,
            }),
            net: Arc::new(LifeNet {
                net: shared.net.clone(),
                life,
            }),
            spawn: Arc::new(SimSpawn { world, life, disk }),
            plant: *shared.plant.lock(),
        };
        shared
            .net
            .state
            .lock()
            .urls
            .entry(default_url(id))
            .or_insert(id);
        shared.envs.lock().insert(id, (life, env.clone()));
        env
    }

    fn sim_disk(&self, id: NodeId) -> Arc<SimDisk> {
        let mut disks = self.0.disks.lock();
        let world = &self.0.world;
        disks
            .entry(id)
            .or_insert_with(|| Arc::new(SimDisk::new(world.clone(), id)))
            .clone()
    }

    /// Kills a node: its tasks are dropped at once, its streams break, its disk keeps what `mode` leaves.
    /// Called from one of the node's own tasks, that task is dropped at the end of its turn. Nothing when
    /// it is dead already.
    pub fn kill(&self, id: impl Into<NodeId>, mode: CrashMode) {
        let id = id.into();
        let Some(life) = self.0.envs.lock().get(&id).map(|(life, _)| *life) else {
            return;
        };
        if self.0.world.end_life(life) {
            self.0.world.tell(What::Died(id, mode));
            self.sim_disk(id).crash(mode);
            self.0.world.reap();
        }
    }

    /// Whether the node lives.
    pub fn is_alive(&self, id: impl Into<NodeId>) -> bool {
        let id = id.into();
        let life = self.0.envs.lock().get(&id).map(|(life, _)| *life);
        life.is_some_and(|life| self.0.world.is_alive(life))
    }

    /// Whether the node has ever lived.
    pub fn is_known(&self, id: impl Into<NodeId>) -> bool {
        self.0.envs.lock().contains_key(&id.into())
    }

    /// Completes once the node is dead; never when it has not lived.
    pub async fn died(&self, id: impl Into<NodeId>) {
        let id = id.into();
        let mut deaths = self.0.world.deaths();
        let known = self.0.envs.lock().contains_key(&id);
        while !known || self.is_alive(id) {
            if deaths.changed().await.is_err() {
                return;
            }
        }
    }

    /// Stops a node's tasks without killing it; its disk and its peers see a process that does nothing.
    pub fn pause(&self, id: impl Into<NodeId>) {
        let id = id.into();
        self.0.world.pause(id);
        self.tell(What::Paused(id));
    }

    /// Ends a pause.
    pub fn resume(&self, id: impl Into<NodeId>) {
        let id = id.into();
        if self.0.world.resume(id) {
            self.tell(What::Resumed(id));
        }
    }

    /// Lets a node's monotonic clock gain `ppb` nanoseconds per second (negative: lose).
    pub fn drift(&self, id: impl Into<NodeId>, ppb: i64) {
        let id = id.into();
        self.0
            .world
            .change_time(id, |time, now| time.set_drift(now, ppb));
        if ppb != 0 {
            self.tell(What::Clock(id, format!("drift of {ppb} ns per second")));
        }
    }

    /// Moves a node's monotonic clock forward at once.
    pub fn jump(&self, id: impl Into<NodeId>, forward: Duration) {
        let id = id.into();
        self.0
            .world
            .change_time(id, |time, now| time.jump(now, nanos(forward)));
        self.tell(What::Clock(id, format!("jump forward by {forward:?}")));
    }

    /// Moves a node's wall clock, either way; kept over restarts.
    pub fn jump_wall(&self, id: impl Into<NodeId>, ms: i64) {
        let id = id.into();
        self.0
            .world
            .change_time(id, |time, _| time.wall_offset_ms += ms);
        self.tell(What::Clock(id, format!("jump of wall time by {ms} ms")));
    }

    /// The node's disk, for faults and looks.
    pub fn disk(&self, id: impl Into<NodeId>) -> DiskControl {
        DiskControl(self.sim_disk(id.into()))
    }

    /// Lets peers reach node `id` at `url`, besides `http://n<id>:2380`.
    pub fn set_url(&self, url: &str, id: impl Into<NodeId>) {
        self.0
            .net
            .state
            .lock()
            .urls
            .insert(url.to_owned(), id.into());
    }

    /// Changes the link from one node to another, one way.
    pub fn link(
        &self,
        from: impl Into<NodeId>,
        to: impl Into<NodeId>,
        change: impl Fn(&mut LinkConfig),
    ) {
        self.0.net.change_link(from.into(), to.into(), change);
    }

    /// Cuts both ways between two nodes.
    pub fn cut(&self, a: impl Into<NodeId>, b: impl Into<NodeId>) {
        let (a, b) = (a.into(), b.into());
        self.link(a, b, |link| link.cut = true);
        self.link(b, a, |link| link.cut = true);
    }

    /// Mends both ways between two nodes.
    pub fn mend(&self, a: impl Into<NodeId>, b: impl Into<NodeId>) {
        let (a, b) = (a.into(), b.into());
        self.link(a, b, |link| link.cut = false);
        self.link(b, a, |link| link.cut = false);
    }

    /// Cuts one way: what `from` sends does not reach `to` until [`Control::mend`]. Streams from `to` still do.
    pub fn cut_one_way(&self, from: impl Into<NodeId>, to: impl Into<NodeId>) {
        self.link(from, to, |link| link.cut = true);
    }

    /// Holds up everything from `from` to `to` for so much simulated time; then it arrives.
    pub fn clog(&self, from: impl Into<NodeId>, to: impl Into<NodeId>, how_long: Duration) {
        let until = self.0.world.now().saturating_add(nanos(how_long));
        self.link(from, to, |link| link.clogged_until = until);
    }

    /// Changes every link, those to come too.
    pub fn all_links(&self, change: impl Fn(&mut LinkConfig)) {
        let mut state = self.0.net.state.lock();
        change(&mut state.default);
        state.links.values_mut().for_each(change);
    }

    /// Breaks every stream between two nodes.
    pub fn reset_streams(&self, a: impl Into<NodeId>, b: impl Into<NodeId>) {
        let (a, b) = (a.into(), b.into());
        self.tell(What::Reset(a, b));
        self.0.net.break_where(
            |p| {
                let ends = (p.from.node, p.to.node);
                ends == (a, b) || ends == (b, a)
            },
            Learn::AfterDelay,
            "the stream was reset",
        );
    }

    /// The time that a single message from one node to another takes now; `None` when it does not arrive. For
    /// what crosses outside of streams, such as a client's call.
    pub fn passage(&self, from: impl Into<NodeId>, to: impl Into<NodeId>) -> Option<Duration> {
        self.0.net.passage(from.into(), to.into())
    }

    /// What the network did so far.
    pub fn net_counts(&self) -> NetCounts {
        self.0.net.state.lock().counts
    }
}

/// The peer URL that every node has.
pub fn default_url(id: impl Into<NodeId>) -> String {
    format!("http://n{}:2380", id.into().0)
}
