//! Room storage, MVCC: the bytes of a record's value, as etcd writes them: `mvccpb.KeyValue`, fields by
//! number, defaults left out; a tombstone has the key only. Pure functions.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_varint, encoded_len_varint};
use tenon_proto::mvccpb::KeyValue;

/// Room taken from the allocator at once. Records of one arena are freed together, when the last of
/// them is let go; arenas follow the order of revisions, as letting go does.
const ARENA_BYTES: usize = 64 << 10;

/// The fields of a pair to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Key, not empty.
    pub key: &'a [u8],
    /// Main revision of the creation.
    pub created: i64,
    /// Main revision of this put.
    pub modified: i64,
    /// Puts since the creation.
    pub version: i64,
    /// Value.
    pub value: &'a [u8],
    /// Lease, 0 = none.
    pub lease: i64,
}

/// Writes record values one after another into shared arenas.
#[derive(Debug, Default)]
pub struct Writer {
    arena: BytesMut,
}

impl Writer {
    /// The value of a put.
    pub fn put(&mut self, pair: &Pair<'_>) -> Bytes {
        let numbers = [(2, pair.created), (3, pair.modified), (4, pair.version)];
        let len = bytes_len(pair.key)
            + numbers.iter().map(|(_, n)| number_len(*n)).sum::<usize>()
            + bytes_len(pair.value)
            + number_len(pair.lease);
        self.reserve(len);
        put_bytes(1, pair.key, &mut self.arena);
        for (field, number) in numbers {
            put_number(field, number, &mut self.arena);
        }
        put_bytes(5, pair.value, &mut self.arena);
        put_number(6, pair.lease, &mut self.arena);
        debug_assert_eq!(self.arena.len(), len, "the length was computed beforehand");
        self.arena.split().freeze()
    }

    /// The value of a deletion.
    pub fn tombstone(&mut self, key: &[u8]) -> Bytes {
        self.reserve(bytes_len(key));
        put_bytes(1, key, &mut self.arena);
        self.arena.split().freeze()
    }

    fn reserve(&mut self, len: usize) {
        if self.arena.capacity() < len {
            self.arena = BytesMut::with_capacity(len.max(ARENA_BYTES));
        }
    }
}

// All field numbers are below 16, so a tag takes one byte.
fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    1 + encoded_len_varint(bytes.len() as u64) + bytes.len()
}

fn number_len(number: i64) -> usize {
    if number == 0 {
        return 0;
    }
    1 + encoded_len_varint(number as u64)
}

fn put_bytes(field: u8, bytes: &[u8], out: &mut BytesMut) {
    if !bytes.is_empty() {
        out.put_u8(field << 3 | WireType::LengthDelimited as u8);
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    }
}

fn put_number(field: u8, number: i64, out: &mut BytesMut) {
    if number != 0 {
        out.put_u8(field << 3 | WireType::Varint as u8);
        encode_varint(number as u64, out);
    }
}

/// The pair of a record; key and value share the record's memory. `None` when it is damaged.
pub fn decode(record: &Bytes) -> Option<KeyValue> {
    KeyValue::decode(record.clone()).ok()
}

/// What the index needs of a record, without its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Main revision of the creation; 0 in a tombstone.
    pub created: i64,
    /// Main revision of the put; 0 in a tombstone.
    pub modified: i64,
    /// Version; 0 in a tombstone.
    pub version: i64,
    /// Lease; 0 = none.
    pub lease: i64,
}

/// Reads the head of a record; the value is stepped over. `None` when it is damaged.
pub fn decode_head(record: &[u8]) -> Option<Head<'_>> {
    let mut rest = record;
    let mut head = Head::default();
    while !rest.is_empty() {
        let (field, wire) = decode_key(&mut rest).ok()?;
        let number = decode_varint(&mut rest).ok()?;
        match (field, wire) {
            (2, WireType::Varint) => head.created = number as i64,
            (3, WireType::Varint) => head.modified = number as i64,
            (4, WireType::Varint) => head.version = number as i64,
            (6, WireType::Varint) => head.lease = number as i64,
            (1 | 5, WireType::LengthDelimited) => {
                let (bytes, after) = rest.split_at_checked(usize::try_from(number).ok()?)?;
                rest = after;
                if field == 1 {
                    head.key = bytes;
                }
            }
            _ => return None,
        }
    }
    (!head.key.is_empty()).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_schema() {
        let mut writer = Writer::default();
        for (value, lease) in [(&b"v"[..], 0), (b"", -7), (&[9; 300], 1 << 40)] {
            let pair = Pair {
                key: b"key",
                created: 5,
                modified: 700,
                version: 3,
                value,
                lease,
            };
            let record = writer.put(&pair);
            let want = KeyValue {
                key: Bytes::from_static(b"key"),
                create_revision: 5,
                mod_revision: 700,
                version: 3,
                value: Bytes::copy_from_slice(value),
                lease,
            };
            assert_eq!(record, want.encode_to_vec());
            assert_eq!(decode(&record), Some(want));
            let head = Head {
                key: b"key",
                created: 5,
                modified: 700,
                version: 3,
                lease,
            };
            assert_eq!(decode_head(&record), Some(head));
        }
        let gone = writer.tombstone(b"key");
        assert_eq!(&gone[..], b"\x0a\x03key");
        assert_eq!(
            decode_head(&gone),
            Some(Head {
                key: b"key",
                ..Head::default()
            })
        );
    }

    #[test]
    fn arenas_are_shared_and_large_records_have_their_own() {
        let mut writer = Writer::default();
        let pair = |value| Pair {
            key: b"k",
            created: 2,
            modified: 2,
            version: 1,
            value,
            lease: 0,
        };
        let small = [writer.put(&pair(b"a")), writer.put(&pair(b"b"))];
        assert_eq!(
            small[0].as_ptr() as usize + small[0].len(),
            small[1].as_ptr() as usize
        );
        let large = vec![1; 3 * ARENA_BYTES];
        assert_eq!(
            decode(&writer.put(&pair(&large))).map(|kv| kv.value.len()),
            Some(large.len())
        );
    }

    #[test]
    fn damage_is_told() {
        for bytes in [
            &b""[..],
            b"\x0a\x05key",
            b"\x10",
            b"\x10\x05",
            b"\x3a\x01a",
            b"\xff",
        ] {
            assert_eq!(decode_head(bytes), None, "{bytes:?}");
        }
    }
}
