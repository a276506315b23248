//! Room `storage`, WAL tests: every byte of a log changed, every length cut: what was durable in the middle is
//! never silently given up, and damage is named where it is.

use super::disk::{FakeDisk, Left};
use super::model::{DIR, id, options};
use super::world::node;
use crate::wal::{Recovery, Wal, WalEntry, WalError};
use std::path::{Path, PathBuf};
use tenon_proto::ids::LogIndex;
use tenon_proto::log::Vote;

fn path(seq: u64) -> PathBuf {
    Path::new(DIR).join(crate::wal::segment::name(seq))
}

fn append(wal: &Wal, from: u64, count: u64, bytes: usize) {
    let entries = (from..from + count).map(|index| WalEntry {
        id: id(1, index),
        payload: vec![index as u8; bytes].into(),
    });
    wal.append(entries.collect(), Box::new(|result| result.unwrap()));
}

/// Two segments; the second ends with a sync, and a commit behind it that proves the sync.
fn log() -> FakeDisk {
    let disk = FakeDisk::default();
    let (env, hands) = node(&disk, 1);
    let (wal, _) = Wal::open(&env, Path::new(DIR), options()).unwrap();
    for from in [0, 5, 10] {
        append(&wal, from, 5, 330);
        hands.run();
    }
    let vote = Vote {
        term: 1,
        node_id: 7,
        committed: true,
    };
    wal.save_vote(vote, Box::new(|result| result.unwrap()));
    hands.run();
    wal.save_committed(id(1, 14));
    hands.run();
    hands.kill();
    disk.restart(Left::Everything, 0);
    disk
}

fn open(disk: &FakeDisk) -> Result<(Wal, Recovery), WalError> {
    let (env, hands) = node(disk, 2);
    let opened = Wal::open(&env, Path::new(DIR), options());
    hands.kill();
    opened
}

/// End of the frames, and where the last of them (the commit, never synced) begins.
fn ends(disk: &FakeDisk, seq: u64) -> (usize, usize) {
    let bytes = disk.bytes(&path(seq));
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let end = end.next_multiple_of(8);
    (end, end - 40)
}

#[test]
fn a_changed_byte_that_was_durable_is_refused_and_located() {
    let whole = log();
    for seq in [1, 2] {
        let (end, unsynced) = ends(&whole, seq);
        for at in (0..end).step_by(3) {
            let disk = log();
            disk.damage(&path(seq), |bytes| bytes[at] ^= 0x20);
            match open(&disk) {
                Err(WalError::Damaged(damage)) => {
                    assert_eq!(damage.segment, crate::wal::segment::name(seq));
                    assert!(damage.offset <= at as u64, "{damage} for a change at {at}");
                    assert!(
                        at as u64 - damage.offset < 400,
                        "{damage} for a change at {at}"
                    );
                    let text = damage.to_string();
                    assert!(text.contains("offset") && text.contains("peers"), "{text}");
                }
                Err(other) => panic!("a change at {at} of segment {seq}: {other}"),
                Ok((_, recovery)) => {
                    assert!(
                        seq == 2 && at >= unsynced,
                        "a change at {at} of {seq} passed"
                    );
                    assert_eq!(recovery.last, Some(id(1, 14)));
                }
            }
            assert_eq!(disk.names().len(), 2, "nothing was removed");
        }
    }
}

#[test]
fn a_lost_beginning_of_the_last_segment_is_damage_and_not_a_spare() {
    let disk = log();
    disk.damage(&path(2), |bytes| bytes[64..216].fill(0));
    let Err(WalError::Damaged(damage)) = open(&disk) else {
        panic!("a segment with frames was taken for a spare");
    };
    assert_eq!(damage.offset, 64);
}

#[test]
fn zeros_in_the_middle_are_damage_and_zeros_at_the_end_are_not() {
    let disk = log();
    let (end, unsynced) = ends(&disk, 2);
    disk.damage(&path(2), |bytes| bytes[unsynced..].fill(0));
    assert_eq!(open(&disk).unwrap().1.committed, None);

    let disk = log();
    disk.damage(&path(2), |bytes| bytes.truncate(end));
    assert_eq!(open(&disk).unwrap().1.committed, Some(id(1, 14)));

    let disk = log();
    disk.damage(&path(2), |bytes| bytes[512..1024].fill(0));
    assert!(matches!(open(&disk), Err(WalError::Damaged(_))));
}

