//! Room storage, engines: redb's backend on a disk that refuses.

use super::*;
use crate::wal::tests::disk::{FakeDisk, StepKind};
use ::redb::StorageBackend;
use std::path::Path;
use tenon_env::{Disk, OpenMode};

fn backend(disk: &FakeDisk) -> DiskBackend {
    disk.create_dir_all(Path::new("/e")).expect("a folder");
    let file = disk
        .open(Path::new("/e/db"), OpenMode::Create)
        .expect("a file");
    DiskBackend::new(file).expect("a backend")
}

fn read(backend: &DiskBackend, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xee; len];
    backend.read(offset, &mut out).expect("a read");
    out
}

#[test]
fn refused_writes_are_held_back_in_order_and_seen_by_reads() {
    let disk = FakeDisk::default();
    let backend = backend(&disk);
    backend.set_len(8).expect("set");
    backend.write(0, b"abcdefgh").expect("written");
    backend.sync_data().expect("synced");
    disk.fail(Some((StepKind::Write, io::ErrorKind::StorageFull)));
    backend.write(2, b"XY").expect("held back");
    backend.sync_data().expect("held back");
    backend.write(3, b"ZZ").expect("held back");
    backend.set_len(12).expect("held back");
    assert_eq!(
        backend.held_back().expect("it is").kind(),
        io::ErrorKind::StorageFull
    );
    assert_eq!((backend.length(), backend.len().expect("len")), (12, 12));
    assert_eq!(read(&backend, 0, 12), b"abXZZfgh\0\0\0\0");
    assert_eq!(read(&backend, 4, 6), b"Zfgh\0\0");
    assert_eq!(
        disk.bytes(Path::new("/e/db")),
        b"abcdefgh",
        "the file stands still"
    );
    assert!(backend.settle().expect("no sync failed").is_err());
    disk.fail(None);
    backend
        .settle()
        .expect("no sync failed")
        .expect("the disk takes it");
    assert!(backend.held_back().is_none());
    assert_eq!(disk.bytes(Path::new("/e/db")), b"abXZZfgh\0\0\0\0");
    assert_eq!(read(&backend, 0, 4), b"abXZ");
}

#[test]
fn shrinking_while_held_back_reads_zeros_beyond() {
    let disk = FakeDisk::default();
    let backend = backend(&disk);
    backend.write(0, b"abcdefgh").expect("written");
    disk.fail(Some((StepKind::Write, io::ErrorKind::Other)));
    backend.write(7, b"!").expect("held back");
    backend.set_len(4).expect("held back");
    backend.set_len(8).expect("held back");
    assert_eq!(read(&backend, 2, 6), b"cd\0\0\0\0");
}

#[test]
fn a_failed_sync_is_final() {
    let disk = FakeDisk::default();
    let backend = backend(&disk);
    backend.write(0, b"a").expect("written");
    disk.fail(Some((StepKind::Sync, io::ErrorKind::Other)));
    assert!(backend.sync_data().is_err());
    disk.fail(Some((StepKind::Write, io::ErrorKind::Other)));
    backend.write(0, b"b").expect("held back");
    backend.sync_data().expect("held back");
    disk.fail(Some((StepKind::Sync, io::ErrorKind::Other)));
    assert!(
        backend.settle().is_err(),
        "a sync that fails while settling is final too"
    );
}
