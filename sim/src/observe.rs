//! Room `sim`: observers: for as long as a member lives they look at it from outside and tell the checkers what they
//! see: who leads, what the logs hold, the state at an applied index, the order of positions. They change nothing.

use crate::NodeId;
use crate::check::leaders::Leaders;
use crate::check::logs::Logs;
use crate::check::positions::{self, Durable};
use crate::check::states::{Digest, States};
use crate::check::{Docket, Verdict};
use crate::chronicle::{Role, What};
use crate::cluster::role_of;
use crate::sim::Control;
use crate::trace::hash_bytes;
use crate::world::{Running, World};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenon_proto::ids::{LogIndex, MemberId, Term};

/// How often positions and logs are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How many looks apart states are summed up.
const SUM_EVERY: u64 = 8;

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
    pub(crate) fn new(docket: Docket) -> Observer {
        Observer {
            docket,
            ..Observer::default()
        }
    }

    /// Looks at every member of `world` from its start on.
    pub(crate) fn attend(&self, world: &World) {
        let (me, sim) = (self.clone(), world.sim().clone());
        world.on_start(move |running| {
            let (mine, its) = (me.clone(), running.clone());
            running
                .env
                .spawn("observe", async move { mine.look_on(its).await });
            let (mine, its, sim) = (me.clone(), running.clone(), sim.clone());
            running
                .env
                .spawn("observe-leader", async move { mine.follow(its, sim).await });
        });
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

fn named(node: NodeId, finding: &crate::check::Finding) -> crate::check::Finding {
    crate::check::Finding(format!("{node}: {finding}"))
}
