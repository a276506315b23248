//! Room `storage`, WAL tests: the bytes on disk, which `docs/format.md` gives. A test here that fails is a new
//! format version, not a new expectation.

use crate::wal::frame::{
    self, HEAD_LEN, Head, HeaderFault, Kind, START_FRAME_LEN, SegmentHeader, Start, State, VERSION,
};
use proptest::prelude::*;
use tenon_proto::log::{LogId, Vote};

fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes
        .chunks(8)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    words.join(" ")
}

const HEADER: SegmentHeader = SegmentHeader {
    seq: 0x0102_0304,
    salt: 0x1122_3344_5566_7788,
};

fn id(term: u64, node_id: u64, index: u64) -> LogId {
    LogId {
        term,
        node_id,
        index,
    }
}

#[test]
fn a_header_is_these_bytes() {
    let bytes = HEADER.encode();
    let want = "54454e4f4e57414c 0100000000000000 0403020100000000 8877665544332211 \
                0000000000000000 0000000000000000 0000000000000000 00000000";
    assert_eq!(hex(&bytes[..60]), want);
    assert_eq!(bytes[60..], crc32c::crc32c(&bytes[..60]).to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
    for at in 0..64 {
        let mut changed = bytes;
        changed[at] ^= 4;
        assert_eq!(
            SegmentHeader::decode(&changed),
            Err(HeaderFault::NotASegment)
        );
    }
    assert_eq!(VERSION, 1);
}

#[test]
fn a_frame_is_these_bytes() {
    let mut bytes = Vec::new();
    let binding = HEADER.binding();
    frame::encode(
        &mut bytes,
        binding,
        Kind::Entry,
        id(5, 6, 7),
        0x40,
        b"tenonlog!",
    );
    let want = "09000000 02040302 40000000 0500000000000000 0600000000000000 0700000000000000 \
                74656e6f6e6c6f67 2100000000000000";
    assert_eq!(hex(&bytes[4..]).replace(' ', ""), want.replace(' ', ""));
    let mut covered = HEADER.seq.to_le_bytes().to_vec();
    covered.extend(HEADER.salt.to_le_bytes());
    covered.extend(&bytes[4..]);
    assert_eq!(bytes[..4], crc32c::crc32c(&covered).to_le_bytes());
}

#[test]
fn a_start_frame_is_these_bytes() {
    let start = Start {
        previous_end: 0x999,
        state: State {
            vote: Some(Vote {
                term: 1,
                node_id: 2,
                committed: true,
            }),
            committed: Some(id(3, 4, 5)),
            purged: None,
            last: Some(id(6, 7, 8)),
            floor: 9,
        },
    };
    let bytes = start.encode();
    let words = [0x999, 9, 0b10111, 1, 2, 3, 4, 5, 0, 0, 0, 6, 7, 8u64];
    let want: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(bytes[..], want);
    assert_eq!(START_FRAME_LEN, HEAD_LEN + bytes.len());
}

#[test]
fn a_frame_is_good_in_its_own_segment_and_life_only() {
    let mut bytes = Vec::new();
    frame::encode(
        &mut bytes,
        HEADER.binding(),
        Kind::Vote,
        id(1, 2, 1),
        64,
        &[],
    );
    assert!(Head::parse(&bytes, HEADER.binding()).is_some());
    assert!(frame::verify(&bytes, HEADER.binding()));
    let other_life = SegmentHeader { salt: 1, ..HEADER };
    assert!(!frame::verify(&bytes, other_life.binding()));
    let other_segment = SegmentHeader {
        seq: HEADER.seq + 1,
        ..HEADER
    };
    assert!(Head::parse(&bytes, other_segment.binding()).is_none());
    assert!(!frame::verify(&bytes, other_segment.binding()));
}

fn log_id() -> impl Strategy<Value = LogId> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(term, node, index)| id(term, node, index))
}

fn start() -> impl Strategy<Value = Start> {
    let vote =
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(term, node_id, committed)| Vote {
            term,
            node_id,
            committed,
        });
    let ids = prop::collection::vec(prop::option::of(log_id()), 3);
    (any::<u64>(), any::<u64>(), prop::option::of(vote), ids).prop_map(
        |(previous_end, floor, vote, ids)| Start {
            previous_end,
            state: State {
                vote,
                committed: ids[0],
                purged: ids[1],
                last: ids[2],
                floor,
            },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(4),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_start_frame_comes_back(start in start()) {
        prop_assert_eq!(Start::decode(&start.encode()), Some(start));
    }

    #[test]
    fn a_frame_comes_back_and_a_changed_bit_does_not(
        id in log_id(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        durable in any::<u32>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut bytes = b"before".to_vec();
        frame::encode(&mut bytes, HEADER.binding(), Kind::Entry, id, durable, &payload);
        let frame = &mut bytes[6..];
        let head = Head::parse(frame, HEADER.binding()).unwrap();
        prop_assert_eq!((head.kind, head.id, head.durable), (Kind::Entry, id, durable));
        prop_assert_eq!(head.frame_len(), frame.len());
        prop_assert_eq!(&frame[HEAD_LEN..HEAD_LEN + head.len], &payload[..]);
        prop_assert!(frame::verify(frame, HEADER.binding()));
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!frame::verify(frame, HEADER.binding()));
    }
}