#[test]
fn a_segment_cut_short_is_damage() {
    let disk = log();
    let (end, _) = ends(&disk, 1);
    disk.damage(&path(1), |bytes| bytes.truncate(end - 8));
    let Err(WalError::Damaged(damage)) = open(&disk) else {
        panic!("half a segment was accepted");
    };
    assert_eq!(damage.segment, crate::wal::segment::name(1));
}

#[test]
fn another_format_version_is_refused_by_its_number() {
    let disk = log();
    disk.damage(&path(2), |bytes| {
        bytes[8] = 9;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    });
    let error = open(&disk).unwrap_err().to_string();
    assert!(
        error.contains("version 9") && error.contains("version 1"),
        "{error}"
    );
}

#[test]
fn foreign_files_in_the_folder_are_left_alone() {
    use tenon_env::{Disk, OpenMode};
    let disk = log();
    for name in ["notes.txt", "1.wal", "xyz.tmp", "0000000000000009.tmp"] {
        disk.open(&Path::new(DIR).join(name), OpenMode::Create)
            .unwrap();
    }
    open(&disk).unwrap();
    let names = disk.names();
    for name in ["notes.txt", "1.wal", "xyz.tmp"] {
        assert!(names.iter().any(|n| n == name), "{name} is gone: {names:?}");
    }
    assert!(
        !names.iter().any(|n| n == "0000000000000009.tmp"),
        "our own leftover goes"
    );
}

#[test]
fn a_read_finds_damage_that_came_after_the_start() {
    let disk = log();
    let (env, hands) = node(&disk, 2);
    let (wal, _) = Wal::open(&env, Path::new(DIR), options()).unwrap();
    disk.damage(&path(1), |bytes| bytes[300] ^= 1);
    let error = wal.read(LogIndex(0), 1, 1 << 20).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("offset 216"), "{error}");
    assert_eq!(wal.read(LogIndex(1), 1, 1 << 20).unwrap().len(), 1);
    hands.kill();
}

#[test]
fn what_a_torn_write_left_never_follows_a_new_frame() {
    let disk = FakeDisk::default();
    let (env, hands) = node(&disk, 1);
    let (wal, _) = Wal::open(&env, Path::new(DIR), options()).unwrap();
    append(&wal, 0, 3, 472);
    hands.run();
    hands.kill();
    disk.restart(Left::Everything, 0);
    // Of one write the middle is missing: entry 2 is whole and has nothing to stand on.
    let frame = 216 + 512;
    disk.damage(&path(1), |bytes| bytes[frame..frame + 512].fill(0));
    let (env, hands) = node(&disk, 2);
    let (wal, recovery) = Wal::open(&env, Path::new(DIR), options()).unwrap();
    assert_eq!(
        (recovery.last, recovery.truncated_tail),
        (Some(id(1, 0)), true)
    );
    append(&wal, 1, 1, 472);
    hands.run();
    hands.kill();
    disk.restart(Left::Everything, 0);
    assert_eq!(open(&disk).unwrap().1.last, Some(id(1, 1)));
}

#[test]
fn what_a_start_reports_survives_a_later_power_cut() {
    let disk = FakeDisk::default();
    let (env, hands) = node(&disk, 1);
    let (wal, _) = Wal::open(&env, Path::new(DIR), options()).unwrap();
    append(&wal, 0, 3, 100);
    hands.run();
    wal.save_committed(id(1, 2));
    hands.run();
    hands.kill();
    // The process dies, the kernel has the frame; the next process reports it; then power fails.
    disk.restart(Left::Cached, 0);
    assert_eq!(open(&disk).unwrap().1.committed, Some(id(1, 2)));
    disk.restart(Left::Nothing, 0);
    assert_eq!(open(&disk).unwrap().1.committed, Some(id(1, 2)));
}
