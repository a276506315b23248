//! Room storage, state: snapshots received and taken over, and power cuts while that happens.

use super::{DIR, Life, compaction, id, put, range, small, small_on};
use crate::engine::{EngineError, Table};
use crate::state::{EngineKind, SnapshotView, Store, StoreOptions};
use crate::wal::Recovery;
use crate::wal::tests::disk::{FakeDisk, Left};
use crate::wal::tests::world::node;
use std::path::Path;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse,
    PutRequest, PutResponse,
};
use tenon_proto::ids::{LogIndex, Revision};
use tenon_proto::log::{Membership, Node, NodeSet, Vote};

/// A store with something in every table, drained, and more that is not.
pub(super) fn source() -> Life {
    let life = Life::new();
    let _: LeaseGrantResponse = life.must(LeaseGrantRequest { id: 4, ttl: 60 });
    let membership = Membership {
        configs: vec![NodeSet { ids: vec![1, 2] }],
        nodes: [(1, Node::default()), (2, Node::default())]
            .into_iter()
            .collect(),
    };
    life.store.apply_membership(life.next_id(), &membership);
    for i in 0..40 {
        life.put(&format!("k{}", i % 9), &"v".repeat(i * 3));
    }
    let _: PutResponse = life.must(PutRequest {
        lease: 4,
        ..put("leased", "v")
    });
    let _: CompactionResponse = life.must(compaction(30));
    let raised = AlarmRequest {
        action: 1,
        member_id: 2,
        alarm: 1,
    };
    let _: AlarmResponse = life.must(raised);
    life.drain();
    life.sweep();
    life.drain();
    life
}

/// What the transport does: everything of the view, in small pieces.
pub(super) fn transfer(from: &SnapshotView, to: &Store) -> Result<SnapshotView, EngineError> {
    let mut receiver = to.receive_snapshot()?;
    let mut next = (0, 0);
    loop {
        let piece = from.records(next, 500)?;
        let Some((last, _)) = piece.last() else { break };
        next = (last.main, last.sub + 1);
        receiver.records(piece)?;
    }
    for table in Table::ALL {
        receiver.rows(table, from.rows(table)?)?;
    }
    receiver.finish()
}

pub(super) fn sums(store: &Store) -> (u32, i64, i64, usize, usize, usize) {
    let sum = store.hash_kv(Revision(0)).expect("HashKV");
    let (leases, alarms, members) = (store.leases().count(), store.alarms(), store.members());
    let compacted = sum.compact_revision.get();
    (
        sum.hash,
        sum.hash_revision.get(),
        compacted,
        leases,
        alarms.len(),
        members.len(),
    )
}

/// A member that fell behind: an older state of its own.
fn behind(disk: FakeDisk, options: StoreOptions) -> Life {
    let life = Life::on(disk, options);
    life.put("k1", "old");
    life.put("only here", "old");
    life.drain();
    life.put("undrained", "old");
    life
}

#[test]
fn a_received_snapshot_replaces_the_state() {
    let source = source();
    let snapshot = source.store.snapshot().expect("durable");
    for engine in [EngineKind::Redb, EngineKind::Memory] {
        let life = behind(FakeDisk::default(), StoreOptions { engine, ..small() });
        let mut cursor = life
            .store
            .range_cursor(&range("\0", "\0"))
            .expect("a cursor");
        let received = transfer(&snapshot, &life.store).expect("received");
        assert_eq!(life.all().count, 3, "the old state answers until the swap");
        assert_eq!(
            received.membership().expect("rows"),
            snapshot.membership().expect("rows")
        );
        life.store.install_snapshot(&received).expect("installed");
        assert_eq!(sums(&life.store), sums(&source.store));
        assert_eq!(life.store.applied(), Some(snapshot.log_id()));
        assert_eq!(
            life.store.engine_durable(),
            LogIndex(snapshot.log_id().index)
        );
        assert_eq!(life.store.leases().lease_of(b"leased"), 4);
        assert_eq!(life.store.watches().revision(), snapshot.revision().get());
        assert_eq!(
            cursor.next(10),
            Err(Error::Compacted),
            "what it read on is gone"
        );
        assert!(life.store.install_snapshot(&received).is_err(), "only once");
    }
}

