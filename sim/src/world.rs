//! Room `sim`: a cluster of whole members in one simulated world: each is what `tenon serve` runs, without the
//! shell. Nothing here draws or judges: it is the machine room that plans, nemeses, workloads and the public
//! `Cluster` pull the levers of.
//!
//! - A member lives on one node. A life begins with [`World::start`] and ends by a kill, by an orderly
//!   [`World::stop`], or by the member itself: it failed, or it was removed. Every end is noted in
//!   [`World::exits`]; starting again is the caller's decision.
//! - Founders begin together; others are added by [`World::join`], which asks the cluster first, as an operator
//!   does, and may be wiped while they are down.
//! - Faults of links, clocks and disks are those of [`Control`], by the member's [`NodeId`].
//! - [`Client`]s call members' services over the simulated links and learn one of three outcomes.
//!
//! A [`World`] is a handle: tasks may hold clones. The [`Sim`] must outlive its runs, nothing else.

mod client;
mod config;
mod hosts;
mod life;
mod members;
mod streams;

pub use client::{CallError, Client};
pub use config::{HostOptions, WorldOptions};
pub(crate) use hosts::{Endpoint, Lost, storage};
pub use members::Joins;
pub use streams::WatchStream;
pub(crate) use streams::keep_alive;

use crate::NodeId;
use crate::disk::CrashMode;
use crate::hosts::{Ports, Way};
use crate::sim::{Control, Sim};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tenon_env::Env;
use tenon_env::sync::watch;
use tenon_proto::ids::MemberId;
use tenon_raft::RaftStatus;
use tenon_server::host::Host;
use tenon_server::member::Member;

/// The node on which operators and supervisors act; it never fails.
const OPERATOR: NodeId = NodeId(900);

/// A member in one of its lives.
#[derive(Clone)]
pub struct Running {
    /// Its node.
    pub node: NodeId,
    /// Which life of the node, from 1.
    pub life: u64,
    /// The node's world in this life.
    pub env: Env,
    /// The member.
    pub member: Member,
    /// Who is attached to its host, when it has one.
    attached: Option<Attached>,
}

/// What a member is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its node is dead.
    Down,
    /// It is opening its data or recovering; clients are not let in.
    Starting,
    /// Clients are let in.
    Serving,
}

/// Why a life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was killed, by a caller or at a disk operation.
    Killed,
    /// It was stopped in order.
    Stopped,
    /// It did not start, for this reason.
    NotStarted(String),
    /// It stopped by itself, for this reason.
    Failed(String),
    /// It was removed from its cluster.
    Removed,
}

/// The end of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Whose.
    pub node: NodeId,
    /// Which life.
    pub life: u64,
    /// Why.
    pub why: Why,
}

#[derive(Default)]
struct Place {
    life: u64,
    /// Added to a running cluster instead of founding it.
    joined: bool,
    /// Who the newest member on this disk is.
    id: Option<MemberId>,
    member: Option<Member>,
    serving: bool,
    stop: Option<watch::Sender<bool>>,
    /// In a world of hosts.
    host: Option<Host>,
    /// Its first disk was lost: it began anew, as a client.
    lost: bool,
}

/// The member that a host has attached.
type Attached = watch::Receiver<Option<Member>>;

/// Called with every member as soon as it runs; may spawn tasks on its node.
type OnStart = Box<dyn Fn(&Running) + Send + Sync>;

struct Shared {
    sim: Control,
    options: WorldOptions,
    operator: Env,
    places: Mutex<BTreeMap<NodeId, Place>>,
    exits: Mutex<Vec<Exit>>,
    on_start: Mutex<Option<OnStart>>,
    /// Where clients reach hosts.
    ports: Ports,
}

/// A cluster of whole members. Clones name the same.
#[derive(Clone)]
pub struct World(Arc<Shared>);

