//! Room storage, state: rows of the small tables that this part owns. Their field numbers are a disk
//! format: never reuse or renumber one.

use crate::engine::{RowChange, Table};
use bytes::Bytes;
use prost::Message;
use tenon_proto::log::{LogId, Membership};

/// Version of the engine's content. Another version is refused at open.
pub(crate) const FORMAT: u8 = 1;

const FORMAT_KEY: &[u8] = b"format";
const POSITION_KEY: &[u8] = b"position";
const MEMBERSHIP_KEY: &[u8] = b"membership";
const RECEIVED_KEY: &[u8] = b"received";
const CLUSTER_VERSION_KEY: &[u8] = b"cluster_version";

/// Where the engine's content stands; written with every batch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PositionRow {
    /// The newest entry whose effect is in the engine.
    #[prost(message, optional, tag = "1")]
    pub applied: Option<LogId>,
    /// The store's revision after it.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// The newest compaction's revision plus one; 0 = never.
    #[prost(int64, tag = "3")]
    pub compacted_next: i64,
    /// The newest compaction whose records are all removed, plus one; 0 = none.
    #[prost(int64, tag = "4")]
    pub swept_next: i64,
}

/// The newest membership.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MembershipRow {
    /// The entry that brought it.
    #[prost(message, optional, tag = "1")]
    pub id: Option<LogId>,
    /// The membership.
    #[prost(message, optional, tag = "2")]
    pub membership: Option<Membership>,
}

/// What is known of a member beside its being in the membership.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberRow {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// What its id was hashed with.
    #[prost(string, tag = "5")]
    pub token_or_time: String,
    /// Who promotes it while it is a learner: empty = an operator, `auto` = the leader.
    #[prost(string, tag = "6")]
    pub promote: String,
    /// It left the membership; its id never returns.
    #[prost(bool, tag = "7")]
    pub removed: bool,
    /// It published itself, so it has run.
    #[prost(bool, tag = "8")]
    pub published: bool,
    /// It has been in a membership (its birth is applied before that).
    #[prost(bool, tag = "9")]
    pub member: bool,
}

/// A row of [`Table::Meta`].
pub(crate) fn meta(key: &'static [u8], value: impl Into<Bytes>) -> RowChange {
    RowChange {
        table: Table::Meta,
        key: Bytes::from_static(key),
        value: Some(value.into()),
    }
}

/// The row that names the format.
pub(crate) fn format() -> RowChange {
    meta(FORMAT_KEY, vec![FORMAT])
}

/// The row of the engine's position.
pub(crate) fn position(row: &PositionRow) -> RowChange {
    meta(POSITION_KEY, row.encode_to_vec())
}

/// The row of the membership.
pub(crate) fn membership(id: &LogId, membership: &Membership) -> RowChange {
    let row = MembershipRow {
        id: Some(*id),
        membership: Some(membership.clone()),
    };
    meta(MEMBERSHIP_KEY, row.encode_to_vec())
}

/// The row that says that the engine began as a snapshot received at `id`.
pub(crate) fn received(id: &LogId) -> RowChange {
    meta(RECEIVED_KEY, id.encode_to_vec())
}

/// The row of the cluster's version.
pub(crate) fn cluster_version(version: &str) -> RowChange {
    meta(CLUSTER_VERSION_KEY, version.as_bytes().to_vec())
}

impl MemberRow {
    /// The change that stores this row.
    pub(crate) fn change(&self) -> RowChange {
        RowChange {
            table: Table::Members,
            key: Bytes::copy_from_slice(&self.id.to_be_bytes()),
            value: Some(self.encode_to_vec().into()),
        }
    }
}

/// Rows of [`Table::Meta`] as read at open.
#[derive(Debug, Default)]
pub(crate) struct Meta {
    pub format: Option<u8>,
    pub position: PositionRow,
    pub membership: MembershipRow,
    pub received: Option<LogId>,
    pub cluster_version: String,
}

impl Meta {
    /// Reads the table; the error names the row that is damaged.
    pub(crate) fn read(rows: &[(Bytes, Bytes)]) -> Result<Meta, &'static str> {
        let mut meta = Meta::default();
        for (key, value) in rows {
            match &**key {
                FORMAT_KEY => meta.format = value.first().copied(),
                POSITION_KEY => {
                    meta.position = PositionRow::decode(value.clone()).map_err(|_| "position")?;
                }
                MEMBERSHIP_KEY => {
                    let row = MembershipRow::decode(value.clone());
                    meta.membership = row.map_err(|_| "membership")?;
                }
                RECEIVED_KEY => {
                    let id = LogId::decode(value.clone());
                    meta.received = Some(id.map_err(|_| "received")?);
                }
                CLUSTER_VERSION_KEY => {
                    let text = String::from_utf8(value.to_vec());
                    meta.cluster_version = text.map_err(|_| "cluster_version")?;
                }
                _ => {}
            }
        }
        Ok(meta)
    }
}
