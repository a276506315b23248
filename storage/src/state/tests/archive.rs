//! Room storage, state: archives: written from a view, read back, damaged.

use super::install::sums;
use super::{DIR, Life, delete, put, small_on};
use crate::archive::{
    ArchiveError, ArchiveFile, ArchiveReader, ArchiveWriter, HashCheck, Piece, load,
};
use crate::engine::{Engine, RecordKey, Table, View, memory};
use crate::state::EngineKind;
use crate::wal::tests::disk::FakeDisk;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use tenon_env::{Disk, OpenMode};
use tenon_proto::etcdserverpb::{
    DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse, PutResponse,
};

const FILE: &str = "/data/archive";

fn bytes_of(life: &Life) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(life.store.snapshot().expect("something is drained"));
    let length = loop {
        if let Some(length) = writer.measure().expect("the engine works") {
            break length;
        }
    };
    let mut bytes = Vec::new();
    while let Some(piece) = writer.next_piece().expect("the engine works") {
        bytes.extend_from_slice(&piece);
        assert_eq!(writer.written(), bytes.len() as u64);
    }
    assert_eq!(bytes.len() as u64, length, "the length was known before");
    bytes
}

fn on_disk(bytes: &[u8]) -> FakeDisk {
    let disk = FakeDisk::default();
    disk.create_dir_all(Path::new("/data")).expect("a folder");
    let file = disk
        .open(Path::new(FILE), OpenMode::Create)
        .expect("a file");
    file.write_all_at(bytes, 0).expect("written");
    disk
}

fn read(bytes: &[u8], check: HashCheck) -> Result<Vec<Piece>, ArchiveError> {
    let disk = on_disk(bytes);
    let mut archive = ArchiveReader::open(&disk, Path::new(FILE), check)?;
    let mut pieces = Vec::new();
    while let Some(piece) = archive.next_piece()? {
        pieces.push(piece);
    }
    assert!(archive.next_piece()?.is_none(), "the end stays");
    Ok(pieces)
}

type Rows = Vec<(Bytes, Bytes)>;

fn content(view: &Arc<dyn View>) -> (Vec<(RecordKey, Bytes)>, [Rows; Table::ALL.len()]) {
    let mut records = Vec::new();
    view.scan((0, 0), (i64::MAX, 0), &mut |key, value| {
        records.push((key, Bytes::copy_from_slice(value)));
        std::ops::ControlFlow::Continue(())
    })
    .expect("a scan");
    let rows = Table::ALL.map(|table| view.rows(table).expect("rows"));
    (records, rows)
}

#[test]
fn an_archive_holds_all_of_the_state() {
    let life = Life::new();
    for i in 0..9 {
        life.put(&format!("large{i}"), &"x".repeat(150 << 10));
    }
    for id in 100..16_000 {
        let _: LeaseGrantResponse = life.must(LeaseGrantRequest { id, ttl: 3600 });
    }
    let _: DeleteRangeResponse = life.must(delete("large3", ""));
    life.drain();
    let bytes = bytes_of(&life);
    assert!(bytes.len() > 1_500_000);
    assert_eq!(bytes.len() % 512, 32, "etcd's tools look at that");
    let (content_bytes, hash) = bytes.split_at(bytes.len() - 32);
    assert_eq!(hash, &Sha256::digest(content_bytes)[..]);
    let pieces = read(&bytes, HashCheck::Verify).expect("it is whole");
    let rows = pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::Rows(_)));
    assert!(rows.count() > 1, "many rows come in several pieces");
    assert_eq!(read(content_bytes, HashCheck::Skip).expect("whole"), pieces);
    let disk = on_disk(&bytes);
    let mut archive =
        ArchiveReader::open(&disk, Path::new(FILE), HashCheck::Verify).expect("it opens");
    assert_eq!(archive.header().id, life.store.applied().expect("applied"));
    assert_eq!(archive.header().revision, life.store.revision().get());
    let engine = memory::engine();
    load(&mut archive, &engine).expect("it loads");
    let view = engine.view().expect("a view");
    let from = life.store.inner.state.read().view.clone();
    assert_eq!(content(&view), content(&from));
}

#[test]
fn damage_and_cuts_are_seen() {
    let life = Life::new();
    for i in 0..20 {
        life.put(&format!("k{i}"), "v");
    }
    life.drain();
    let bytes = bytes_of(&life);
    read(&bytes, HashCheck::Verify).expect("it is whole");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = read(&damaged, HashCheck::Verify).expect_err("damage is seen");
        if at >= bytes.len() - 32 {
            assert!(matches!(error, ArchiveError::WrongHash(..)), "byte {at}");
            read(&damaged, HashCheck::Skip).expect("but for the hash it is whole");
        } else {
            read(&damaged, HashCheck::Skip).expect_err("every part has its sum");
        }
    }
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length], HashCheck::Verify).is_err());
        if length < bytes.len() - 32 {
            let cut = read(&bytes[..length], HashCheck::Skip);
            assert!(cut.is_err(), "cut at {length}");
        }
    }
    let none = read(&bytes[..bytes.len() - 32], HashCheck::Verify);
    assert!(matches!(none, Err(ArchiveError::NoHash)));
    let mut longer = bytes.clone();
    longer.resize(bytes.len() + 512, 0);
    assert!(read(&longer, HashCheck::Verify).is_err());
}

#[test]
fn every_engine_gives_the_same_archive() {
    let fill = |life: &Life| {
        for i in 0..30 {
            let _: PutResponse = life.must(put(&format!("k{i}"), "v"));
        }
        life.drain();
    };
    let redb = Life::new();
    let memory = Life::on(FakeDisk::default(), small_on(EngineKind::Memory));
    fill(&redb);
    fill(&memory);
    assert_eq!(bytes_of(&redb), bytes_of(&memory));
    assert_eq!(sums(&redb.store), sums(&memory.store));
    // The checkpoint is one.
    let file = Path::new(DIR).join("snap/checkpoint");
    assert_eq!(memory.disk.bytes(&file), bytes_of(&memory));
    let mut again = ArchiveFile::create(
        &memory.disk,
        Path::new("/again"),
        memory.store.snapshot().expect("drained"),
    )
    .expect("created");
    again.write_all().expect("written");
    assert_eq!(again.bytes(), memory.disk.bytes(&file).len() as u64);
}
