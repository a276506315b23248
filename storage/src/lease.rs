//! Room storage, leases: the replicated set of leases and, on the leader, their ends. May use proto and
//! env's clock; no tasks, no engine: rows to store are handed to the caller, which is `apply`.
//!
//! Two parts under one lock. [`LeaseSet`] is replicated: a pure function of the commands applied, the
//! same on every member. [`Timer`] exists on the leader only and is lost with it: a lease is renewed
//! there without the log. What survives a change of leader is the checkpointed remainder.
//!
//! ```text
//! grant ──► running ──(time passes)──► ended: proposed, answers TTL 0 ──► LeaseExpire applied: gone
//!              ▲  └── renew ──┘                                  (ignored when the term is another)
//! ```
//!
//! What this does not do: propose anything, decide who leads, delete keys.

mod set;
mod timer;

#[cfg(test)]
mod tests;

pub use set::{GrantError, LEASE_TTL_SECONDS_MAX, LeaseRow, LeaseSet};
pub use timer::{CHECKPOINT_INTERVAL, EXPIRY_RETRY, STALL};

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::{Clock, Instant};
use timer::{Renewed, Timer};

/// All leases of a member. Methods take `&self`; the lock inside is held for O(log n) steps only, and
/// never while another lock is taken.
pub struct Lessor {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    set: LeaseSet,
    /// Some on the leader.
    timer: Option<Timer>,
}

/// What a renewal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Renewed; the TTL to answer, seconds. With `clear_checkpoint` a `LeaseCheckpoint` with remaining
    /// 0 must be committed before the client is told, or the next leader would give it less.
    Renewed {
        /// The granted TTL, seconds.
        ttl_seconds: i64,
        /// An old remainder stands in the log.
        clear_checkpoint: bool,
    },
    /// Unknown, ended, or its end was proposed: answer TTL 0.
    Gone,
    /// Not the leader here: ask it.
    NotLeader,
}

/// A lease as asked by TimeToLive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Whole seconds left, never negative.
    pub remaining_seconds: i64,
    /// Granted TTL, seconds.
    pub granted_seconds: i64,
    /// Attached keys, ascending; empty unless asked for.
    pub keys: Vec<Bytes>,
}

impl Lessor {
    /// No leases. `clock` is read only to start the time of a lease when the grant is applied on the
    /// leader; nothing replicated depends on it.
    pub fn new(clock: Arc<dyn Clock>) -> Lessor {
        Lessor::with_set(clock, LeaseSet::default())
    }

