//! Room `sim`, L1: what a run does, drawn from a seed or given.

use crate::disk::CrashMode;
use crate::rng::SimRng;
use std::time::Duration;
use tenon_server::member::config::Tuning;
use tenon_storage::wal::WalOptions;
use tenon_storage::{EngineKind, StoreOptions};

/// How a life of the member ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// During the n-th disk operation of the life; counted from its start, opening included.
    AtOperation(u64, CrashMode),
    /// At a moment after its start.
    At(Duration, CrashMode),
    /// In order, at a moment after its start; then the power is cut.
    Orderly(Duration),
}

/// One life of the member and its troubles.
#[derive(Clone, Debug)]
pub struct LifePlan {
    /// How it ends.
    pub end: End,
    /// Speed of the disk in percent of its usual times.
    pub slow_percent: u64,
    /// The node does nothing for this long, after this long.
    pub pause: Option<(Duration, Duration)>,
    /// After this long, monotonic time jumps forward by so much, and wall time either way.
    pub jump: Option<(Duration, Duration)>,
    /// After this long the disk is full, for this long.
    pub full: Option<(Duration, Duration)>,
    /// How many of a million writes fail with EIO; the member must stop by itself at the first.
    pub write_errors_ppm: u32,
    /// The n-th sync fails; the member must stop by itself and acknowledge nothing more.
    pub fail_sync: Option<u64>,
    /// Syncs do nothing: no member can keep a promise then, and the run must say so.
    pub lies: bool,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Clients that call at the same time.
    pub clients: u64,
    /// Calls of each client over all lives.
    pub calls: u64,
    /// Longest pause of a client between two calls.
    pub think: Duration,
    /// Keys they work on.
    pub keys: u64,
    /// Watchers besides the one that watches all.
    pub watchers: u64,
    /// The lives with troubles; one without follows.
    pub lives: Vec<LifePlan>,
    /// How long a life lasts that waits for a disk operation which never comes.
    pub life_most: Duration,
    /// Drift of the member's clock in parts per billion.
    pub drift_ppb: i64,
    /// Whether leases are used, whose end the run then waits for.
    pub leases: bool,
    /// Sizes of the member's storage.
    pub tuning: Tuning,
}

