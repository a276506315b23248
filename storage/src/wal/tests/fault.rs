//! Room `storage`, WAL tests: a disk that refuses. Syncs and writes that fail are final and told; a full disk is
//! waited for; reads go on through all of it.

use super::disk::{FakeDisk, Left, StepKind};
use super::model::{DIR, id};
use super::world::{Hands, node};
use crate::wal::{Done, Space, Wal, WalEntry, WalError, WalOptions};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use tenon_proto::ids::LogIndex;

const SEGMENT: usize = 4096;

struct Room {
    disk: FakeDisk,
    hands: Hands,
    wal: Wal,
    /// What became of each request, in order.
    fates: Arc<Mutex<Vec<Result<u64, WalError>>>>,
}

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: SEGMENT as u64,
        tail_bytes: 0,
    }
}

fn room() -> Room {
    let disk = FakeDisk::default();
    let (env, hands) = node(&disk, 1);
    let (wal, _) = Wal::open(&env, Path::new(DIR), options()).unwrap();
    Room {
        disk,
        hands,
        wal,
        fates: Arc::default(),
    }
}

impl Room {
    fn done(&self, number: u64) -> Done {
        let fates = self.fates.clone();
        Box::new(move |result| fates.lock().push(result.map(|()| number)))
    }

    fn append(&self, index: u64, bytes: usize) {
        let entry = WalEntry {
            id: id(1, index),
            payload: vec![index as u8; bytes].into(),
        };
        self.wal.append(vec![entry], self.done(index));
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.fates
            .lock()
            .iter()
            .filter_map(|fate| fate.as_ref().ok().copied())
            .collect()
    }

    fn failures(&self) -> usize {
        self.fates
            .lock()
            .iter()
            .filter(|fate| fate.is_err())
            .count()
    }

    fn restart(&mut self, left: Left) -> Option<u64> {
        self.hands.kill();
        self.disk.restart(left, 5);
        let (env, hands) = node(&self.disk, 2);
        let (wal, recovery) = Wal::open(&env, Path::new(DIR), options()).unwrap();
        (self.wal, self.hands) = (wal, hands);
        recovery.last.map(|id| id.index)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.hands.kill();
    }
}

fn fails_for_good(kind: StepKind, error: ErrorKind) {
    let mut room = room();
    room.append(0, 100);
    room.hands.run();
    room.disk.fail(Some((kind, error)));
    room.append(1, 100);
    room.hands.tasks();
    room.append(2, 100);
    room.hands.run();
    // The disk is well again; the log is not: what the kernel dropped cannot be known.
    room.disk.fail(None);
    room.append(3, 100);
    room.wal.save_vote(Default::default(), room.done(4));
    room.wal.truncate_after(Some(id(1, 0)), room.done(5));
    room.hands.run();
    assert_eq!(room.acknowledged(), [0]);
    assert_eq!(room.failures(), 5, "everything asked for is answered");
    assert!(matches!(room.fates.lock()[1], Err(WalError::Fatal(_))));
    let told = room.wal.fatal().borrow().clone();
    assert!(told.is_some_and(|text| text.contains("0000000000000001.wal")));
    assert_eq!(
        room.wal.read(LogIndex(0), 1, 1000).unwrap().len(),
        1,
        "reads go on"
    );
    let last = room.restart(Left::Nothing);
    assert_eq!(last, Some(0), "what was acknowledged is there");
}

#[test]
fn a_failed_sync_is_final() {
    fails_for_good(StepKind::Sync, ErrorKind::Other);
    // Whatever the reason: the pages may be gone.
    fails_for_good(StepKind::Sync, ErrorKind::StorageFull);
}

#[test]
fn a_failed_write_is_final() {
    fails_for_good(StepKind::Write, ErrorKind::Other);
}

