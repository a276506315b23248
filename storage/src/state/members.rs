//! Room storage, state: what is known of members. Who votes is the membership's business; names and
//! addresses are rows here. Pure data.

use super::rows::MemberRow;
use crate::engine::RowChange;
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use tenon_proto::command::{MemberBirth, MemberPublish};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::MemberUpdateRequest;
use tenon_proto::ids::MemberId;
use tenon_proto::log::Membership;

/// A member as others may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Its name; empty until it published itself.
    pub name: String,
    /// Where peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it published itself.
    pub client_urls: Vec<String>,
    /// It does not vote yet.
    pub is_learner: bool,
    /// What its id was hashed with: the cluster token or the decimal Unix seconds of its addition.
    pub token_or_time: String,
    /// The leader promotes it once it caught up (else an operator does).
    pub promote_auto: bool,
    /// It was added as a voter while its vote would have left the others without a quorum: a learner only
    /// until it caught up.
    pub added_as_voter: bool,
    /// It published itself at least once: it has run.
    pub published: bool,
}

/// Rows of the members, current and removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    rows: BTreeMap<u64, MemberRow>,
}

impl Members {
    /// Members from the values of their table.
    pub(crate) fn from_rows(rows: &[(Bytes, Bytes)]) -> Result<Members, prost::DecodeError> {
        let decode = |value: &Bytes| MemberRow::decode(value.clone()).map(|row| (row.id, row));
        let rows = rows
            .iter()
            .map(|(_, value)| decode(value))
            .collect::<Result<_, _>>()?;
        Ok(Members { rows })
    }

    /// Creates the rows that a membership lacks and marks those that left it; the rows to store.
    pub(crate) fn on_membership(&mut self, membership: &Membership) -> Vec<RowChange> {
        let mut changes = Vec::new();
        for (id, node) in &membership.nodes {
            let row = self.rows.entry(*id).or_default();
            if row.member {
                continue;
            }
            row.id = *id;
            row.member = true;
            if row.peer_urls.is_empty() {
                row.peer_urls.clone_from(&node.peer_urls);
                row.token_or_time.clone_from(&node.birth);
            }
            changes.push(row.change());
        }
        for row in self.rows.values_mut() {
            // A birth stands before the membership that names it, so only a member can leave.
            if row.member && !row.removed && !membership.nodes.contains_key(&row.id) {
                row.removed = true;
                changes.push(row.change());
            }
        }
        changes
    }

    /// What is fixed about a member when it is added; its membership entry follows.
    pub(crate) fn on_birth(&mut self, birth: &MemberBirth) -> RowChange {
        let row = self.rows.entry(birth.id).or_default();
        row.id = birth.id;
        row.peer_urls.clone_from(&birth.peer_urls);
        row.token_or_time.clone_from(&birth.token_or_time);
        row.promote.clone_from(&birth.promote);
        row.change()
    }

    /// A member tells its name and client URLs. Ignored for an id that is unknown or gone.
    pub(crate) fn on_publish(&mut self, publish: &MemberPublish) -> Option<RowChange> {
        let row = self
            .rows
            .get_mut(&publish.member_id)
            .filter(|row| !row.removed)?;
        row.name.clone_from(&publish.name);
        row.client_urls.clone_from(&publish.client_urls);
        row.published = true;
        Some(row.change())
    }

    /// New peer URLs of a member: not another member's.
    pub(crate) fn on_update(
        &mut self,
        request: &MemberUpdateRequest,
        membership: &Membership,
    ) -> Result<RowChange, Error> {
        if !membership.nodes.contains_key(&request.id) {
            return Err(Error::MemberNotFound);
        }
        let new: BTreeSet<&String> = request.peer_urls.iter().collect();
        let others = self
            .rows
            .values()
            .filter(|row| row.id != request.id && !row.removed);
        if others
            .flat_map(|row| &row.peer_urls)
            .any(|url| new.contains(url))
        {
            return Err(Error::PeerURLExist);
        }
        let row = self.rows.entry(request.id).or_default();
        row.id = request.id;
        row.peer_urls = request.peer_urls.clone();
        Ok(row.change())
    }

    /// Current members by id.
    pub(crate) fn list(&self, membership: &Membership) -> Vec<Member> {
        let voters: BTreeSet<u64> = membership
            .configs
            .iter()
            .flat_map(|set| set.ids.iter().copied())
            .collect();
        let member = |(id, node): (&u64, &tenon_proto::log::Node)| {
            let row = self.rows.get(id).cloned().unwrap_or_default();
            let known = !row.peer_urls.is_empty();
            Member {
                id: MemberId(*id),
                name: row.name,
                peer_urls: if known {
                    row.peer_urls
                } else {
                    node.peer_urls.clone()
                },
                client_urls: row.client_urls,
                is_learner: !voters.contains(id),
                token_or_time: if known {
                    row.token_or_time
                } else {
                    node.birth.clone()
                },
                promote_auto: row.promote == "auto" || row.promote == "voter",
                added_as_voter: row.promote == "voter",
                published: row.published,
            }
        };
        membership.nodes.iter().map(member).collect()
    }

    /// Ids that were members once and are no more.
    pub(crate) fn removed(&self) -> Vec<MemberId> {
        self.rows
            .values()
            .filter(|row| row.removed)
            .map(|row| MemberId(row.id))
            .collect()
    }
}
