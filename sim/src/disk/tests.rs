//! Room `sim`: tests of the simulated disk: what a crash leaves, and its faults.

use crate::{CrashMode, DiskError, Op, Sim};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use tenon_env::{Env, OpenMode};

fn names(env: &Env, dir: &str) -> Vec<String> {
    env.disk
        .list(dir.as_ref())
        .unwrap()
        .into_iter()
        .map(|e| e.name)
        .collect()
}

fn write(env: &Env, path: &str, data: &[u8], sync: bool) {
    let file = env.disk.open(path.as_ref(), OpenMode::Create).unwrap();
    file.write_all_at(data, 0).unwrap();
    if sync {
        file.sync().unwrap();
    }
}

fn crash(sim: &Sim, mode: CrashMode) -> Env {
    sim.kill(1, mode);
    sim.restart(1)
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_nothing_else() {
    let sim = Sim::new(1);
    let env = sim.node(1);
    write(&env, "/a", b"synced", true);
    env.disk.sync_dir("/".as_ref()).unwrap();
    write(&env, "/a", b"newer!!", false);
    write(&env, "/b", b"no name", true);
    assert_eq!(
        env.disk.read("/a".as_ref()).unwrap(),
        b"newer!!",
        "reads see all"
    );
    let env = crash(&sim, CrashMode::Lost);
    assert_eq!(env.disk.read("/a".as_ref()).unwrap(), b"synced");
    assert_eq!(names(&env, "/"), ["a"], "a file needs its folder synced");

    write(&env, "/a", b"newer!!", false);
    write(&env, "/b", b"kept", false);
    let env = crash(&sim, CrashMode::Kept);
    assert_eq!(env.disk.read("/a".as_ref()).unwrap(), b"newer!!");
    assert_eq!(env.disk.read("/b".as_ref()).unwrap(), b"kept");
    let env = crash(&sim, CrashMode::Lost);
    assert_eq!(
        env.disk.read("/a".as_ref()).unwrap(),
        b"synced",
        "a kill makes nothing durable"
    );
    assert_eq!(names(&env, "/"), ["a"]);
}

#[test]
fn a_torn_write_survives_in_any_part() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let sim = Sim::new(seed);
        let env = sim.node(1);
        write(&env, "/f", &[1; 8192], true);
        env.disk.sync_dir("/".as_ref()).unwrap();
        write(&env, "/f", &[2; 8192], false);
        let env = crash(&sim, CrashMode::Torn);
        let bytes = env.disk.read("/f".as_ref()).unwrap();
        let sectors: Vec<u8> = bytes.chunks(512).map(|c| c[0]).collect();
        assert!(
            bytes.chunks(512).all(|c| c.iter().all(|b| *b == c[0])),
            "sectors are whole"
        );
        seen.insert(sectors);
    }
    assert!(
        seen.contains(&vec![1; 16]) && seen.contains(&vec![2; 16]),
        "kept and dropped"
    );
    assert!(seen.len() > 30, "and many between: {}", seen.len());
    assert!(
        seen.iter().any(|s| s[..8] == [1; 8] && s[8..] == [2; 8]),
        "torn at 4 KiB too"
    );
}

#[test]
fn lengths_and_cuts() {
    let sim = Sim::new(2);
    let env = sim.node(1);
    write(&env, "/f", &[7; 10_000], true);
    env.disk.sync_dir("/".as_ref()).unwrap();
    let file = env.disk.open("/f".as_ref(), OpenMode::ReadWrite).unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(9_000).unwrap();
    let mut tail = [1; 4_000];
    file.read_exact_at(&mut tail, 5_000).unwrap();
    assert_eq!(tail, [0; 4_000], "what was cut reads as zero");
    let eof = file.read_exact_at(&mut tail, 5_001).unwrap_err();
    assert_eq!(eof.kind(), ErrorKind::UnexpectedEof);
    let env = crash(&sim, CrashMode::Lost);
    assert_eq!(env.disk.read("/f".as_ref()).unwrap(), [7; 10_000]);
    let file = env.disk.open("/f".as_ref(), OpenMode::ReadWrite).unwrap();
    file.set_len(5_000).unwrap();
    file.allocate(20_000).unwrap();
    file.sync().unwrap();
    let env = crash(&sim, CrashMode::Lost);
    let bytes = env.disk.read("/f".as_ref()).unwrap();
    assert!(bytes.len() == 20_000 && bytes[..5_000] == [7; 5_000] && bytes[5_000..] == [0; 15_000]);
}

