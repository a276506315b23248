//! Room `sim`: observers: for as long as a member lives they look at it from outside and tell the checkers what they
//! see: who leads, what the logs hold, the state at an applied index, the order of positions. They change nothing.

use crate::NodeId;
use crate::check::leaders::Leaders;
use crate::check::logs::Logs;
use crate::check::modes::Modes;
use crate::check::positions::{self, Durable};
use crate::check::states::{Digest, States};
use crate::check::{Docket, Verdict};
use crate::chronicle::{Role, What};
use crate::cluster::role_of;
use crate::sim::Control;
use crate::trace::hash_bytes;
use crate::world::{Running, World, storage};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenon_proto::ids::{LogIndex, MemberId, Term};
use tenon_server::service::context::Context;

/// How often positions and logs are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How many looks apart states are summed up.
const SUM_EVERY: u64 = 8;
/// How often the storage of hosts is looked at.
const STORAGE: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Known {
    leaders: Leaders,
    logs: Logs,
    states: States,
    durable: BTreeMap<MemberId, Durable>,
    /// Position of each member's log at its last look, to see it jump.
    last: BTreeMap<MemberId, u64>,
    snapshots: u64,
}

/// What is known of all members of a run.
#[derive(Clone, Default)]
pub(crate) struct Observer {
    known: Arc<Mutex<Known>>,
    docket: Docket,
    /// In a world of hosts.
    modes: Option<Modes>,
}

/// What observers saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sights {
    /// Terms that had a leader.
    pub terms: u64,
    /// Log entries compared.
    pub entries: u64,
    /// States compared between two members.
    pub states: u64,
    /// Snapshots that replaced a member's log.
    pub snapshots: u64,
}

impl Observer {
    pub(crate) fn new(docket: Docket, modes: Option<Modes>) -> Observer {
        Observer {
            docket,
            modes,
            ..Observer::default()
        }
    }

    /// Looks at every member of `world` from its start on.
    pub(crate) fn attend(&self, world: &World) {
        let (me, sim) = (self.clone(), world.sim().clone());
        let mine = self.clone();
        world.on_answer(move |services| mine.hear_removals(&services.context));
        let disks = world.sim().clone();
        world.on_start(move |running| {
            if let Some(modes) = &me.modes {
                let (node, id) = (running.node, running.member.services().context.member());
                let attached = modes.attached(node, id, storage(&disks, node));
                me.docket.note(attached);
            }
            let (mine, its) = (me.clone(), running.clone());
            let look = async move { mine.look_on(its).await };
            running
                .env
                .spawn("observe", while_attached(running.clone(), look));
            let (mine, its, sim) = (me.clone(), running.clone(), sim.clone());
            let follow = async move { mine.follow(its, sim).await };
            running
                .env
                .spawn("observe-leader", while_attached(running.clone(), follow));
        });
    }

    /// Looks at the storage of every host for as long as the world lasts.
    pub(crate) async fn watch_storage(self, world: World) {
        let Some(modes) = self.modes.clone() else {
            return;
        };
        loop {
            for node in world.nodes() {
                if let Some(running) = world.running(node) {
                    self.hear_removals(&running.member.services().context);
                }
                let stands = storage(world.sim(), node);
                self.docket.note(modes.stands(node, stands.as_deref()));
            }
            world.sim().sleep(STORAGE).await;
        }
    }

    /// Has the mode checker hear of removals that a member has applied.
    fn hear_removals(&self, context: &Context) {
        if let Some(modes) = &self.modes {
            let term = context.status().term;
            modes.removed(&context.store().removed_members(), term);
        }
    }

    pub(crate) fn sights(&self) -> Sights {
        let known = self.known.lock();
        Sights {
            terms: known.leaders.terms(),
            entries: known.logs.looked(),
            states: known.states.compared(),
            snapshots: known.snapshots,
        }
    }

    /// Notes every office of a member.
    async fn follow(self, running: Running, sim: Control) {
        let context = running.member.services().context.clone();
        let mut status = context.watch_status();
        let mut told = None;
        loop {
            let (role, term) = role_of(&status.borrow_and_update());
            if told != Some((role, term)) {
                told = Some((role, term));
                sim.tell(What::Role(running.node, role, term));
            }
            let (term, leads) = (Term(term), role == Role::Leader);
            if leads {
                let led = self.known.lock().leaders.led(term, context.member());
                self.docket.note(led);
                let voters = status.borrow().voters.clone();
                if let Some(modes) = &self.modes {
                    self.docket.note(modes.led(term, context.member(), &voters));
                }
            }
            if status.changed().await.is_err() {
                return;
            }
        }
    }

    async fn look_on(self, running: Running) {
        let env = running.env.clone();
        let mut from = 1;
        for look in 0_u64.. {
            self.docket.note(self.look(&running, &mut from));
            if look % SUM_EVERY == 0 {
                self.docket.note(self.sum_up(&running));
            }
            env.sleep(LOOK).await;
        }
    }

    /// Positions, and the entries of the log from `from` on.
    fn look(&self, running: &Running, from: &mut u64) -> Verdict {
        let member = &running.member;
        let context = &member.services().context;
        let id = context.member();
        self.hear_removals(context);
        let (purged, last) = member.wal().log_state();
        let purged = purged.map_or(0, |id| id.index);
        let last = last.map_or(0, |id| id.index);
        // What is applied is committed, and stands in this very log; what a leader says is committed may not yet. A
        // log that ends before what is applied is about to begin anew, behind a snapshot that was installed.
        let applied = context.store().applied().map_or(0, |id| id.index);
        let committed = if applied <= last { applied } else { 0 };
        let mut guard = self.known.lock();
        let known = &mut *guard;
        let told = |verdict: Verdict| verdict.map_err(|f| named(running.node, &f));
        told(positions::check(
            member,
            known.durable.entry(id).or_default(),
        ))?;
        let before = known.last.insert(id, last).unwrap_or(0);
        known.snapshots += u64::from(purged > before && before > 0);
        // What was not committed at the last look may have been replaced since.
        let first = (*from).max(purged + 1).min(last + 1);
        let read = member.wal().read(LogIndex(first), 4_096, 8 << 20);
        for (log_id, bytes) in read.unwrap_or_default() {
            let hash = hash_bytes(&bytes);
            told(known.logs.holds(&log_id, hash, log_id.index <= committed))?;
            if log_id.node_id != 0 {
                let leader = MemberId(log_id.node_id);
                known
                    .leaders
                    .led(tenon_proto::ids::Term(log_id.term), leader)?;
            }
        }
        *from = committed + 1;
        Ok(())
    }

    /// The whole state, to be compared with others' at the same entry.
    pub(crate) fn sum_up(&self, running: &Running) -> Verdict {
        let context = &running.member.services().context;
        let store = context.store();
        let applied = store.applied().map_or(0, |id| id.index);
        let digest = Digest::of(store);
        if digest.keys.is_none() {
            return Ok(());
        }
        let mut known = self.known.lock();
        known.states.saw(context.member(), applied, digest)
    }
}

/// Looks until the member's host has detached it.
async fn while_attached(running: Running, look: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = running.detached() => {}
        () = look => {}
    }
}

fn named(node: NodeId, finding: &crate::check::Finding) -> crate::check::Finding {
    crate::check::Finding(format!("{node}: {finding}"))
}
