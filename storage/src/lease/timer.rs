//! Room storage, leases: when leases end, known only to the leader and lost with it. Time comes in as
//! `Instant`; nothing here reads a clock, and nothing here is replicated.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;
use tenon_env::Instant;

/// Every so often the leader logs the remaining TTL of leases that have longer than this to live.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(300);
/// An expiry that was proposed and did not happen (outcome unknown) is proposed again after this.
pub const EXPIRY_RETRY: Duration = Duration::from_secs(3);
/// Two calls of [`Timer::expired`] this far apart mean the member stood still (it is called every
/// 500 ms): clients may have renewed meanwhile without being heard.
pub const STALL: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Deadline {
    ttl: Duration,
    expires: Instant,
    /// When the valid entry in `expiries` is due; other entries of this lease are void.
    queued: Instant,
    /// Due time of the valid entry in `checkpoints`.
    checkpoint: Option<Instant>,
    /// When the checkpoint is really due; renewals only move this.
    checkpoint_at: Instant,
    /// Expiry was proposed.
    expiring: bool,
}

/// A heap of due times whose entries may be void; the owner tells which are.
type Due = BinaryHeap<Reverse<(Instant, i64)>>;

/// Ends of leases on the leader.
///
/// - Each lease has exactly one valid entry in `expiries`, due no later than the lease ends. A
///   renewal only moves `expires`: no allocation, no growth. The entry is put right when it comes due.
/// - Void entries are at most as many as valid ones (plus a constant): the heaps are rebuilt then.
#[derive(Debug)]
pub struct Timer {
    leases: BTreeMap<i64, Deadline>,
    expiries: Due,
    checkpoints: Due,
    /// Extension after a stall: the election timeout.
    extend: Duration,
    last_tick: Instant,
}

/// What a renewal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// Renewed for the whole TTL.
    Yes,
    /// Ended, or its end was proposed: the client is told TTL 0.
    Ended,
    /// Not known here.
    Unknown,
}

impl Timer {
    /// A new leader's timers: every lease of `leases` (id, TTL, seconds to give) ends its seconds
    /// plus `extend` (the election timeout) from `now`.
    pub fn new(
        now: Instant,
        extend: Duration,
        leases: impl Iterator<Item = (i64, Duration, Duration)>,
    ) -> Timer {
        let mut timer = Timer {
            leases: BTreeMap::new(),
            expiries: Due::new(),
            checkpoints: Due::new(),
            extend,
            last_tick: now,
        };
        for (id, ttl, left) in leases {
            timer.insert(id, ttl, now + left + extend, now);
        }
        timer
    }

    /// Starts the time of a lease just granted.
    pub fn granted(&mut self, id: i64, ttl: Duration, now: Instant) {
        self.insert(id, ttl, now + ttl, now);
    }

    fn insert(&mut self, id: i64, ttl: Duration, expires: Instant, now: Instant) {
        let mut lease = Deadline {
            ttl,
            expires,
            queued: expires,
            checkpoint: None,
            checkpoint_at: now + CHECKPOINT_INTERVAL,
            expiring: false,
        };
        self.expiries.push(Reverse((expires, id)));
        if expires.since(now) > CHECKPOINT_INTERVAL {
            lease.checkpoint = Some(lease.checkpoint_at);
            self.checkpoints.push(Reverse((lease.checkpoint_at, id)));
        }
        self.leases.insert(id, lease);
    }

    /// Forgets a revoked lease.
    pub fn removed(&mut self, id: i64) {
        self.leases.remove(&id);
        if self.expiries.len() > 2 * self.leases.len() + 64 {
            let leases = &self.leases;
            self.expiries
                .retain(|Reverse((at, id))| is_queued(leases, *id, *at));
        }
        if self.checkpoints.len() > 2 * self.leases.len() + 64 {
            let leases = &self.leases;
            self.checkpoints.retain(|Reverse((at, id))| {
                leases
                    .get(id)
                    .is_some_and(|lease| lease.checkpoint == Some(*at))
            });
        }
    }