    /// A lessor at start: leases from `rows` (values of the table) and, from the live pairs, which
    /// key is attached to which lease. An attachment to 0 is skipped.
    pub fn restore<'a>(
        clock: Arc<dyn Clock>,
        rows: impl IntoIterator<Item = &'a [u8]>,
        attached: impl IntoIterator<Item = (Bytes, i64)>,
    ) -> Result<Lessor, prost::DecodeError> {
        let mut set = LeaseSet::from_rows(rows)?;
        for (key, id) in attached {
            set.attach(&key, id);
        }
        Ok(Lessor::with_set(clock, set))
    }

    fn with_set(clock: Arc<dyn Clock>, set: LeaseSet) -> Lessor {
        Lessor {
            clock,
            state: Mutex::new(State { set, timer: None }),
        }
    }

    /// Replaces everything after a snapshot was installed. The member is no leader then.
    pub fn replace(&self, other: Lessor) {
        let set = other.state.into_inner().set;
        *self.state.lock() = State { set, timer: None };
    }

    // ---- replicated: called by apply, in log order ----

    /// Creates a lease; the answered row is to be stored in the same batch.
    pub fn grant(&self, id: i64, ttl_seconds: i64) -> Result<LeaseRow, GrantError> {
        let mut state = self.state.lock();
        let row = state.set.grant(id, ttl_seconds)?;
        if let Some(timer) = &mut state.timer {
            timer.granted(id, seconds(ttl_seconds), self.clock.now());
        }
        Ok(row)
    }

    /// Removes a lease (revoke or expiry): its row is to be removed, and the answered keys, ascending,
    /// are to be deleted in one revision. `None`: no such lease.
    pub fn revoke(&self, id: i64) -> Option<Vec<Bytes>> {
        let mut state = self.state.lock();
        let keys = state.set.revoke(id)?;
        if let Some(timer) = &mut state.timer {
            timer.removed(id);
        }
        Some(keys)
    }

    /// After a put: attaches the key to lease `id`, which exists, or to none (0); it leaves its former
    /// lease.
    pub fn attach(&self, key: &Bytes, id: i64) {
        self.state.lock().set.attach(key, id);
    }

    /// After a delete.
    pub fn detach(&self, key: &[u8]) {
        self.state.lock().set.detach(key);
    }

    /// Applies one checkpoint; the row to store, `None` when the lease is gone.
    pub fn checkpoint(&self, id: i64, remaining_seconds: i64) -> Option<LeaseRow> {
        self.state.lock().set.checkpoint(id, remaining_seconds)
    }

    /// True when the lease exists: puts may name it.
    pub fn exists(&self, id: i64) -> bool {
        self.state.lock().set.get(id).is_some()
    }

    /// The lease `key` is attached to; 0 = none.
    pub fn lease_of(&self, key: &[u8]) -> i64 {
        self.state.lock().set.lease_of(key)
    }

    /// Keys attached to a lease, ascending; for permission checks.
    pub fn keys(&self, id: i64) -> Vec<Bytes> {
        self.state.lock().set.keys(id).cloned().collect()
    }

    /// Every row, by id; for snapshots.
    pub fn rows(&self) -> Vec<LeaseRow> {
        self.state.lock().set.rows().cloned().collect()
    }

    /// Number of leases.
    pub fn count(&self) -> usize {
        self.state.lock().set.len()
    }

    // ---- volatile: the leader's ----

    /// This member became leader: every lease gets its whole TTL, or the checkpointed remainder, plus
    /// `extend` (the election timeout) from `now`. Calling it again starts anew.
    pub fn promote(&self, now: Instant, extend: Duration) {
        let mut state = self.state.lock();
        let leases = state.set.rows().map(|row| {
            (
                row.id,
                seconds(row.ttl_seconds),
                seconds(row.effective_seconds()),
            )
        });
        state.timer = Some(Timer::new(now, extend, leases));
    }

    /// This member leads no longer: nothing expires here.
    pub fn demote(&self) {
        self.state.lock().timer = None;
    }

    /// True between [`Lessor::promote`] and [`Lessor::demote`].
    pub fn is_leader(&self) -> bool {
        self.state.lock().timer.is_some()
    }

    /// A client's keep-alive, after leadership was confirmed.
    pub fn renew(&self, id: i64, now: Instant) -> Renewal {
        let mut state = self.state.lock();
        let State { set, timer } = &mut *state;
        let Some(timer) = timer else {
            return Renewal::NotLeader;
        };
        match (timer.renew(id, now), set.get(id)) {
            (Renewed::Yes, Some(row)) => Renewal::Renewed {
                ttl_seconds: row.ttl_seconds,
                clear_checkpoint: row.remaining_seconds > 0,
            },
            (Renewed::Yes, None) => unreachable!("timers exist for leases of the set only"),
            (Renewed::Ended | Renewed::Unknown, _) => Renewal::Gone,
        }
    }

    /// Time left of a lease. `None`: unknown, or not the leader here.
    pub fn remaining(&self, id: i64, now: Instant) -> Option<Duration> {
        self.state.lock().timer.as_ref()?.remaining(id, now)
    }

    /// A lease for TimeToLive; `None` when unknown. Only the leader knows the time left: elsewhere
    /// the answer is the checkpointed remainder, and the service asks the leader instead.
    pub fn info(&self, id: i64, now: Instant, with_keys: bool) -> Option<LeaseInfo> {
        let state = self.state.lock();
        let row = state.set.get(id)?;
        let remaining_seconds = match state.timer.as_ref().and_then(|t| t.remaining(id, now)) {
            Some(left) => i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            None => row.effective_seconds(),
        };
        let keys = if with_keys {
            state.set.keys(id).cloned().collect()
        } else {
            Vec::new()
        };
        Some(LeaseInfo {
            remaining_seconds,
            granted_seconds: row.ttl_seconds,
            keys,
        })
    }

    /// All ids, the one to end first in front; without a leader's timers by remainder, then id.
    pub fn list(&self) -> Vec<i64> {
        let state = self.state.lock();
        let mut order: Vec<(u64, i64)> = state
            .set
            .rows()
            .map(
                |row| match state.timer.as_ref().and_then(|timer| timer.expires(row.id)) {
                    Some(at) => (at.0, row.id),
                    None => (u64::try_from(row.effective_seconds()).unwrap_or(0), row.id),
                },
            )
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, id)| id).collect()
    }

    /// Leases that ended by `now`, soonest first, at most `max`; to be called every 500 ms by the
    /// leader, which proposes their expiry. They answer TTL 0 from now on, and come again after
    /// [`EXPIRY_RETRY`] should the proposal come to nothing. After a gap of more than [`STALL`]
    /// between two calls nothing ends before one more election timeout. Empty on others.
    pub fn expired(&self, now: Instant, max: usize) -> Vec<i64> {
        self.state
            .lock()
            .timer
            .as_mut()
            .map_or_else(Vec::new, |timer| timer.expired(now, max))
    }

    /// Checkpoints for the leader to propose: (id, remaining seconds), at most `max`.
    pub fn checkpoints_due(&self, now: Instant, max: usize) -> Vec<(i64, i64)> {
        let mut state = self.state.lock();
        state
            .timer
            .as_mut()
            .map_or_else(Vec::new, |timer| timer.checkpoints_due(now, max))
    }

    /// Entries in the timers' heaps; for tests and metrics.
    pub fn timer_entries(&self) -> usize {
        self.state.lock().timer.as_ref().map_or(0, Timer::entries)
    }
}

impl std::fmt::Debug for Lessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lessor({} leases)", self.count())
    }
}

fn seconds(value: i64) -> Duration {
    Duration::from_secs(u64::try_from(value).unwrap_or(0))
}
