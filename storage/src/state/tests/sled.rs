//! Room storage, state: the crash suite for sled, which cannot run over a disk that tests break. A kill is a
//! copy of the folder taken in the middle of work; a power cut is that copy with everything thrown away
//! that was never synced, which is all of sled, or with sled's files cut at some place.

use super::crash::{log, replay, sums};
use super::install::{source, sums as all_sums, transfer};
use super::{Life, id, small_on};
use crate::state::flush::{Drained, drain};
use crate::state::{EngineKind, Store, checkpoint};
use crate::wal::tests::disk::FakeDisk;
use crate::wal::tests::world::{Dice, Hands, node};
use std::path::Path;
use std::sync::Arc;
use tenon_env::real::RealDisk;
use tenon_env::{Disk, Env, OpenMode};
use tenon_proto::ids::LogIndex;

/// A store over sled in a folder of the real file system.
fn open(dir: &Path) -> (Env, Hands, Store) {
    let (mut env, hands) = node(&FakeDisk::default(), 1);
    env.disk = Arc::new(RealDisk);
    let store = Store::open(&env, dir, small_on(EngineKind::Sled)).expect("the store opens");
    (env, hands, store)
}

/// What a crash leaves of sled's files.
#[derive(Clone, Copy, Debug)]
enum Sled {
    All,
    Nothing,
    Pieces,
}

fn copy(from: &Path, to: &Path, left: Sled, dice: &mut Dice) {
    RealDisk.create_dir_all(to).expect("a folder");
    for entry in RealDisk.list(from).expect("a folder") {
        let (from, to) = (from.join(&entry.name), to.join(&entry.name));
        if entry.is_dir {
            if !entry.name.starts_with("sled-") || !matches!(left, Sled::Nothing) {
                copy(&from, &to, left, dice);
            }
            continue;
        }
        // sled's own threads rename and remove files meanwhile.
        let Ok(mut bytes) = RealDisk.read(&from) else {
            continue;
        };
        if from.to_string_lossy().contains("sled-") && matches!(left, Sled::Pieces) {
            bytes.truncate(dice.below(bytes.len() as u64 + 1) as usize);
        }
        let file = RealDisk.open(&to, OpenMode::CreateNew).expect("a file");
        file.write_all_at(&bytes, 0).expect("written");
    }
}

#[test]
fn whatever_a_crash_leaves_of_sled_checkpoint_and_log_give_the_state() {
    let log = log();
    let quiet = Life::new();
    replay(&quiet.store, &log, log.len());
    let want = sums(&quiet.store);
    let base = tempfile::tempdir().expect("a folder");
    let (dir, crashed) = (base.path().join("live"), base.path().join("crashed"));
    let (_env, _hands, store) = open(&dir);
    let mut dice = Dice::new(7);
    let mut durable = 0;
    for (turn, upto) in (3..=log.len()).step_by(3).enumerate() {
        replay(&store, &log, upto);
        store.set_wal_flushed(LogIndex(upto as u64));
        while drain(&store.inner).expect("the engine works") == Drained::Some {}
        if turn % 3 == 1 {
            checkpoint::write_now(&store.inner).expect("the disk works");
            durable = upto as u64;
        }
        let left = [Sled::All, Sled::Nothing, Sled::Pieces][turn % 3];
        copy(&dir, &crashed, left, &mut dice);
        let (_env, _hands, again) = open(&crashed);
        let found = again.applied().map_or(0, |id| id.index);
        assert_eq!(found, durable, "{left:?} left at {upto}");
        assert_eq!(again.engine_durable(), LogIndex(durable));
        replay(&again, &log, log.len());
        assert_eq!(sums(&again), want, "{left:?} left at {upto}");
        drop(again);
        RealDisk.remove_dir_all(&crashed).expect("removed");
    }
    replay(&store, &log, log.len());
    assert_eq!(sums(&store), want);
}

#[test]
fn a_snapshot_is_taken_over_and_survives() {
    let source = source();
    let snapshot = source.store.snapshot().expect("durable");
    let base = tempfile::tempdir().expect("a folder");
    let dir = base.path().join("live");
    let (_env, _hands, store) = open(&dir);
    store.apply_blank(id(1, 1));
    let received = transfer(&snapshot, &store).expect("received");
    let before = base.path().join("before");
    let mut dice = Dice::new(8);
    copy(&dir, &before, Sled::Nothing, &mut dice);
    store.install_snapshot(&received).expect("installed");
    drop(received);
    assert_eq!(all_sums(&store), all_sums(&source.store));
    let folders = || {
        let names = RealDisk.list(&dir.join("snap")).expect("a folder");
        names.iter().filter(|entry| entry.is_dir).count()
    };
    assert_eq!(folders(), 1, "the old engine's files went with it");
    let after = base.path().join("after");
    copy(&dir, &after, Sled::Pieces, &mut dice);
    let (_env, _hands, old) = open(&before);
    assert_eq!(old.applied(), None, "not taken over yet");
    let (_env, _hands, new) = open(&after);
    assert_eq!(all_sums(&new), all_sums(&source.store));
    assert_eq!(new.engine_durable(), LogIndex(snapshot.log_id().index));
}