    /// Gives the lease its whole TTL from `now`.
    pub fn renew(&mut self, id: i64, now: Instant) -> Renewed {
        let Some(lease) = self.leases.get_mut(&id) else {
            return Renewed::Unknown;
        };
        if lease.expiring || lease.expires <= now {
            return Renewed::Ended;
        }
        lease.expires = now + lease.ttl;
        if lease.expires < lease.queued {
            // Only after an extension (promotion, stall): at most once for each.
            lease.queued = lease.expires;
            self.expiries.push(Reverse((lease.expires, id)));
        }
        lease.checkpoint_at = now + CHECKPOINT_INTERVAL;
        if lease.checkpoint.is_none() && lease.ttl > CHECKPOINT_INTERVAL {
            lease.checkpoint = Some(lease.checkpoint_at);
            self.checkpoints.push(Reverse((lease.checkpoint_at, id)));
        }
        Renewed::Yes
    }

    /// Time left; zero when ended or when its end was proposed; `None` when unknown.
    pub fn remaining(&self, id: i64, now: Instant) -> Option<Duration> {
        let lease = self.leases.get(&id)?;
        if lease.expiring {
            return Some(Duration::ZERO);
        }
        Some(lease.expires.since(now))
    }

    /// When the lease ends, for ordering.
    pub fn expires(&self, id: i64) -> Option<Instant> {
        self.leases.get(&id).map(|lease| lease.expires)
    }

    /// Leases that ended by `now`, soonest first, at most `max`; from now on they answer TTL 0 and
    /// cannot be renewed. Those whose proposal came to nothing come again after [`EXPIRY_RETRY`].
    ///
    /// To be called every 500 ms. After a gap of more than [`STALL`] nothing ends before one more
    /// election timeout, so that renewals waiting in sockets are heard first.
    pub fn expired(&mut self, now: Instant, max: usize) -> Vec<i64> {
        let stalled = now.since(self.last_tick) > STALL;
        self.last_tick = now;
        if stalled {
            let floor = now + self.extend;
            for lease in self.leases.values_mut().filter(|lease| !lease.expiring) {
                lease.expires = lease.expires.max(floor);
            }
        }
        let mut ended = Vec::new();
        while ended.len() < max {
            let Some(Reverse((at, id))) = self.expiries.peek().copied() else {
                break;
            };
            if at > now {
                break;
            }
            self.expiries.pop();
            let Some(lease) = self.leases.get_mut(&id).filter(|lease| lease.queued == at) else {
                continue;
            };
            if lease.expires > at {
                // Renewed since it was queued.
                lease.queued = lease.expires;
            } else {
                lease.expiring = true;
                lease.queued = now + EXPIRY_RETRY;
                ended.push(id);
            }
            self.expiries.push(Reverse((lease.queued, id)));
        }
        ended
    }

    /// Checkpoints due by `now`, at most `max`: (id, remaining seconds, rounded up). Each lease comes
    /// again after [`CHECKPOINT_INTERVAL`] while it has longer than that to live.
    pub fn checkpoints_due(&mut self, now: Instant, max: usize) -> Vec<(i64, i64)> {
        let mut due = Vec::new();
        while due.len() < max {
            let Some(Reverse((at, id))) = self.checkpoints.peek().copied() else {
                break;
            };
            if at > now {
                break;
            }
            self.checkpoints.pop();
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            if lease.checkpoint != Some(at) {
                continue;
            }
            lease.checkpoint = None;
            let left = lease.expires.since(now);
            if lease.checkpoint_at <= now {
                if !lease.expiring && !left.is_zero() && left < lease.ttl {
                    due.push((id, seconds_up(left)));
                }
                lease.checkpoint_at = now + CHECKPOINT_INTERVAL;
            }
            if left > CHECKPOINT_INTERVAL {
                lease.checkpoint = Some(lease.checkpoint_at);
                self.checkpoints.push(Reverse((lease.checkpoint_at, id)));
            }
        }
        due
    }

    /// Entries held, valid and void, in both heaps; for tests and metrics.
    pub fn entries(&self) -> usize {
        self.expiries.len() + self.checkpoints.len()
    }
}

fn is_queued(leases: &BTreeMap<i64, Deadline>, id: i64, at: Instant) -> bool {
    leases.get(&id).is_some_and(|lease| lease.queued == at)
}

fn seconds_up(left: Duration) -> i64 {
    let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}
