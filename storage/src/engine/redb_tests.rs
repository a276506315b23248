//! Room storage, engines: redb's file, changed behind its back.

use super::*;
use crate::wal::tests::disk::FakeDisk;
use std::collections::BTreeMap;

const FILE: &str = "/e/db";
const RECORDS_IN_FILE: u32 = 400;

fn key(sub: u32) -> RecordKey {
    RecordKey {
        main: 7,
        sub,
        tombstone: false,
    }
}

/// A file with records, closed in order.
fn file_of_records() -> (FakeDisk, Vec<u8>) {
    let disk = FakeDisk::default();
    disk.create_dir_all(Path::new("/e")).expect("a folder");
    let engine = RedbEngine::open(&disk, Path::new(FILE), 1 << 20).expect("it opens");
    for half in 0..2 {
        let records = (0..RECORDS_IN_FILE).filter(|sub| sub % 2 == half);
        let value = |sub: u32| Bytes::from(format!("value {sub} ").repeat(12));
        let batch = Batch {
            records: records.map(|sub| (key(sub), value(sub))).collect(),
            ..Batch::default()
        };
        engine.commit(&batch).expect("a commit");
    }
    engine.close().expect("closed");
    let file = disk
        .open(Path::new(FILE), OpenMode::ReadWrite)
        .expect("a file");
    let mut bytes = vec![0; usize::try_from(file.len().expect("len")).expect("small")];
    file.read_exact_at(&mut bytes, 0).expect("read");
    (disk, bytes)
}

/// Opens a file of these bytes; its records, or why it is refused.
fn opened(disk: &FakeDisk, bytes: &[u8]) -> Result<BTreeMap<u32, Bytes>, String> {
    let file = disk
        .open(Path::new(FILE), OpenMode::ReadWrite)
        .expect("a file");
    file.set_len(bytes.len() as u64).expect("set");
    file.write_all_at(bytes, 0).expect("written");
    let engine = match RedbEngine::open(disk, Path::new(FILE), 1 << 20) {
        Ok(engine) => engine,
        Err(error) => return Err(error.to_string()),
    };
    let mut found = BTreeMap::new();
    let view = engine.view().map_err(|error| error.to_string())?;
    let scanned = view.scan((0, 0), (i64::MAX, 0), &mut |key, value| {
        found.insert(key.sub, Bytes::copy_from_slice(value));
        ControlFlow::Continue(())
    });
    scanned.map_err(|error| error.to_string())?;
    Ok(found)
}

#[test]
fn a_flipped_bit_is_refused_or_was_in_no_record() {
    let (disk, good) = file_of_records();
    let expected = opened(&disk, &good).expect("the file is whole");
    assert_eq!(expected.len(), RECORDS_IN_FILE as usize);
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    let mut refused = 0;
    for round in 0..120 {
        let at = used[round * 7919 % used.len()];
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (round % 8);
        match opened(&disk, &bytes) {
            Ok(found) => assert!(found == expected, "byte {at} was served changed"),
            Err(text) => {
                assert!(text.contains(FILE), "names the file: {text}");
                refused += 1;
            }
        }
    }
    assert!(refused > 30, "{refused} of 120 flips were seen");
}

#[test]
fn a_file_cut_short_is_refused_by_name() {
    let (disk, good) = file_of_records();
    let whole = good.len();
    for length in [
        0,
        1,
        100,
        320,
        4095,
        4096,
        whole / 2,
        whole - 4096,
        whole - 1,
    ] {
        let text = opened(&disk, &good[..length]).expect_err("cut short");
        assert!(text.contains(FILE), "{length}: names the file: {text}");
    }
}
