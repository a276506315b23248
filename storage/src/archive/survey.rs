//! Room storage, archives: what one holds, told after reading all of it.

use super::{ArchiveError, ArchiveReader, Piece};
use crate::mvcc::record::decode_head;
use std::collections::BTreeSet;

/// What an archive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveSurvey {
    /// The first four bytes of the SHA-256 of its content.
    pub hash: u32,
    /// The store's revision.
    pub revision: i64,
    /// Live keys.
    pub keys: u64,
    /// Length of the file, bytes.
    pub bytes: u64,
}

/// Reads all of it. Blocking; keeps every live key in memory meanwhile.
///
/// # Errors
/// As [`ArchiveReader::next_piece`].
pub fn survey(archive: &mut ArchiveReader) -> Result<ArchiveSurvey, ArchiveError> {
    let mut live: BTreeSet<Box<[u8]>> = BTreeSet::new();
    while let Some(piece) = archive.next_piece()? {
        let Piece::Records(records) = piece else {
            continue;
        };
        for (key, value) in records {
            let head = decode_head(&value).ok_or_else(|| {
                ArchiveError::Damaged(format!("record {}/{} is damaged", key.main, key.sub))
            })?;
            if key.tombstone {
                live.remove(head.key);
            } else {
                live.insert(head.key.into());
            }
        }
    }
    let sum = archive.sum().expect("all of it was read");
    Ok(ArchiveSurvey {
        hash: u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]),
        revision: archive.header().revision,
        keys: live.len() as u64,
        bytes: archive.length(),
    })
}
