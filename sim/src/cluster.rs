//! Room `sim`: a cluster for the tests of other projects: three members, clients, faults on demand, promises as
//! closures, all from one seed. The guide is `docs/simulation.md`; complete examples stand in `sim/examples`.
//!
//! - The code under test runs as tasks of clients ([`Client::spawn`]); each client is a node of its own, which can
//!   be paused and crashed as members can.
//! - Time is simulated: a test that lasts an hour of it takes seconds. Code under test asks its [`Client`] for
//!   the time and sleeps there; real clocks, threads and maps with random order break the repetition.
//! - [`Cluster::run`] and [`Cluster::advance`] let time pass. After every step each promise is asked; the first
//!   that does not hold ends the run with a [`Violation`], which names the seed.
//!
//! It is a thin cover over `World`, which has the levers of whole members; nothing here is drawn but in `storm`.

mod calls;
mod client;
mod locks;
mod page;
mod storm;
#[cfg(test)]
mod tests;
mod watch;

pub use client::{Client, Entry};
pub use locks::Lock;
pub use storm::{Fault, Storm};
pub use watch::{Change, Watch, WatchEnd};

use crate::NodeId;
use crate::chronicle::{Chronicle, Role, What};
use crate::disk::CrashMode;
use crate::executor::run::Stuck;
use crate::sim::{Control, Sim};
use crate::world::{CallError, Running, State, World, WorldOptions};
use calls::Calls;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenon_raft::RaftStatus;

/// A promise that was broken, or a run that could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed: the same one shows it again.
    pub seed: u64,
    /// When, since the start of the simulation.
    pub at: Duration,
    /// The promise's name and what it said.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {} at {:?}: {}", self.seed, self.at, self.what)
    }
}

impl std::error::Error for Violation {}

type Promise = Box<dyn FnMut() -> Result<(), String> + Send>;

/// A simulated cluster and its clients. Dropping it ends everything in it.
pub struct Cluster {
    sim: Sim,
    world: World,
    promises: Mutex<Vec<(String, Promise)>>,
    clients: AtomicU64,
    calls: Calls,
    operator: Client,
}

impl Cluster {
    /// Three members that serve and have a leader, everything drawn from `seed`.
    ///
    /// # Panics
    /// When they do not come up, which is a bug of Tenon.
    pub fn new(seed: u64) -> Cluster {
        Cluster::with(seed, WorldOptions::default())
    }

    /// As [`Cluster::new`] with other settings.
    ///
    /// # Panics
    /// When the members do not come up.
    pub fn with(seed: u64, options: WorldOptions) -> Cluster {
        let sim = Sim::new(seed);
        let world = World::new(&sim, options);
        world.on_start(follow_roles(&sim));
        world.nodes().into_iter().for_each(|node| world.start(node));
        let calls = Calls::default();
        let operator = Client::new(&world, 0, None, Calls::default());
        let cluster = Cluster {
            sim,
            world,
            promises: Mutex::default(),
            clients: AtomicU64::new(1),
            calls,
            operator,
        };
        let up = async {
            for node in cluster.members() {
                cluster.world.until_serving(node).await;
            }
            while cluster.leader().is_none() {
                cluster.sim.sleep(Duration::from_millis(1)).await;
            }
        };
        let begun = cluster.sim.run_until(up);
        begun.unwrap_or_else(|stuck| panic!("seed {seed}: the members do not come up: {stuck}"));
        cluster
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.sim.seed()
    }

    /// Simulated time since the start.
    pub fn now(&self) -> Duration {
        self.sim.now()
    }

    /// The nodes of the members: 1, 2, 3.
    pub fn members(&self) -> Vec<NodeId> {
        self.world.nodes()
    }

    /// Whoever leads, as it thinks itself; of several the one of the newest term.
    pub fn leader(&self) -> Option<NodeId> {
        self.world.leader()
    }

    /// Levers beyond these: links, clocks, disks.
    pub fn control(&self) -> &Control {
        &self.sim
    }

    /// Levers of members beyond these: wipe, join, remove, move the leadership.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A new client on a node of its own. It asks any member that serves.
    pub fn client(&self) -> Client {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        Client::new(&self.world, number, None, self.calls.clone())
    }

    /// A new client that asks one member only.
    pub fn client_of(&self, member: impl Into<NodeId>) -> Client {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        Client::new(&self.world, number, Some(member.into()), self.calls.clone())
    }

    /// Adds a promise that is asked after every step from now on. It looks at what the code under test shares
    /// with it, and says what is wrong.
    pub fn invariant(
        &self,
        name: &str,
        holds: impl FnMut() -> Result<(), String> + Send + 'static,
    ) {
        self.promises
            .lock()
            .push((name.to_owned(), Box::new(holds)));
    }