#[test]
fn a_rename_without_sync_may_vanish() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..50 {
        let sim = Sim::new(seed);
        let env = sim.node(1);
        env.disk.write_atomic("/state".as_ref(), b"old").unwrap();
        write(&env, "/next", b"new", true);
        env.disk.sync_dir("/".as_ref()).unwrap();
        env.disk
            .rename("/next".as_ref(), "/state".as_ref())
            .unwrap();
        let env = crash(&sim, CrashMode::Torn);
        match env.disk.read("/state".as_ref()).unwrap().as_slice() {
            b"old" => {
                old += 1;
                assert_eq!(names(&env, "/"), ["next", "state"]);
            }
            b"new" => {
                new += 1;
                assert_eq!(names(&env, "/"), ["state"]);
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(old > 5 && new > 5, "{old} old, {new} new");
}

#[test]
fn write_atomic_is_atomic_at_every_operation() {
    for seed in 0..20 {
        for n in 1..20 {
            for mode in [CrashMode::Kept, CrashMode::Lost, CrashMode::Torn] {
                let sim = Sim::new(seed);
                let env = sim.node(1);
                env.disk.write_atomic("/state".as_ref(), b"first").unwrap();
                let disk = sim.disk(1);
                disk.crash_at(disk.ops() + n, mode);
                let done = env.disk.write_atomic("/state".as_ref(), &[9; 6000]);
                assert_eq!(done.is_ok(), sim.is_alive(1));
                if done.is_ok() {
                    assert!(n > 6, "an atomic write is six operations");
                    sim.kill(1, CrashMode::Lost);
                }
                let found = sim.restart(1).disk.read("/state".as_ref()).unwrap();
                assert!(found == [9; 6000] || (done.is_err() && found == b"first"));
            }
        }
    }
}

#[test]
fn folders_are_names_too() {
    let sim = Sim::new(3);
    let env = sim.node(1);
    env.disk
        .create_dir_all("/data/member/wal".as_ref())
        .unwrap();
    write(&env, "/data/member/wal/1", b"x", true);
    env.disk.sync_dir("/data/member/wal".as_ref()).unwrap();
    env.disk.sync_dir("/data".as_ref()).unwrap();
    let env = crash(&sim, CrashMode::Lost);
    assert!(
        names(&env, "/").is_empty(),
        "the topmost folder was never synced"
    );
    env.disk
        .create_dir_all("/data/member/wal".as_ref())
        .unwrap();
    for dir in ["/data/member/wal", "/data/member", "/data", "/"] {
        env.disk.sync_dir(dir.as_ref()).unwrap();
    }
    write(&env, "/data/member/wal/1", b"x", true);
    env.disk.sync_dir("/data/member/wal".as_ref()).unwrap();
    env.disk
        .rename("/data/member".as_ref(), "/data/gone".as_ref())
        .unwrap();
    env.disk.sync_dir("/data".as_ref()).unwrap();
    let env = crash(&sim, CrashMode::Lost);
    assert_eq!(env.disk.read("/data/gone/wal/1".as_ref()).unwrap(), b"x");
    env.disk.remove_dir_all("/data/gone".as_ref()).unwrap();
    assert_eq!(env.disk.stat("/data/gone".as_ref()).unwrap(), None);
    let env = crash(&sim, CrashMode::Lost);
    assert_eq!(names(&env, "/data"), ["gone"], "a removal needs a sync too");
}

#[test]
fn a_later_change_of_a_name_is_never_undone_by_a_sync() {
    let sim = Sim::new(4);
    let env = sim.node(1);
    for dir in ["/a", "/b"] {
        env.disk.create_dir_all(dir.as_ref()).unwrap();
    }
    env.disk.sync_dir("/".as_ref()).unwrap();
    write(&env, "/a/f", b"x", true);
    env.disk.rename("/a/f".as_ref(), "/b/f".as_ref()).unwrap();
    env.disk.sync_dir("/b".as_ref()).unwrap();
    env.disk.sync_dir("/a".as_ref()).unwrap();
    let env = crash(&sim, CrashMode::Lost);
    assert!(names(&env, "/a").is_empty());
    assert_eq!(env.disk.read("/b/f".as_ref()).unwrap(), b"x");
}

#[test]
fn a_failed_sync_loses_its_pages() {
    let sim = Sim::new(5);
    let env = sim.node(1);
    write(&env, "/f", b"old", true);
    env.disk.sync_dir("/".as_ref()).unwrap();
    let file = env.disk.open("/f".as_ref(), OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    sim.disk(1).fail_sync(1);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().expect("the next one claims success");
    assert_eq!(env.disk.read("/f".as_ref()).unwrap(), b"new");
    let env = crash(&sim, CrashMode::Lost);
    assert_eq!(
        env.disk.read("/f".as_ref()).unwrap(),
        b"old",
        "but the pages are lost"
    );
}

#[test]
fn errors_and_room() {
    let sim = Sim::new(6);
    let env = sim.node(1);
    let disk = sim.disk(1);
    disk.fail_at(disk.ops() + 2, DiskError::Full);
    let file = env.disk.open("/f".as_ref(), OpenMode::Create).unwrap();
    assert_eq!(
        file.write_all_at(b"x", 0).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    file.write_all_at(b"x", 0).unwrap();
    disk.capacity(Some(64 * 1024));
    file.allocate(60 * 1024).unwrap();
    assert_eq!(disk.used(), 60 * 1024);
    file.write_all_at(&[1; 60 * 1024], 0).expect("reserved");
    file.write_all_at(&[1; 4096], 60 * 1024).unwrap();
    assert_eq!(
        file.write_all_at(b"x", 64 * 1024).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(
        file.len().unwrap(),
        64 * 1024,
        "a refused write changes nothing"
    );
    env.disk.remove_file("/f".as_ref()).unwrap();
    drop(file);
    env.disk.sync_dir("/".as_ref()).unwrap();
    assert_eq!(disk.used(), 0);
    disk.errors_ppm(1_000_000, 0, 0);
    assert_eq!(
        env.disk.read("/f".as_ref()).unwrap_err().raw_os_error(),
        Some(5)
    );
    disk.heal();
    write(&env, "/g", b"abc", true);
    assert!(disk.rot(Path::new("/g"), 1, 0).unwrap());
    assert_eq!(env.disk.read("/g".as_ref()).unwrap(), b"acc");
    assert!(disk.count(Op::Write) >= 4);
}

#[test]
fn locks_die_with_their_holder() {
    let sim = Sim::new(7);
    let env = sim.node(1);
    let held = env.disk.lock("/lock".as_ref()).unwrap();
    assert_eq!(
        env.disk.lock("/lock".as_ref()).err().unwrap().kind(),
        ErrorKind::WouldBlock
    );
    let env = crash(&sim, CrashMode::Lost);
    let again = env.disk.lock("/lock".as_ref()).unwrap();
    drop(held);
    assert!(
        env.disk.lock("/lock".as_ref()).is_err(),
        "the dead holder frees nothing"
    );
    drop(again);
    env.disk.lock("/lock".as_ref()).unwrap();
}

#[test]
fn a_misdirected_write_shows_after_a_power_cut() {
    for synced in [true, false] {
        let sim = Sim::new(3);
        let env = sim.node(1);
        write(&env, "/f", &[1; 16384], true);
        env.disk.sync_dir("/".as_ref()).unwrap();
        let file = env.disk.open("/f".as_ref(), OpenMode::ReadWrite).unwrap();
        sim.disk(1).misdirect(2);
        file.write_all_at(&[2; 100], 4096).unwrap();
        file.write_all_at(&[3; 100], 8192).unwrap();
        file.write_all_at(&[4; 100], 12288).unwrap();
        if synced {
            file.sync().unwrap();
        }
        let seen = env.disk.read("/f".as_ref()).unwrap();
        assert_eq!(seen[8192], 3, "memory still has it");
        let env = crash(&sim, CrashMode::Kept);
        assert_eq!(
            env.disk.read("/f".as_ref()).unwrap(),
            seen,
            "the machine ran on"
        );
        let env = crash(&sim, CrashMode::Lost);
        let left = env.disk.read("/f".as_ref()).unwrap();
        assert_eq!(left.len(), 16384);
        assert_eq!(left[8192], 1, "never arrived");
        let astray = left.chunks(4096).filter(|page| page[0] == 3).count();
        assert_eq!(
            astray,
            usize::from(synced),
            "arrived elsewhere when it was synced"
        );
        assert_eq!(sim.disk(1).damaged(), 1);
    }
}

#[test]
fn rot_counts_as_damage() {
    let sim = Sim::new(4);
    let env = sim.node(1);
    write(&env, "/f", &[0; 10], true);
    let disk = sim.disk(1);
    assert!(disk.rot("/f".as_ref(), 3, 1).unwrap());
    assert!(!disk.rot("/f".as_ref(), 10, 1).unwrap(), "beyond its end");
    assert_eq!(env.disk.read("/f".as_ref()).unwrap()[3], 2);
    assert_eq!(disk.damaged(), 1);
}