#[test]
fn a_segment_that_cannot_be_made_is_final_unless_the_disk_is_full() {
    let mut room = room();
    room.append(0, 100);
    room.hands.run();
    room.disk.fail(Some((StepKind::SyncDir, ErrorKind::Other)));
    room.append(1, 4000);
    room.append(2, 100);
    room.hands.run();
    assert_eq!(room.acknowledged(), [0]);
    assert_eq!(room.failures(), 2);
    assert!(room.wal.fatal().borrow().is_some());
    room.disk.fail(None);
    assert_eq!(room.restart(Left::Everything), Some(0));
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost() {
    let mut room = room();
    room.disk.set_capacity(Some(SEGMENT + 1000));
    for index in 0..4 {
        room.append(index, 900);
        room.hands.run();
    }
    assert_eq!(
        room.acknowledged(),
        [0, 1, 2, 3],
        "what was reserved can be written"
    );
    assert_eq!(
        *room.wal.watch_space().borrow(),
        Space::Low,
        "no room for the next"
    );
    for index in 4..7 {
        room.append(index, 900);
    }
    room.wal.save_vote(Default::default(), room.done(7));
    room.hands.run();
    assert_eq!(*room.wal.watch_space().borrow(), Space::Out);
    assert_eq!(room.acknowledged().len(), 4);
    assert_eq!(
        room.wal.read(LogIndex(0), 10, 1 << 20).unwrap().len(),
        7,
        "reads go on"
    );
    assert_eq!(room.wal.flushed(), LogIndex(3));
    for _ in 0..3 {
        room.hands.advance();
        room.hands.run();
    }
    assert_eq!(room.acknowledged().len(), 4);
    assert_eq!(room.wal.metrics().stalls(), 1);

    room.disk.set_capacity(Some(10 * SEGMENT));
    room.hands.advance();
    room.hands.run();
    room.hands.advance();
    room.hands.run();
    assert_eq!(room.acknowledged(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(*room.wal.watch_space().borrow(), Space::Enough);
    assert!(room.wal.fatal().borrow().is_none());
    assert_eq!(room.restart(Left::Nothing), Some(6));
}

#[test]
fn a_write_that_found_the_disk_full_is_written_again() {
    let mut room = room();
    room.append(0, 100);
    room.hands.run();
    room.disk
        .fail(Some((StepKind::Write, ErrorKind::StorageFull)));
    room.append(1, 100);
    room.hands.run();
    room.append(2, 100);
    assert_eq!(room.acknowledged(), [0]);
    room.disk.fail(None);
    room.hands.advance();
    room.hands.run();
    assert_eq!(room.acknowledged(), [0, 1, 2]);
    assert_eq!(room.restart(Left::Nothing), Some(2));
}

#[test]
fn closing_writes_what_is_queued_and_refuses_the_rest() {
    let mut room = room();
    room.append(0, 100);
    let (wal, fates) = (room.wal.clone(), room.fates.clone());
    let (env, hands) = node(&room.disk, 9);
    env.spawn("test", async move {
        wal.close().await;
        fates.lock().push(Ok(100));
    });
    hands.run();
    room.append(1, 100);
    room.hands.run();
    hands.run();
    let fates = room
        .fates
        .lock()
        .iter()
        .map(|f| format!("{f:?}"))
        .collect::<Vec<_>>();
    assert_eq!(fates, ["Err(Closed)", "Ok(0)", "Ok(100)"]);
    assert_eq!(room.restart(Left::Nothing), Some(0));
    hands.kill();
}

#[test]
fn closing_on_a_full_disk_does_not_wait() {
    let room = room();
    room.disk
        .fail(Some((StepKind::Allocate, ErrorKind::StorageFull)));
    room.append(0, 100);
    room.hands.run();
    let wal = room.wal.clone();
    let (env, hands) = node(&room.disk, 9);
    env.spawn("test", async move { wal.close().await });
    hands.run();
    room.hands.advance();
    room.hands.run();
    assert_eq!(room.failures(), 1);
    hands.kill();
}

#[test]
fn a_purged_segment_becomes_the_next_one() {
    let room = room();
    for index in 0..3 {
        room.append(index, 3900);
        room.hands.run();
    }
    let created = room.wal.metrics().segments_created();
    let files = room.disk.names().len();
    room.wal.purge(id(1, 2));
    room.wal.set_engine_durable(LogIndex(2));
    room.hands.run();
    assert_eq!(
        room.wal.log_state().0,
        Some(id(1, 2)),
        "the purge itself began a segment"
    );
    assert!(room.disk.names().len() < files, "{:?}", room.disk.names());
    for index in 3..40 {
        room.append(index, 3900);
        room.hands.run();
        room.wal.purge(id(1, index));
        room.wal.set_engine_durable(LogIndex(index));
        room.hands.run();
        assert!(room.disk.names().len() <= 3, "{:?}", room.disk.names());
    }
    assert!(room.wal.metrics().segments_created() > created + 30);
    assert_eq!(room.acknowledged().len(), 40);
}

#[test]
fn a_segment_being_read_is_not_used_again() {
    use crate::wal::core::Found;
    let room = room();
    for index in 0..3 {
        room.append(index, 3900);
        room.hands.run();
    }
    // A reader that has looked where the entry stands, and has not read yet.
    let Found::Disk(region) = room.wal.shared.core.lock().look(0, 1, 10_000) else {
        panic!("the entry is still in memory");
    };
    room.wal.purge(id(1, 2));
    room.wal.set_engine_durable(LogIndex(2));
    room.hands.run();
    assert!(
        room.wal.read(LogIndex(0), 1, 10_000).is_err(),
        "it is purged"
    );
    for index in 3..6 {
        room.append(index, 3900);
        room.hands.run();
    }
    let entries = crate::wal::read::read(&region).unwrap();
    assert_eq!(entries[0].1, vec![0; 3900]);
}
