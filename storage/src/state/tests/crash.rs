//! Room storage, state: power cuts at every step of the disk. What a store finds afterwards is one of
//! its drains, whole; replaying the rest of the log gives the same state as if nothing had happened.

use super::{DIR, Life, compaction, delete, id, put, small_on};
use crate::state::checkpoint;
use crate::state::flush::{Drained, drain};
use crate::state::{EngineKind, Store};
use crate::wal::tests::disk::{FakeDisk, Left};
use crate::wal::tests::world::node;
use std::path::Path;
use tenon_proto::command::command::Body;
use tenon_proto::command::{Command, CommandBatch};
use tenon_proto::etcdserverpb::LeaseGrantRequest;
use tenon_proto::ids::LogIndex;

/// A log that has a bit of everything.
pub(super) fn log() -> Vec<Body> {
    let mut log: Vec<Body> = vec![LeaseGrantRequest { id: 9, ttl: 60 }.into()];
    for i in 0..24 {
        log.push(put(&format!("k{}", i % 7), &"v".repeat(i * 20)).into());
        match i {
            7 => log.push(delete("k2", "k5").into()),
            11 => log.push(compaction(9).into()),
            19 => log.push(compaction(18).into()),
            _ => {}
        }
    }
    log
}

pub(super) fn replay(store: &Store, log: &[Body], upto: usize) {
    let applied = store.applied().map_or(0, |id| id.index as usize);
    for (at, body) in log.iter().enumerate().take(upto).skip(applied) {
        let command = Command {
            body: Some(body.clone()),
            ..Command::default()
        };
        let batch = CommandBatch {
            commands: vec![command],
        };
        store
            .apply(id(1, at as u64 + 1), &batch)
            .expect("no fatal error");
    }
}

/// Applies, drains every fourth entry and sweeps now and then; answers the index of the last drain
/// that was reported as done. Stops when the machine dies.
pub(super) fn live(life: &Life, log: &[Body]) -> u64 {
    let mut durable = 0;
    for upto in (4..=log.len()).step_by(4) {
        replay(&life.store, log, upto);
        life.store.set_wal_flushed(LogIndex(upto as u64));
        if upto % 8 == 0 {
            life.sweep();
        }
        match drain(&life.store.inner) {
            Ok(Drained::Some) => {}
            Ok(Drained::Nothing) | Err(_) => return durable,
        }
        if life.options.engine == EngineKind::Redb {
            durable = upto as u64;
        } else if upto % 8 == 0 {
            match checkpoint::write_now(&life.store.inner) {
                Ok(()) => durable = upto as u64,
                Err(_) => return durable,
            }
        }
    }
    durable
}

pub(super) fn sums(store: &Store) -> (u32, i64, Vec<u8>) {
    let sum = store.hash_kv(0.into()).expect("HashKV");
    let leases = store
        .leases()
        .rows()
        .iter()
        .map(|row| row.id as u8)
        .collect();
    (sum.hash, sum.compact_revision.get(), leases)
}

fn crash_and_check(
    engine: EngineKind,
    log: &[Body],
    want: &(u32, i64, Vec<u8>),
    (at, left): (u64, Left),
) -> bool {
    let options = small_on(engine);
    let disk = FakeDisk::default();
    disk.crash_at(at);
    let (env, hands) = node(&disk, 1);
    let durable = match Store::open(&env, Path::new(DIR), options) {
        Err(_) => 0,
        Ok(store) => live(
            &Life {
                disk: disk.clone(),
                env,
                hands,
                store,
                options,
            },
            log,
        ),
    };
    let died = disk.is_dead();
    disk.restart(left, at);
    let life = Life::on(disk, options);
    let found = life.store.engine_durable().get();
    assert!(
        found >= durable,
        "crash at {at}: {durable} was reported, {found} is there"
    );
    assert!(
        found.is_multiple_of(4),
        "only whole drains are found, not {found}"
    );
    replay(&life.store, log, log.len());
    assert_eq!(&sums(&life.store), want, "crash at {at}, {left:?} left");
    life.drain();
    life.sweep();
    life.drain();
    assert_eq!(
        &sums(&life.reopened().store),
        want,
        "crash at {at}, after a restart"
    );
    died
}

#[test]
fn a_power_cut_at_every_step_finds_a_whole_drain() {
    let log = log();
    let quiet = Life::new();
    replay(&quiet.store, &log, log.len());
    let want = sums(&quiet.store);
    let left = [
        Left::Nothing,
        Left::Everything,
        Left::Pieces,
        Left::Beginnings,
    ];
    for (engine, steps) in [(EngineKind::Redb, 100), (EngineKind::Memory, 20)] {
        let mut at = 1;
        while crash_and_check(engine, &log, &want, (at, left[at as usize % left.len()])) {
            at += if at < 40 { 1 } else { 3 };
        }
        assert!(at > steps, "the workload has that many steps, not {at}");
    }
}
