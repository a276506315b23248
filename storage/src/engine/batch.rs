//! Room storage, engines: what one commit carries. Plain data.

use bytes::Bytes;

/// Position of a revision record: etcd's 8-byte big-endian main, `_`, 8-byte big-endian sub, and `t`
/// when the record is a tombstone. `(main, sub)` is unique, so the mark does not influence the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    /// Main revision, at least 1.
    pub main: i64,
    /// Position among the changes of that revision, from 0.
    pub sub: u32,
    /// Whether the record says "deleted".
    pub tombstone: bool,
}

/// A [`RecordKey`] as etcd writes it; dereferences to its 17 or 18 bytes.
#[derive(Clone, Copy)]
pub struct RecordKeyBytes {
    bytes: [u8; 18],
    len: usize,
}

impl std::ops::Deref for RecordKeyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl RecordKey {
    /// The bytes etcd stores.
    pub fn to_bytes(self) -> RecordKeyBytes {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&self.main.to_be_bytes());
        bytes[8] = b'_';
        bytes[9..17].copy_from_slice(&u64::from(self.sub).to_be_bytes());
        bytes[17] = b't';
        RecordKeyBytes {
            bytes,
            len: if self.tombstone { 18 } else { 17 },
        }
    }

    /// Reads what [`RecordKey::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<RecordKey> {
        let tombstone = match bytes {
            [head @ .., b't'] if head.len() == 17 => true,
            _ if bytes.len() == 17 => false,
            _ => return None,
        };
        let main = i64::from_be_bytes(bytes[..8].try_into().ok()?);
        let sub = u64::from_be_bytes(bytes[9..17].try_into().ok()?);
        if bytes[8] != b'_' {
            return None;
        }
        Some(RecordKey {
            main,
            sub: u32::try_from(sub).ok()?,
            tombstone,
        })
    }

    /// Main and sub revision, which order records.
    pub fn position(self) -> (i64, u32) {
        (self.main, self.sub)
    }
}

/// A small sorted table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Named values of the store itself: format, applied log id, revision, compaction, membership.
    Meta,
    /// Leases by id.
    Leases,
    /// Members by id.
    Members,
    /// Raised alarms by member and type.
    Alarms,
    /// Users, roles and settings of authentication.
    Auth,
}

impl Table {
    /// Every table, in the order they are made.
    pub const ALL: [Table; 5] = [
        Table::Meta,
        Table::Leases,
        Table::Members,
        Table::Alarms,
        Table::Auth,
    ];

    /// Its name on disk.
    pub fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Leases => "lease",
            Table::Members => "members",
            Table::Alarms => "alarm",
            Table::Auth => "auth",
        }
    }
}

/// A row set or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// Table of the row.
    pub table: Table,
    /// Its key.
    pub key: Bytes,
    /// The new value; `None` removes the row.
    pub value: Option<Bytes>,
}

/// Everything one commit makes durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New records, ascending, above every record stored before.
    pub records: Vec<(RecordKey, Bytes)>,
    /// Records that compaction passed. Removing an absent record is no error (a repeated batch).
    pub removed: Vec<RecordKey>,
    /// Rows to set or remove, applied in order: a later change of a row wins.
    pub rows: Vec<RowChange>,
}

impl Batch {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.removed.is_empty() && self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_keys_are_etcds_bytes() {
        let put = RecordKey {
            main: 258,
            sub: 3,
            tombstone: false,
        };
        let want = [0, 0, 0, 0, 0, 0, 1, 2, b'_', 0, 0, 0, 0, 0, 0, 0, 3];
        assert_eq!(&*put.to_bytes(), &want);
        let gone = RecordKey {
            tombstone: true,
            ..put
        };
        assert_eq!(gone.to_bytes()[17], b't');
        for key in [put, gone] {
            assert_eq!(RecordKey::from_bytes(&key.to_bytes()), Some(key));
        }
        assert_eq!(RecordKey::from_bytes(b"short"), None);
        let mut odd = want;
        odd[8] = b'-';
        assert_eq!(RecordKey::from_bytes(&odd), None);
    }
}