#[test]
fn the_store_goes_on_after_it() {
    let source = source();
    let snapshot = source.store.snapshot().expect("durable");
    let life = behind(FakeDisk::default(), small());
    let received = transfer(&snapshot, &life.store).expect("received");
    life.store.install_snapshot(&received).expect("installed");
    drop(received);
    assert!(life.disk.names().contains(&"db.redb".to_owned()));
    assert!(!life.disk.names().contains(&"received.redb".to_owned()));
    for life in [&source, &life] {
        let lowered = AlarmRequest {
            action: 2,
            member_id: 2,
            alarm: 1,
        };
        let _: AlarmResponse = life.must(lowered);
        life.put("k1", "after");
        let _: PutResponse = life.must(PutRequest {
            ignore_value: true,
            ..put("k2", "")
        });
        life.drain();
    }
    assert_eq!(sums(&life.store), sums(&source.store));
    let (life, source) = (life.reopened(), source.reopened());
    assert_eq!(sums(&life.store), sums(&source.store));
}

#[test]
fn damaged_snapshots_are_refused() {
    let source = source();
    let snapshot = source.store.snapshot().expect("durable");
    let life = Life::new();
    let records = snapshot.records((0, 0), usize::MAX).expect("records");
    let mut receiver = life.store.receive_snapshot().expect("begun");
    receiver.records(records.clone()).expect("in order");
    assert!(receiver.records(records.clone()).is_err(), "out of order");
    let mut receiver = life.store.receive_snapshot().expect("begun again");
    receiver.records(records).expect("in order");
    assert!(receiver.finish().is_err(), "no position came with it");
    assert_eq!(life.all().count, 0);
}

#[test]
fn a_power_cut_leaves_the_old_state_or_the_new_one() {
    for (engine, steps) in [(EngineKind::Redb, 3), (EngineKind::Memory, 1)] {
        cut_while_installing(&small_on(engine), steps);
    }
}

fn cut_while_installing(options: &StoreOptions, every: usize) {
    let source = source();
    let snapshot = source.store.snapshot().expect("durable");
    let want = sums(&source.store);
    let left = [
        Left::Nothing,
        Left::Everything,
        Left::Pieces,
        Left::Beginnings,
    ];
    let (mut seen_old, mut seen_new) = (0, 0);
    // Not every step: the way there may have many that are alike.
    for at in (1..).step_by(every) {
        let disk = FakeDisk::default();
        let life = behind(disk.clone(), *options);
        let Life {
            store, env, hands, ..
        } = life;
        disk.crash_at(disk.steps() + at);
        let received = transfer(&snapshot, &store);
        let installed = received.is_ok_and(|view| store.install_snapshot(&view).is_ok());
        let died = disk.is_dead();
        hands.kill();
        drop((store, env));
        disk.restart(left[at as usize % left.len()], at);
        let (env, _hands) = node(&disk, 1);
        let store = Store::open(&env, Path::new(DIR), *options).expect("it opens");
        let applied = store.applied();
        // The log was not reset to the snapshot yet.
        let log = Recovery {
            vote: Some(Vote::default()),
            committed: None,
            purged: None,
            last: Some(id(1, 2)),
            truncated_tail: false,
            begun: true,
        };
        store.check_log(&log).expect("the log is its own");
        if applied == Some(snapshot.log_id()) {
            assert_eq!(sums(&store), want, "crash at {at}");
            seen_new += 1;
        } else {
            assert!(!installed, "crash at {at}: an installed snapshot is lost");
            assert_eq!(applied, Some(id(1, 2)), "crash at {at}");
            assert_eq!(
                store.range(&range("only here", "")).expect("a get").count,
                1
            );
            seen_old += 1;
        }
        if !died {
            break;
        }
    }
    assert!(
        seen_old > 5 && seen_new > 0,
        "{seen_old} old, {seen_new} new"
    );
}