impl World {
    /// A world whose founders are on the nodes 1 to `options.founders`, and its further hosts, if it has any, behind
    /// them; nobody is started yet.
    pub fn new(sim: &Sim, options: WorldOptions) -> World {
        let spares = options.hosts.as_ref().map_or(0, |hosts| hosts.spares);
        let founders = 1..=options.founders + spares;
        let founders = founders.map(|n| (NodeId(n), Place::default()));
        World(Arc::new(Shared {
            sim: (**sim).clone(),
            operator: sim.node(OPERATOR),
            places: Mutex::new(founders.collect()),
            options,
            exits: Mutex::default(),
            on_start: Mutex::default(),
            ports: Ports::new(sim, Way::Links),
        }))
    }

    /// As [`World::new`], and starts the founders.
    pub fn begin(sim: &Sim, options: WorldOptions) -> World {
        let world = World::new(sim, options);
        world.nodes().into_iter().for_each(|node| world.start(node));
        world
    }

    /// Has `look` called with every member as soon as it runs, before clients are let in.
    pub fn on_start(&self, look: impl Fn(&Running) + Send + Sync + 'static) {
        *self.0.on_start.lock() = Some(Box::new(look));
    }

    /// The simulated world: links, clocks, disks.
    pub fn sim(&self) -> &Control {
        &self.0.sim
    }

    /// The node of operators, which never fails: for tasks that act on the world.
    pub fn operator(&self) -> &Env {
        &self.0.operator
    }

    /// What the world was made with.
    pub fn options(&self) -> &WorldOptions {
        &self.0.options
    }