/// Sizes at which a short run rolls and purges segments of the log, drains all the time and misses its caches.
pub(crate) fn small(rng: &mut SimRng) -> Tuning {
    let pick = |rng: &mut SimRng, sizes: &[u64]| *rng.pick(sizes);
    let segment = pick(rng, &[8 << 10, 32 << 10, 1 << 20]);
    let wal_bytes_max = segment * pick(rng, &[1, 2, 8]);
    let wal = WalOptions {
        segment_bytes: segment,
        tail_bytes: pick(rng, &[1 << 10, 1 << 20]) as usize,
    };
    let store = StoreOptions {
        engine_cache_bytes: pick(rng, &[64 << 10, 4 << 20]) as usize,
        recent_bytes_max: pick(rng, &[0, 4 << 10, 1 << 20]) as usize,
        read_cache_bytes_max: pick(rng, &[0, 4 << 10, 1 << 20]) as usize,
        undrained_bytes_max: pick(rng, &[8 << 10, 256 << 10]) as usize,
        drain_bytes: pick(rng, &[1, 4 << 10, 64 << 10]) as usize,
        drain_interval: Duration::from_millis(pick(rng, &[1, 20, 100, 1_000])),
        engine: *rng.pick(&[EngineKind::Redb, EngineKind::Redb, EngineKind::Memory]),
        checkpoint_bytes: pick(rng, &[1, 2 << 10, 16 << 10]),
        ..StoreOptions::default()
    };
    Tuning {
        wal,
        // So that members that were away need snapshots, where the log is small.
        purge_entries_min: if segment > 32 << 10 { 1_000 } else { 20 },
        wal_bytes_max,
        store,
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut rng = SimRng::fork(seed, "plan", 0);
        let drift_ppb = match rng.below(3) {
            0 => 0,
            1 => rng.between(0, 20_000_000) as i64,
            _ => -(rng.between(0, 20_000_000) as i64),
        };
        let lives = (0..rng.between(2, 6))
            .map(|_| LifePlan::draw(&mut rng))
            .collect();
        Plan {
            clients: rng.between(2, 6),
            calls: rng.between(20, 60),
            think: Duration::from_millis(*rng.pick(&[1, 10, 40])),
            keys: rng.between(2, 20),
            watchers: rng.between(0, 4),
            lives,
            life_most: Duration::from_secs(3),
            drift_ppb,
            leases: rng.chance(300_000),
            tuning: if rng.chance(900_000) {
                small(&mut rng)
            } else {
                Tuning::default()
            },
        }
    }

    /// As [`Plan::crash_at`], and after it a second life that ends in a power cut: what the first crash left
    /// half made, and the start after it took for made, must be durable by then.
    pub fn crash_at_and_cut(operation: u64, mode: CrashMode) -> Plan {
        let mut plan = Plan::crash_at(operation, mode);
        let mut second = plan.lives[0].clone();
        second.end = End::At(Duration::from_millis(400), CrashMode::Lost);
        plan.lives.push(second);
        plan
    }

    /// One short life that ends at a given disk operation.
    pub fn crash_at(operation: u64, mode: CrashMode) -> Plan {
        let life = LifePlan {
            end: End::AtOperation(operation, mode),
            slow_percent: 100,
            pause: None,
            jump: None,
            full: None,
            write_errors_ppm: 0,
            fail_sync: None,
            lies: false,
        };
        Plan {
            clients: 3,
            calls: 12,
            think: Duration::from_millis(40),
            keys: 4,
            watchers: 1,
            lives: vec![life],
            life_most: Duration::from_millis(600),
            drift_ppb: 0,
            leases: false,
            tuning: small_log(),
        }
    }
}

/// Little of the log, and drains in the middle of the work.
fn small_log() -> Tuning {
    let mut tuning = Tuning {
        wal_bytes_max: 16 << 10,
        ..Tuning::default()
    };
    tuning.wal.segment_bytes = 8 << 10;
    tuning.store.drain_interval = Duration::from_millis(40);
    tuning
}

/// With this chance: after how long, and how long, up to `most_ms`.
fn span(rng: &mut SimRng, ppm: u32, most_ms: u64) -> Option<(Duration, Duration)> {
    rng.chance(ppm).then(|| {
        let after = Duration::from_millis(rng.between(1, 1_500));
        (after, Duration::from_millis(rng.between(1, most_ms)))
    })
}

impl LifePlan {
    /// Whether the disk gives errors at which the member has to stop by itself.
    pub fn has_disk_errors(&self) -> bool {
        self.fail_sync.is_some() || self.write_errors_ppm > 0
    }

    /// Whether this life's clock may end leases before their time by the world's.
    pub fn hastens(&self) -> bool {
        self.jump.is_some()
    }

    fn draw(rng: &mut SimRng) -> LifePlan {
        let mode = *rng.pick(&[
            CrashMode::Kept,
            CrashMode::Lost,
            CrashMode::Torn,
            CrashMode::Torn,
        ]);
        let moment = Duration::from_micros(rng.between(0, 2_500_000));
        let end = match rng.below(10) {
            0..5 => {
                let most = *rng.pick(&[30, 150, 1_000]);
                End::AtOperation(rng.between(1, most), mode)
            }
            5..8 => End::At(moment, mode),
            _ => End::Orderly(moment),
        };
        LifePlan {
            end,
            slow_percent: *rng.pick(&[100, 100, 100, 20, 1_000]),
            pause: span(rng, 150_000, 4_000),
            jump: span(rng, 100_000, 20_000),
            full: span(rng, 150_000, 4_000),
            write_errors_ppm: if rng.chance(50_000) { 10_000 } else { 0 },
            fail_sync: rng.chance(100_000).then(|| rng.between(1, 60)),
            lies: false,
        }
    }
}
