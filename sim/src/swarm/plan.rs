//! Room `sim`, swarm: what a run does, drawn from a seed or given.

use crate::l1::small;
use crate::mask::Mask;
use crate::nemesis::{Fault, Switching};
use crate::net::Delay;
use crate::rng::SimRng;
use crate::workload::Mix;
use crate::world::{HostOptions, WorldOptions};
use std::time::Duration;
use tenon_env::Plant;
use tenon_server::host::edges::Edges;
use tenon_server::member::config::Tuning;

/// One run of a cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The members and their sizes.
    pub world: WorldOptions,
    /// How long the nemesis rages.
    pub chaos: Duration,
    /// What it may do; empty for nothing.
    pub faults: Vec<Fault>,
    /// Longest time between two faults.
    pub every: Duration,
    /// Usual time of messages between members.
    pub delay: Delay,
    /// Most drift of a member's clock in parts per billion.
    pub drift_ppb: u64,
    /// Nodes that members may be added on, besides the founders'; `None` when nobody comes or goes.
    pub churn: Option<u64>,
    /// What befalls hosts, in a world of hosts.
    pub switching: Option<Switching>,
    /// Callers, and their requests each at most.
    pub callers: (u64, u64),
    /// What they ask.
    pub mix: Mix,
    /// Longest pause of a worker between two calls.
    pub think: Duration,
    /// How long clients wait for an answer.
    pub patience: Duration,
    /// Keys that callers work on.
    pub keys: u64,
    /// Clients that append to lists.
    pub appenders: u64,
    /// Clients that take turns with locks.
    pub lockers: u64,
    /// Candidates for an office.
    pub electors: u64,
    /// Watchers of parts.
    pub watchers: u64,
    /// The mistake planted in every member; none but where the checkers are put to the proof.
    pub plant: Plant,
    /// Faults and calls that are left out of what the seed draws.
    pub mask: Mask,
}

fn world(rng: &mut SimRng) -> WorldOptions {
    let (heartbeat, election) = *rng.pick(&[(20, 100), (50, 250), (100, 500), (100, 1_000)]);
    WorldOptions {
        founders: *rng.pick(&[1, 3, 3, 3, 3, 5]),
        heartbeat: Duration::from_millis(heartbeat),
        election: Duration::from_millis(election),
        snapshot_catchup_entries: *rng.pick(&[5, 50, 5_000]),
        compaction_batch: *rng.pick(&[3, 1_000]),
        progress_interval: Duration::from_millis(*rng.pick(&[200, 600_000])),
        max_learners: *rng.pick(&[1, 2]),
        strict_reconfig: rng.chance(800_000),
        auto_promote_learners: rng.chance(300_000),
        corrupt_check: Duration::from_millis(*rng.pick(&[0, 0, 1_000])),
        tuning: match rng.chance(800_000) {
            true => small(rng),
            false => middling(),
        },
        ..WorldOptions::default()
    }
}

/// The defaults, with segments of the log that a simulated disk makes quickly.
fn middling() -> Tuning {
    let mut tuning = Tuning::default();
    tuning.wal.segment_bytes = 1 << 20;
    tuning
}

/// Each part is left out in some seeds, so that the others are seen alone.
fn mix(rng: &mut SimRng) -> Mix {
    let mut part = |weight: u64| weight * rng.pick(&[0, 1, 1, 4]);
    Mix {
        puts: 10 + part(30),
        deletes: part(10),
        ranges: 5 + part(15),
        txns: part(12),
        compactions: part(3),
        hashes: part(4),
        leases: part(8),
    }
}

impl Plan {
    /// The plan of a seed, of the usual 8 simulated seconds.
    pub fn of(seed: u64) -> Plan {
        Plan::lasting(seed, Duration::from_secs(8))
    }

