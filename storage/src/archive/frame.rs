//! Room storage, archives: header and frames, byte by byte. Pure. A disk format: see `docs/format.md`.

use super::ArchiveHeader;
use crate::engine::{RecordKey, Table};
use bytes::{Buf, BufMut, Bytes};
use tenon_proto::log::LogId;

const MAGIC: &[u8; 8] = b"TENONSNP";
/// Version of the format.
pub(super) const VERSION: u32 = 1;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD: usize = 16;
/// Longest payload of a frame: about a piece, and one record more.
pub(super) const PAYLOAD_MAX: usize = 1 << 30;
/// The length without the hash is a multiple of this.
pub(super) const ALIGN: u64 = 512;
/// Bytes of the hash at the end.
pub(super) const HASH_BYTES: usize = 32;
/// Bytes of a record in a frame, beside its value.
pub(super) const RECORD_HEAD: usize = 8 + 4 + 1 + 4;
/// Bytes of a row in a frame, beside its key and value.
pub(super) const ROW_HEAD: usize = 1 + 4 + 4;
/// Bytes of the end frame's payload before its zeros.
pub(super) const END_BYTES: usize = 16;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rows,
    Records,
    End,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Rows => 1,
            Kind::Records => 2,
            Kind::End => 3,
        }
    }

    fn from_number(number: u8) -> Option<Kind> {
        [Kind::Rows, Kind::Records, Kind::End]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// A table's number in the file.
fn table_number(table: Table) -> u8 {
    match table {
        Table::Meta => 0,
        Table::Leases => 1,
        Table::Members => 2,
        Table::Alarms => 3,
        Table::Auth => 4,
    }
}

/// The header's bytes.
pub(super) fn header(header: &ArchiveHeader) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.put_slice(MAGIC);
    out.put_u32_le(VERSION);
    out.put_u32_le(0);
    out.put_u64_le(header.id.term);
    out.put_u64_le(header.id.node_id);
    out.put_u64_le(header.id.index);
    out.put_i64_le(header.revision);
    out.put_i64_le(header.compacted + 1);
    out.resize(HEADER_BYTES - 4, 0);
    out.put_u32_le(crc32c::crc32c(&out));
    out
}

/// Reads the header; the error says what is wrong.
pub(super) fn read_header(mut bytes: &[u8]) -> Result<ArchiveHeader, String> {
    let whole = bytes;
    if !bytes.starts_with(MAGIC) {
        return Err("it is not a snapshot of tenon".into());
    }
    bytes.advance(MAGIC.len());
    let version = bytes.get_u32_le();
    if version != VERSION {
        return Err(format!(
            "it has format version {version}; this version reads {VERSION}"
        ));
    }
    let sum = crc32c::crc32c(&whole[..HEADER_BYTES - 4]);
    if (&whole[HEADER_BYTES - 4..HEADER_BYTES]).get_u32_le() != sum {
        return Err("its header is damaged".into());
    }
    bytes.advance(4);
    let id = LogId {
        term: bytes.get_u64_le(),
        node_id: bytes.get_u64_le(),
        index: bytes.get_u64_le(),
    };
    Ok(ArchiveHeader {
        id,
        revision: bytes.get_i64_le(),
        compacted: bytes.get_i64_le() - 1,
    })
}

/// Puts the head before `payload`, for which `FRAME_HEAD` bytes were left free in front.
pub(super) fn seal(frame: &mut [u8], kind: Kind, number: u32) {
    let payload = frame.len() - FRAME_HEAD;
    let length = u32::try_from(payload).expect("a frame is far below 4 GiB");
    let mut head = &mut frame[4..FRAME_HEAD];
    head.put_u32_le(length);
    head.put_u32_le(number);
    head.put_u8(kind.number());
    head.put_slice(&[0; 3]);
    let sum = crc32c::crc32c(&frame[4..]);
    frame[..4].copy_from_slice(&sum.to_le_bytes());
}

/// A frame's head.
pub(super) struct Head {
    pub(super) sum: u32,
    pub(super) length: usize,
    pub(super) number: u32,
    pub(super) kind: Kind,
}

/// Reads a frame's head; `None` when no frame begins so.
pub(super) fn read_head(mut bytes: &[u8]) -> Option<Head> {
    let sum = bytes.get_u32_le();
    let length = bytes.get_u32_le() as usize;
    let number = bytes.get_u32_le();
    let kind = Kind::from_number(bytes.get_u8())?;
    (length <= PAYLOAD_MAX).then_some(Head {
        sum,
        length,
        number,
        kind,
    })
}

/// Adds a row to a payload.
pub(super) fn put_row(out: &mut Vec<u8>, table: Table, key: &[u8], value: &[u8]) {
    out.put_u8(table_number(table));
    out.put_u32_le(u32::try_from(key.len()).expect("a short key"));
    out.put_u32_le(u32::try_from(value.len()).expect("a short value"));
    out.put_slice(key);
    out.put_slice(value);
}

/// Adds a record to a payload.
pub(super) fn put_record(out: &mut Vec<u8>, key: RecordKey, value: &[u8]) {
    out.put_i64_le(key.main);
    out.put_u32_le(key.sub);
    out.put_u8(u8::from(key.tombstone));
    out.put_u32_le(u32::try_from(value.len()).expect("a record is far below 4 GiB"));
    out.put_slice(value);
}

/// The rows of a payload; `None` when it is malformed.
pub(super) fn rows(mut payload: Bytes) -> Option<Vec<(Table, Bytes, Bytes)>> {
    let mut rows = Vec::new();
    while payload.has_remaining() {
        if payload.remaining() < ROW_HEAD {
            return None;
        }
        let number = payload.get_u8();
        let table = Table::ALL
            .into_iter()
            .find(|table| table_number(*table) == number)?;
        let key = payload.get_u32_le() as usize;
        let value = payload.get_u32_le() as usize;
        if payload.remaining() < key.checked_add(value)? {
            return None;
        }
        rows.push((table, payload.split_to(key), payload.split_to(value)));
    }
    Some(rows)
}

/// The records of a payload; `None` when it is malformed.
pub(super) fn records(mut payload: Bytes) -> Option<Vec<(RecordKey, Bytes)>> {
    let mut records = Vec::new();
    while payload.has_remaining() {
        if payload.remaining() < RECORD_HEAD {
            return None;
        }
        let key = RecordKey {
            main: payload.get_i64_le(),
            sub: payload.get_u32_le(),
            tombstone: payload.get_u8() == 1,
        };
        let length = payload.get_u32_le() as usize;
        if payload.remaining() < length {
            return None;
        }
        records.push((key, payload.split_to(length)));
    }
    Some(records)
}
