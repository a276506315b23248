//! Room storage, state: a disk that refuses writes, a sync that fails, a file of another kind.

use super::{DIR, Life, put, range, small};
use crate::engine::EngineError;
use crate::state::flush::drain;
use crate::state::{OpenError, Store};
use crate::wal::tests::disk::StepKind;
use crate::wal::tests::world::node;
use std::io::ErrorKind;
use std::path::Path;
use tenon_proto::etcdserverpb::PutResponse;
use tenon_proto::ids::LogIndex;

/// Puts so much that the first records leave the memory.
fn filled() -> Life {
    let life = Life::new();
    for i in 0..50 {
        life.put(&format!("k{i}"), &"v".repeat(200));
    }
    life.drain();
    assert!(life.store.inner.state.read().recent.bytes() <= small().recent_bytes_max);
    life
}

#[test]
fn a_full_disk_stops_neither_reads_nor_writes_until_memory_is_full() {
    let life = filled();
    let durable = life.store.engine_durable();
    life.disk
        .fail(Some((StepKind::Write, ErrorKind::StorageFull)));
    life.put("k0", "new");
    life.store.set_wal_flushed(LogIndex(1000));
    assert!(matches!(
        drain(&life.store.inner),
        Err(EngineError::Stalled(_))
    ));
    assert!(life.store.is_stalled());
    assert_eq!(
        life.store.engine_durable(),
        durable,
        "nothing is claimed durable"
    );
    assert_eq!(life.all().count, 50);
    assert_eq!(
        life.store
            .range(&range("k1", ""))
            .expect("from the engine")
            .kvs[0]
            .value
            .len(),
        200
    );
    assert_eq!(
        life.store.range(&range("k0", "")).expect("from memory").kvs[0].value,
        "new"
    );
    life.put("k51", "more");
    assert_eq!(life.store.watch_fatal().borrow().clone(), None);
    let sum = life.store.hash_kv(0.into());

    // Without ever settling: the last commit before is found, the log has the rest.
    life.disk.fail(None);
    let reopened = life.reopened();
    assert_eq!(reopened.store.engine_durable(), durable);
    let _: PutResponse = reopened.must(put("k0", "new"));
    let _: PutResponse = reopened.must(put("k51", "more"));
    assert_eq!(reopened.store.hash_kv(0.into()), sum);
}

#[test]
fn the_tasks_go_on_by_themselves_once_there_is_room() {
    let life = filled();
    life.store.start(&life.env);
    life.hands.run();
    life.disk
        .fail(Some((StepKind::Write, ErrorKind::StorageFull)));
    life.put("k0", "new");
    life.store.set_wal_flushed(LogIndex(51));
    for _ in 0..5 {
        life.hands.run();
        life.hands.advance();
    }
    assert!(life.store.is_stalled());
    life.put("k0", "newer");
    life.store.set_wal_flushed(LogIndex(52));
    life.disk.fail(None);
    for _ in 0..5 {
        life.hands.run();
        life.hands.advance();
    }
    assert!(!life.store.is_stalled());
    assert_eq!(life.store.engine_durable(), LogIndex(52));
    let reopened = life.reopened();
    assert_eq!(
        reopened.store.range(&range("k0", "")).expect("a range").kvs[0].value,
        "newer"
    );
}

#[test]
fn a_failed_sync_ends_the_store() {
    let life = filled();
    life.store.start(&life.env);
    life.hands.run();
    life.disk.fail(Some((StepKind::Sync, ErrorKind::Other)));
    life.put("k0", "new");
    life.store.set_wal_flushed(LogIndex(51));
    for _ in 0..3 {
        life.hands.run();
        life.hands.advance();
    }
    let fatal = life.store.watch_fatal().borrow().clone();
    assert!(fatal.is_some(), "the reason is told");
    assert_eq!(life.store.engine_durable(), LogIndex(50));
    assert_eq!(
        life.store.range(&range("k0", "")).expect("from memory").kvs[0].value,
        "new"
    );
}

#[test]
fn a_file_that_is_not_ours_is_refused() {
    let life = filled();
    let disk = life.disk.clone();
    let Life {
        store, hands, env, ..
    } = life;
    hands.kill();
    drop((store, env));
    disk.damage(&Path::new(DIR).join("snap/db.redb"), |bytes| {
        bytes[..64].fill(7)
    });
    let (env, _hands) = node(&disk, 1);
    let error = Store::open(&env, Path::new(DIR), small()).expect_err("damage is told");
    assert!(
        matches!(error, OpenError::Engine(EngineError::Damaged(_))),
        "{error}"
    );
}