    /// The plan of a seed whose nemesis rages for `chaos`.
    pub fn lasting(seed: u64, chaos: Duration) -> Plan {
        let mut rng = SimRng::fork(seed, "swarm", 0);
        let rng = &mut rng;
        let mut faults = Fault::ALL.to_vec();
        let keep = *rng.pick(&[150_000, 400_000, 800_000]);
        faults.retain(|_| rng.chance(keep));
        let (min, max) = *rng.pick(&[(100, 1_000), (100, 1_000), (500, 20_000)]);
        Plan {
            world: world(rng),
            chaos,
            faults,
            every: Duration::from_millis(*rng.pick(&[200, 800, 2_500])),
            delay: Delay {
                min: min * 1_000,
                max: max * 1_000,
                tail: 50_000_000,
                tail_ppm: 5_000,
            },
            drift_ppb: *rng.pick(&[0, 0, 10_000_000]),
            churn: rng.chance(300_000).then(|| rng.between(1, 2)),
            switching: None,
            callers: (rng.between(1, 4), 200),
            mix: mix(rng),
            think: Duration::from_millis(*rng.pick(&[20, 100, 300])),
            patience: Duration::from_millis(*rng.pick(&[300, 1_500, 8_000])),
            keys: rng.between(2, 30),
            appenders: *rng.pick(&[0, 0, 1, 3]),
            lockers: *rng.pick(&[0, 0, 2, 3]),
            electors: *SimRng::fork(seed, "electors", 0).pick(&[0, 0, 2, 3]),
            watchers: rng.between(0, 4),
            plant: Plant::None,
            mask: Mask::default(),
        }
    }

    /// The plan of a seed whose nodes are hosts that switch between server and client: the usual draws, on more nodes,
    /// some of which begin as clients.
    pub fn hosts(seed: u64) -> Plan {
        Plan::hosts_lasting(seed, Duration::from_secs(8))
    }

    /// As [`Plan::hosts`], with a nemesis that rages for `chaos`.
    pub fn hosts_lasting(seed: u64, chaos: Duration) -> Plan {
        let mut plan = Plan::lasting(seed, chaos);
        let mut rng = SimRng::fork(seed, "hosts", 0);
        plan.churn = None;
        plan.world.founders = *rng.pick(&[1, 2, 3, 3, 3, 5]);
        plan.world.hosts = Some(HostOptions {
            spares: rng.between(1, 2),
            edges: Edges::default(),
            change_within: Duration::from_secs(20),
        });
        plan.switching = Some(Switching {
            every: Duration::from_millis(*rng.pick(&[200, 800, 2_000])),
            accidents_ppm: *rng.pick(&[0, 300_000, 700_000]),
            loses_disk: rng.chance(300_000),
        });
        plan
    }

    /// The plan of a seed in which a planted mistake shows soon: the usual draws, but for the few that matter to
    /// it.
    pub fn proving(plant: Plant, seed: u64) -> Plan {
        let mut plan = Plan::lasting(seed, Duration::from_secs(3));
        plan.plant = plant;
        plan.world.founders = 3;
        plan.world.heartbeat = Duration::from_millis(20);
        plan.world.election = Duration::from_millis(100);
        plan.world.tuning.store.drain_interval = Duration::from_millis(20);
        plan.churn = None;
        plan.callers = (3, 200);
        plan.mix = Mix::usual(false);
        plan.think = Duration::from_millis(40);
        plan.patience = Duration::from_millis(500);
        (plan.appenders, plan.lockers, plan.electors) = (0, 0, 0);
        plan.watchers = 1;
        plan.every = Duration::from_millis(800);
        if plant == Plant::RestoreLeader {
            // Many entries under way when the leader loses what it had not synced, and is back at once.
            plan.callers = (4, 400);
            plan.think = Duration::from_millis(5);
            plan.every = Duration::from_millis(400);
        }
        plan.faults = match plant {
            Plant::AcknowledgeBeforeSync => vec![Fault::PowerCut],
            Plant::SkipVoteSync => vec![Fault::ElectionCut],
            Plant::GrantPreVote => vec![Fault::Deafen],
            Plant::PromoteEmptyLearner => vec![Fault::Isolate, Fault::SlowLinks],
            Plant::RestoreLeader => vec![Fault::Reboot],
            Plant::DrainPastLog => vec![Fault::SlowDisk],
            Plant::StaleRead | Plant::ReuseRevision | Plant::DropWatchEvent | Plant::None => {
                Vec::new()
            }
        };
        if plant == Plant::PromoteEmptyLearner {
            plan.churn = Some(2);
            plan.world.strict_reconfig = false;
        }
        plan
    }

    /// Whether nothing happens over which a leader should lose its office.
    pub(super) fn is_steady(&self) -> bool {
        self.churn.is_none()
            && self.switching.is_none()
            && self.faults.iter().all(|fault| *fault == Fault::Deafen)
    }

    /// By how many percent clocks may run fast.
    pub(super) fn fast_percent(&self) -> u64 {
        self.drift_ppb.div_ceil(10_000_000)
    }

    /// Whether leases may end before their time by the world's clock.
    pub(super) fn hastens(&self) -> bool {
        self.faults.contains(&Fault::Jump)
    }
}
