//! Room `sim`: the nemesis: what goes wrong in a cluster, when, and for how long, drawn from the seed. It also plays
//! the machine's init system: a member that went down is started again after a while.
//!
//! A fault has an end of its own; several may be under way at a time, and the end of one may end another early. It
//! never breaks a promise that a correct cluster builds on: disks keep what was synced.

mod churn;
mod faults;
mod modes;

pub(crate) use churn::churn;
pub use faults::Fault;
pub use modes::Switching;
pub(crate) use modes::{Operator, is_settled, lose_a_disk};

use crate::NodeId;
use crate::check::Docket;
use crate::mask::{FAULTS, Mask};
use crate::rng::SimRng;
use crate::world::{State, Why, World};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::watch;

/// How often each thing happened.
pub type Counts = BTreeMap<&'static str, u64>;

/// What nemesis, churn and run share.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Inner>>, Docket);

#[derive(Default)]
struct Inner {
    counts: Counts,
    /// Not to be started before this moment of the world.
    down_until: BTreeMap<NodeId, Duration>,
    /// Lives in which the disk was told to give errors.
    spoiled: BTreeSet<(NodeId, u64)>,
    /// Nodes whose member was removed, or may have been.
    retired: BTreeSet<NodeId>,
    /// Nobody is to begin a switch.
    closed: bool,
}

impl Record {
    pub(crate) fn new(docket: Docket) -> Record {
        Record(Arc::default(), docket)
    }

    /// Where what is found wrong goes.
    pub(crate) fn docket(&self) -> &Docket {
        &self.1
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.0.lock().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().counts.clone()
    }

    pub(crate) fn retire(&self, node: NodeId) {
        self.0.lock().retired.insert(node);
    }

    pub(crate) fn engage(&self, node: NodeId) {
        self.0.lock().retired.remove(&node);
    }

    pub(crate) fn is_retired(&self, node: NodeId) -> bool {
        self.0.lock().retired.contains(&node)
    }

    /// Whether switches may not begin now.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Forbids or allows new switches.
    pub(crate) fn close(&self, closed: bool) {
        self.0.lock().closed = closed;
    }

    fn spoil(&self, node: NodeId, life: u64) {
        self.0.lock().spoiled.insert((node, life));
    }

    /// Whether the disk may have given errors in a life of a node: what was armed in one life may go off in the
    /// next.
    pub(crate) fn is_spoiled(&self, node: NodeId, life: u64) -> bool {
        self.was_spoiled(node, life.saturating_sub(1)..=life)
    }

    /// Whether the disk was ever told to give errors, in this life of a node or before: a host in client mode syncs
    /// seldom, so that it may take lives until an error comes.
    pub(crate) fn was_ever_spoiled(&self, node: NodeId, life: u64) -> bool {
        self.was_spoiled(node, 0..=life)
    }

    fn was_spoiled(&self, node: NodeId, lives: RangeInclusive<u64>) -> bool {
        let spoiled = &self.0.lock().spoiled;
        let (first, last) = lives.into_inner();
        spoiled.range((node, first)..=(node, last)).count() > 0
    }
}

/// The nemesis of one run.
pub(crate) struct Nemesis {
    pub(crate) world: World,
    pub(crate) rng: SimRng,
    pub(crate) record: Record,
    /// What it may do.
    pub(crate) faults: Vec<Fault>,
    /// The one that may be deafened: two at a time would be a lost quorum.
    pub(crate) deaf: Option<NodeId>,
    /// Which of its faults are left out.
    pub(crate) mask: Mask,
    /// Longest time between two faults.
    pub(crate) every: Duration,
    /// It does nothing more once this is true.
    pub(crate) over: watch::Receiver<bool>,
}

impl Nemesis {
    /// Does its worst until it is over.
    pub(crate) async fn rage(mut self) {
        if self.faults.is_empty() {
            return;
        }
        for number in 0.. {
            let pause = self.rng.below(self.every.as_nanos() as u64 + 1);
            self.world.sim().sleep(Duration::from_nanos(pause)).await;
            if *self.over.borrow() {
                return;
            }
            let fault = *self.rng.pick(&self.faults);
            match self.mask.allows(FAULTS, number) {
                true => self.inject(fault),
                false => self.pass_over(fault),
            }
        }
    }
}

/// How often is looked for members that are down.
const LOOK: Duration = Duration::from_millis(20);

/// Starts members that are down, each after a drawn time, until it is over.
pub(crate) async fn restart_the_dead(
    world: World,
    record: Record,
    mut rng: SimRng,
    over: watch::Receiver<bool>,
) {
    while !*over.borrow() {
        world.sim().sleep(LOOK).await;
        let now = world.sim().now();
        for node in world.nodes() {
            if world.state(node) != State::Down || record.is_retired(node) {
                continue;
            }
            let last = world.exits().into_iter().rev().find(|e| e.node == node);
            if last.is_some_and(|exit| exit.why == Why::Removed) {
                continue;
            }
            let mut inner = record.0.lock();
            let until = inner.down_until.entry(node).or_insert_with(|| {
                now + Duration::from_millis(*rng.pick(&[1, 50, 400, 1_500, 3_000]))
            });
            if *until <= now {
                inner.down_until.remove(&node);
                drop(inner);
                world.sim().disk(node).heal();
                world.start(node);
            }
        }
    }
}