    /// Every node that has a member or had one.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.0.places.lock().keys().copied().collect()
    }

    /// What the node's member is doing.
    pub fn state(&self, node: impl Into<NodeId>) -> State {
        let node = node.into();
        let serving = self.0.places.lock().get(&node).map(|p| p.serving);
        match serving {
            Some(true) if self.0.sim.is_alive(node) => State::Serving,
            Some(false) if self.0.sim.is_alive(node) => State::Starting,
            _ => State::Down,
        }
    }

    /// The node's member as soon as it runs, serving or not.
    pub fn running(&self, node: impl Into<NodeId>) -> Option<Running> {
        let node = node.into();
        let alive = self.0.sim.is_alive(node);
        let places = self.0.places.lock();
        let place = places.get(&node).filter(|_| alive)?;
        let member = place.member.clone()?;
        Some(Running {
            node,
            life: place.life,
            env: member.services().context.env().clone(),
            member,
            attached: place.host.as_ref().map(Host::watch_member),
        })
    }

    /// The node's member, when clients are let in.
    pub fn serving(&self, node: impl Into<NodeId>) -> Option<Running> {
        let node = node.into();
        self.running(node)
            .filter(|_| self.state(node) == State::Serving)
    }

    /// The nodes whose members let clients in, ascending.
    pub fn all_serving(&self) -> Vec<NodeId> {
        let nodes = self.nodes().into_iter();
        nodes
            .filter(|node| self.state(*node) == State::Serving)
            .collect()
    }

    /// The id of the node's member, once it runs.
    pub fn member_id(&self, node: impl Into<NodeId>) -> Option<MemberId> {
        self.running(node)
            .map(|running| running.member.services().context.member())
    }

    /// What the node's member knows of raft.
    pub fn status(&self, node: impl Into<NodeId>) -> Option<RaftStatus> {
        self.running(node)
            .map(|running| running.member.services().context.status())
    }

    /// The member that leads in the newest term, as it thinks itself.
    pub fn leader(&self) -> Option<NodeId> {
        let nodes = self.nodes().into_iter();
        let views = nodes.filter_map(|node| Some((node, self.status(node)?)));
        views
            .filter(|(_, status)| status.is_leader)
            .max_by_key(|(_, status)| status.term)
            .map(|(node, _)| node)
    }

    /// One line about every member, for a person.
    pub fn describe(&self) -> String {
        let ids = |ids: &BTreeSet<MemberId>| ids.iter().map(|id| id.get()).collect::<Vec<_>>();
        let one = |node: NodeId| {
            let state = self.state(node);
            let Some(status) = self.status(node) else {
                return format!("{node} {state:?}");
            };
            let leader = status.leader.map_or(0, MemberId::get);
            format!(
                "{node} {state:?} id {} term {} leader {leader:x} committed {} applied {} voters {:x?} learners {:x?}",
                status.member_id,
                status.term,
                status.committed,
                status.applied,
                ids(&status.voters),
                ids(&status.learners)
            )
        };
        let all: Vec<String> = self.nodes().into_iter().map(one).collect();
        all.join("; ")
    }

    /// How lives ended so far, in their order.
    pub fn exits(&self) -> Vec<Exit> {
        self.0.exits.lock().clone()
    }

    /// The number of a node's life, or of its last one while it is down; 0 before the first.
    pub fn life(&self, node: NodeId) -> u64 {
        self.0.places.lock().get(&node).map_or(0, |p| p.life)
    }

    /// Ends a member's life at once; its disk keeps what `mode` leaves. Nothing when it is down.
    pub fn kill(&self, node: impl Into<NodeId>, mode: CrashMode) {
        let node = node.into();
        if self.0.sim.is_alive(node) {
            let life = self.life(node);
            self.0.sim.resume(node);
            self.0.sim.kill(node, mode);
            self.ended(node, life, Why::Killed);
        }
    }

    /// Notes the end of a life, once.
    fn ended(&self, node: NodeId, life: u64, why: Why) {
        let mut places = self.0.places.lock();
        let Some(place) = places.get_mut(&node).filter(|p| p.life == life) else {
            return;
        };
        let stop = place.stop.take();
        let ended = (place.member.take(), place.host.take());
        place.serving = false;
        drop(places);
        drop(ended);
        self.0.ports.close(node.0);
        if stop.is_some() {
            self.0.exits.lock().push(Exit { node, life, why });
        }
    }

    /// Empties the disk of a node that is down.
    ///
    /// # Panics
    /// When it is alive.
    pub fn wipe(&self, node: impl Into<NodeId>) {
        let node = node.into();
        let env = self.0.sim.restart(node);
        let gone = env.disk.remove_dir_all(Path::new(config::DATA));
        if let Err(error) = gone {
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::NotFound,
                "{node}: {error}"
            );
        }
        let _ = env.disk.sync_dir(Path::new("/"));
        self.0.sim.kill(node, CrashMode::Kept);
    }

    /// Cuts every link between members of different groups and mends those within a group. Nodes that stand in
    /// no group keep their links.
    pub fn partition(&self, groups: &[&[NodeId]]) {
        for (at, group) in groups.iter().enumerate() {
            for (other_at, other) in groups.iter().enumerate() {
                for (a, b) in pairs(group, other) {
                    let cut = at != other_at;
                    self.0.sim.link(a, b, |link| link.cut = cut);
                }
            }
        }
    }

    /// Mends every link between members, ends clogs, losses and pauses, sets clocks right and disks whole. Who
    /// is down stays down.
    pub fn heal(&self) {
        let nodes = self.nodes();
        self.0.ports.mend_all();
        for (a, b) in pairs(&nodes, &nodes) {
            self.0.sim.link(a, b, |link| {
                *link = crate::net::LinkConfig {
                    survives_cut_ppm: link.survives_cut_ppm,
                    ..crate::net::LinkConfig::default()
                };
            });
        }
        for node in nodes {
            self.0.sim.resume(node);
            self.0.sim.drift(node, 0);
            self.0.sim.disk(node).heal();
        }
    }
}

fn pairs(from: &[NodeId], to: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let all = from.iter().flat_map(|a| to.iter().map(|b| (*a, *b)));
    all.filter(|(a, b)| a != b).collect()
}