    /// Runs the world until `future` is done.
    ///
    /// # Errors
    /// The first promise broken, or why the run could not go on: a deadlock, a busy loop, an hour of simulated
    /// time.
    ///
    /// # Panics
    /// When a task of a living node panics.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, Violation> {
        let mut holds = || self.ask_promises();
        let ran = self.sim.run_while(&mut holds, future);
        ran.map_err(|stuck| {
            let what = match stuck {
                Stuck::Violated(what) => what,
                other => other.to_string(),
            };
            self.sim.tell(What::Violation(what.clone()));
            Violation {
                seed: self.seed(),
                at: self.sim.now(),
                what,
            }
        })
    }

    /// Lets so much simulated time pass.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn advance(&self, simulated: Duration) -> Result<(), Violation> {
        self.run(self.sim.sleep(simulated))
    }

    /// Sleeps inside [`Cluster::run`], in the world's own time.
    pub fn sleep(&self, simulated: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.sim.sleep(simulated)
    }

    fn ask_promises(&self) -> Result<(), String> {
        for (name, holds) in self.promises.lock().iter_mut() {
            holds().map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    /// Cuts every link between nodes of different groups, and mends those within a group. Clients are nodes too;
    /// whoever stands in no group keeps its links.
    pub fn partition(&self, groups: &[&[NodeId]]) {
        self.world.partition(groups);
    }

    /// Cuts a member off from the other members; clients still reach it.
    pub fn isolate(&self, member: impl Into<NodeId>) {
        let member = member.into();
        let others: Vec<NodeId> = self.members();
        let others: Vec<NodeId> = others.into_iter().filter(|n| *n != member).collect();
        self.partition(&[&[member], &others]);
    }

    /// Ends every fault: links, clocks, disks, pauses. Who is down stays down, see [`Cluster::restart`].
    pub fn heal(&self) {
        self.world.heal();
        for n in 0..self.clients.load(Ordering::Relaxed) {
            let client = NodeId(client::FIRST + n);
            if self.sim.is_known(client) {
                self.sim.resume(client);
            }
            for member in self.members() {
                self.sim.mend(client, member);
            }
        }
    }

    /// Kills a node. A member loses what it had not synced as `mode` says; a client's tasks are gone.
    pub fn crash(&self, node: impl Into<NodeId>, mode: CrashMode) {
        let node = node.into();
        match self.members().contains(&node) {
            true => self.world.kill(node, mode),
            false => self.sim.kill(node, mode),
        }
    }

    /// Starts a member that is down. Nothing when it is not.
    pub fn restart(&self, member: impl Into<NodeId>) {
        let member = member.into();
        if self.members().contains(&member) && self.world.state(member) == State::Down {
            self.world.start(member);
        }
    }

    /// Has a node do nothing until [`Cluster::resume`], while time passes: a long collection of garbage, a
    /// stopped virtual machine.
    pub fn pause(&self, node: impl Into<NodeId>) {
        self.sim.pause(node);
    }

    /// Ends a pause.
    pub fn resume(&self, node: impl Into<NodeId>) {
        self.sim.resume(node);
    }

    /// Ends a lease before its time, as if its holder had not renewed it. To be awaited inside [`Cluster::run`].
    ///
    /// # Errors
    /// When no member could do it.
    pub async fn expire_lease(&self, lease: i64) -> Result<(), CallError> {
        self.sim
            .tell(What::Note(None, format!("lease {lease:x} is ended")));
        self.operator.lease_revoke(lease).await
    }

    /// What happened so far.
    pub fn chronicle(&self) -> Chronicle {
        self.sim.chronicle()
    }
}

/// For [`World::on_start`]: notes each member's role and term in the chronicle, whenever they change.
pub fn follow_roles(control: &Control) -> impl Fn(&Running) + Send + Sync + use<> {
    let control = control.clone();
    move |running| {
        let (control, node) = (control.clone(), running.node);
        let mut status = running.member.services().context.watch_status();
        running.env.spawn("role", async move {
            let mut told = None;
            loop {
                let seen = role_of(&status.borrow_and_update());
                if told != Some(seen) {
                    told = Some(seen);
                    control.tell(What::Role(node, seen.0, seen.1));
                }
                if status.changed().await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A member's role and term, as it sees itself.
pub(crate) fn role_of(status: &RaftStatus) -> (Role, u64) {
    let role = match status.leader {
        _ if status.is_leader => Role::Leader,
        _ if !status.is_member => Role::Outside,
        _ if status.is_learner => Role::Learner,
        Some(_) => Role::Follower,
        None => Role::Seeker,
    };
    (role, status.term.0)
}
