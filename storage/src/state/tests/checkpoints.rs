//! Room storage, state: checkpoints as a task: when they come, what they allow, what a refusing disk and
//! a wrong engine do.

use super::{DIR, Life, put, small, small_on};
use crate::engine::EngineError;
use crate::state::{EngineKind, OpenError, Store, StoreOptions};
use crate::wal::tests::disk::{FakeDisk, Left, StepKind};
use crate::wal::tests::world::node;
use std::io;
use std::path::Path;
use tenon_proto::ids::{LogIndex, Revision};

fn options(checkpoint_bytes: u64) -> StoreOptions {
    StoreOptions {
        checkpoint_bytes,
        ..small_on(EngineKind::Memory)
    }
}

fn settle(life: &Life) {
    for _ in 0..200 {
        life.hands.run();
        life.hands.advance();
    }
    life.hands.run();
}

/// Writes and tells the store that all of it is flushed.
fn write(life: &Life, puts: usize, bytes: usize) {
    for i in 0..puts {
        life.put(&format!("k{i}"), &"v".repeat(bytes));
    }
    let applied = life.store.applied().expect("applied");
    life.store.set_wal_flushed(LogIndex(applied.index));
    settle(life);
}

#[test]
fn a_checkpoint_comes_when_enough_was_drained() {
    let life = Life::on(FakeDisk::default(), options(10_000));
    life.store.start(&life.env);
    write(&life, 5, 1_000);
    assert_eq!(life.store.drained(), LogIndex(5));
    assert_eq!(life.store.engine_durable(), LogIndex(0), "not yet");
    write(&life, 5, 1_000);
    assert_eq!(life.store.engine_durable(), LogIndex(10));
    write(&life, 9, 1_000);
    assert_eq!(
        life.store.engine_durable(),
        LogIndex(10),
        "not so soon again"
    );
    assert_eq!(life.store.revision(), Revision(20));
    let disk = life.disk.clone();
    life.hands.kill();
    disk.restart(Left::Nothing, 1);
    let again = Life::on(disk, options(10_000));
    assert_eq!(again.store.applied().map(|id| id.index), Some(10));
    assert_eq!(again.store.engine_durable(), LogIndex(10));
    assert_eq!(again.store.revision(), Revision(11));
}

#[test]
fn before_the_first_checkpoint_a_crash_leaves_nothing_but_the_log() {
    let life = Life::on(FakeDisk::default(), options(1 << 20));
    life.store.start(&life.env);
    write(&life, 5, 1_000);
    let disk = life.disk.clone();
    life.hands.kill();
    disk.restart(Left::Nothing, 1);
    // No engine has left anything here yet, so any may go on with the log.
    let again = Life::on(disk, small());
    assert_eq!(again.store.applied(), None);
}

#[test]
fn a_full_disk_only_delays_a_checkpoint() {
    let life = Life::on(FakeDisk::default(), options(1_000));
    life.store.start(&life.env);
    life.disk
        .fail(Some((StepKind::Write, io::ErrorKind::StorageFull)));
    write(&life, 5, 1_000);
    assert_eq!(life.store.engine_durable(), LogIndex(0));
    assert!(life.store.watch_fatal().borrow().is_none());
    assert!(!life.disk.names().contains(&"checkpoint.new".to_owned()));
    write(&life, 5, 1_000);
    assert_eq!(life.store.drained(), LogIndex(10), "drains go on");
    life.disk.fail(None);
    settle(&life);
    assert_eq!(life.store.engine_durable(), LogIndex(10));
}

#[test]
fn a_failed_sync_ends_the_store() {
    let life = Life::on(FakeDisk::default(), options(1_000));
    life.store.start(&life.env);
    life.disk.fail(Some((StepKind::Sync, io::ErrorKind::Other)));
    write(&life, 5, 1_000);
    assert!(life.store.watch_fatal().borrow().is_some());
    assert_eq!(life.store.engine_durable(), LogIndex(0));
}

#[test]
fn another_engines_folder_is_refused() {
    let redb = Life::new();
    redb.put("k", "v");
    redb.drain();
    let memory = Life::on(FakeDisk::default(), small_on(EngineKind::Memory));
    memory.put("k", "v");
    memory.drain();
    for (life, kind) in [(redb, EngineKind::Memory), (memory, EngineKind::Redb)] {
        let disk = life.disk.clone();
        let (env, _hands) = node(&disk, 1);
        let opened = Store::open(&env, Path::new(DIR), small_on(kind));
        assert!(
            matches!(opened, Err(OpenError::OtherEngine(..))),
            "{kind:?}"
        );
    }
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let life = Life::on(FakeDisk::default(), small_on(EngineKind::Memory));
    life.store.apply_blank(super::id(1, 1));
    let _ = life.run(put("k", "v"));
    life.drain();
    let file = Path::new(DIR).join("snap/checkpoint");
    let length = life.disk.bytes(&file).len() as u64;
    let disk = life.disk.clone();
    let handle = tenon_env::Disk::open(&disk, &file, tenon_env::OpenMode::ReadWrite);
    handle
        .and_then(|file| file.write_all_at(b"!", length / 2))
        .expect("written");
    let (env, _hands) = node(&disk, 1);
    let opened = Store::open(&env, Path::new(DIR), small_on(EngineKind::Memory));
    let Err(OpenError::Engine(EngineError::Damaged(text))) = opened else {
        panic!("damage is refused");
    };
    assert!(text.contains("checkpoint"), "{text}");
}
