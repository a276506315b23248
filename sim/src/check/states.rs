//! Checker: members that applied the same entries are in the same state, whenever they are looked at.

use super::{Verdict, require};
use std::collections::BTreeMap;
use tenon_proto::ids::{MemberId, Revision};
use tenon_storage::Store;

/// A member: id, name, peer URLs, client URLs, whether it only learns.
pub type Listed = (MemberId, String, Vec<String>, Vec<String>, bool);

/// Everything of a state that entries alone decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Digest {
    /// Hash of all keys; `None` while it cannot be told.
    pub keys: Option<(u32, i64, i64)>,
    /// Leases, sums and remaining times as replicated.
    pub leases: Vec<(i64, i64, i64)>,
    /// Members with their names and URLs.
    pub members: Vec<Listed>,
    /// Members that were removed.
    pub removed: Vec<MemberId>,
    /// Alarms raised.
    pub alarms: Vec<(u64, i32)>,
}

impl Digest {
    /// The state of a store now.
    pub fn of(store: &Store) -> Digest {
        let keys = store.hash_kv(Revision(0)).ok().map(|sum| {
            (
                sum.hash,
                sum.hash_revision.get(),
                sum.compact_revision.get(),
            )
        });
        let leases = store.leases().rows().into_iter();
        let members = store.members().into_iter();
        Digest {
            keys,
            leases: leases
                .map(|l| (l.id, l.ttl_seconds, l.remaining_seconds))
                .collect(),
            members: members
                .map(|m| (m.id, m.name, m.peer_urls, m.client_urls, m.is_learner))
                .collect(),
            removed: store.removed_members(),
            alarms: store
                .alarms()
                .iter()
                .map(|a| (a.member_id, a.alarm))
                .collect(),
        }
    }
}

/// The states seen so far, by applied index.
#[derive(Clone, Debug, Default)]
pub struct States {
    seen: BTreeMap<u64, (MemberId, Digest)>,
    compared: u64,
}

impl States {
    /// Notes the state of `member` after it applied `applied`.
    pub fn saw(&mut self, member: MemberId, applied: u64, digest: Digest) -> Verdict {
        let Some((other, held)) = self.seen.get(&applied) else {
            self.seen.insert(applied, (member, digest));
            return Ok(());
        };
        self.compared += u64::from(*other != member);
        require(*held == digest, || {
            format!("at entry {applied} {other} holds {held:?} and {member} holds {digest:?}")
        })
    }

    /// How often two members' states were compared.
    pub fn compared(&self) -> u64 {
        self.compared
    }
}
