//! Room storage, leases: the replicated part, a pure function of the commands applied. Leases, the
//! keys attached to them and the checkpointed remainder. No clock, no order by time, no I/O: the
//! caller stores the rows it is given.

use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

/// Longest TTL a lease may have, seconds (etcd's limit).
pub const LEASE_TTL_SECONDS_MAX: i64 = 9_000_000_000;

/// Why a grant is refused. Client errors: deterministic, the same on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The id is in use.
    #[error("lease already exists")]
    Exists,
    /// TTL above [`LEASE_TTL_SECONDS_MAX`].
    #[error("too large lease TTL")]
    TtlTooLarge,
    /// Id 0 means "none" and cannot be granted; the proposer picks an id first.
    #[error("lease id 0 means no lease")]
    NoId,
}

/// A lease as its table row. Field numbers are a disk format; never reuse one.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseRow {
    /// Id, any value but 0; negative ones are valid.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Granted TTL, seconds.
    #[prost(int64, tag = "2")]
    pub ttl_seconds: i64,
    /// Remaining seconds at the last checkpoint; 0 = none, the whole TTL counts.
    #[prost(int64, tag = "3")]
    pub remaining_seconds: i64,
}

impl LeaseRow {
    /// Key of the row of lease `id`.
    pub fn key(id: i64) -> Bytes {
        Bytes::copy_from_slice(&id.to_be_bytes())
    }

    /// The row's key and value.
    pub fn encode_row(&self) -> (Bytes, Bytes) {
        (LeaseRow::key(self.id), self.encode_to_vec().into())
    }

    /// Seconds a new leader has to give the lease: the checkpointed remainder, else the whole TTL.
    pub fn effective_seconds(&self) -> i64 {
        if self.remaining_seconds > 0 {
            self.remaining_seconds
        } else {
            self.ttl_seconds
        }
    }
}

#[derive(Debug)]
struct Lease {
    row: LeaseRow,
    keys: BTreeSet<Bytes>,
}

/// Every lease and what is attached to it.
///
/// - A key is attached to at most one lease, and `owner` and the leases' key sets say the same.
/// - Only keys of existing leases are in `owner`.
#[derive(Debug, Default)]
pub struct LeaseSet {
    leases: BTreeMap<i64, Lease>,
    owner: BTreeMap<Bytes, i64>,
}

impl LeaseSet {
    /// A set from table rows; attachments follow through [`LeaseSet::attach`]. A row that cannot be
    /// decoded is an error: the engine is damaged.
    pub fn from_rows<'a>(
        rows: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<LeaseSet, prost::DecodeError> {
        let mut set = LeaseSet::default();
        for value in rows {
            let row = LeaseRow::decode(value)?;
            let keys = BTreeSet::new();
            set.leases.insert(row.id, Lease { row, keys });
        }
        Ok(set)
    }

    /// Creates a lease; the row is to be stored. `ttl_seconds` is final: the proposer raised it to
    /// the minimum.
    pub fn grant(&mut self, id: i64, ttl_seconds: i64) -> Result<LeaseRow, GrantError> {
        if id == 0 {
            return Err(GrantError::NoId);
        }
        if ttl_seconds > LEASE_TTL_SECONDS_MAX {
            return Err(GrantError::TtlTooLarge);
        }
        if self.leases.contains_key(&id) {
            return Err(GrantError::Exists);
        }
        let row = LeaseRow {
            id,
            ttl_seconds,
            remaining_seconds: 0,
        };
        self.leases.insert(
            id,
            Lease {
                row: row.clone(),
                keys: BTreeSet::new(),
            },
        );
        Ok(row)
    }

    /// Removes a lease and answers its keys, ascending, which the caller deletes in one revision.
    /// `None` when there is no such lease.
    pub fn revoke(&mut self, id: i64) -> Option<Vec<Bytes>> {
        let lease = self.leases.remove(&id)?;
        for key in &lease.keys {
            self.owner.remove(key);
        }
        Some(lease.keys.into_iter().collect())
    }

    /// Attaches `key` to lease `id`, taking it from its former lease; `id` 0 only detaches. The
    /// lease must exist: a put with an unknown lease was refused before.
    pub fn attach(&mut self, key: &Bytes, id: i64) {
        match self.owner.get(key) {
            Some(owner) if *owner == id => return,
            Some(_) => self.detach(key),
            None => {}
        }
        if id == 0 {
            return;
        }
        let lease = self
            .leases
            .get_mut(&id)
            .expect("keys are attached to existing leases only");
        lease.keys.insert(key.clone());
        self.owner.insert(key.clone(), id);
    }

    /// Takes `key` from its lease, if it has one.
    pub fn detach(&mut self, key: &[u8]) {
        if let Some(id) = self.owner.remove(key)
            && let Some(lease) = self.leases.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }

    /// Records what a leader saw left of the lease, seconds; 0 restores the whole TTL. Answers the
    /// row to store, `None` when the lease is gone.
    pub fn checkpoint(&mut self, id: i64, remaining_seconds: i64) -> Option<LeaseRow> {
        let lease = self.leases.get_mut(&id)?;
        lease.row.remaining_seconds = remaining_seconds.min(lease.row.ttl_seconds).max(0);
        Some(lease.row.clone())
    }

    /// The lease's row.
    pub fn get(&self, id: i64) -> Option<&LeaseRow> {
        self.leases.get(&id).map(|lease| &lease.row)
    }

    /// Keys attached to the lease, ascending; empty for an unknown lease.
    pub fn keys(&self, id: i64) -> impl Iterator<Item = &Bytes> {
        self.leases
            .get(&id)
            .into_iter()
            .flat_map(|lease| &lease.keys)
    }

    /// The lease `key` is attached to; 0 = none.
    pub fn lease_of(&self, key: &[u8]) -> i64 {
        self.owner.get(key).copied().unwrap_or(0)
    }

    /// All leases, by id.
    pub fn rows(&self) -> impl Iterator<Item = &LeaseRow> {
        self.leases.values().map(|lease| &lease.row)
    }

    /// Number of leases.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// True when there is no lease.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }
}
