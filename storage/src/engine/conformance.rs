//! Room storage, engines: what every engine must do, run on each of them.

use super::memory;
use super::redb::RedbEngine;
use super::*;
use crate::wal::tests::disk::FakeDisk;
use std::path::Path;
use tenon_env::Disk;

fn key(main: i64, sub: u32) -> RecordKey {
    RecordKey {
        main,
        sub,
        tombstone: false,
    }
}

fn gone(main: i64, sub: u32) -> RecordKey {
    RecordKey {
        tombstone: true,
        ..key(main, sub)
    }
}

fn record(key: RecordKey) -> (RecordKey, Bytes) {
    (key, format!("{}/{}", key.main, key.sub).into())
}

fn row(table: Table, key: &'static str, value: Option<&'static str>) -> RowChange {
    let value = value.map(Bytes::from);
    RowChange {
        table,
        key: key.into(),
        value,
    }
}

fn positions(view: &dyn View, from: (i64, u32), to: (i64, u32)) -> Vec<RecordKey> {
    let mut seen = Vec::new();
    let visit = &mut |key: RecordKey, value: &[u8]| {
        assert_eq!((key, value), (key, &record(key).1[..]));
        seen.push(key);
        ControlFlow::Continue(())
    };
    view.scan(from, to, visit).expect("a scan");
    seen
}

fn records_and_scans(engine: &dyn Engine) {
    let keys = [key(2, 0), key(2, 1), gone(2, 2), key(3, 0), gone(300, 0)];
    let records = keys.iter().map(|key| record(*key)).collect();
    engine
        .commit(&Batch {
            records,
            ..Batch::default()
        })
        .expect("a commit");
    let view = engine.view().expect("a view");
    assert_eq!(
        view.record(key(2, 1)).expect("get"),
        Some(record(key(2, 1)).1)
    );
    assert_eq!(
        view.record(gone(300, 0)).expect("get"),
        Some(record(gone(300, 0)).1)
    );
    assert_eq!(
        view.record(key(300, 0)).expect("get"),
        None,
        "the mark is part of the key"
    );
    assert_eq!(view.record(key(4, 0)).expect("get"), None);
    assert_eq!(positions(&*view, (0, 0), (i64::MAX, u32::MAX)), keys);
    assert_eq!(positions(&*view, (2, 1), (3, 0)), [key(2, 1), gone(2, 2)]);
    assert_eq!(positions(&*view, (2, 2), (300, 0)), [gone(2, 2), key(3, 0)]);
    assert_eq!(positions(&*view, (5, 0), (4, 0)), []);
    let mut visited = 0;
    let stop = &mut |_: RecordKey, _: &[u8]| {
        visited += 1;
        ControlFlow::Break(())
    };
    view.scan((0, 0), (9, 0), stop).expect("a scan");
    assert_eq!(visited, 1);
}

fn removals_do_not_show_in_older_views(engine: &dyn Engine) {
    let before = engine.view().expect("a view");
    let removed_bytes = engine.size().removed_bytes;
    let batch = Batch {
        records: vec![record(key(301, 0))],
        removed: vec![key(2, 1), gone(2, 2), key(77, 0)],
        rows: vec![row(Table::Meta, "position", Some("301"))],
    };
    engine.commit(&batch).expect("a commit");
    let after = engine.view().expect("a view");
    let all = ((0, 0), (i64::MAX, u32::MAX));
    assert_eq!(positions(&*before, all.0, all.1).len(), 5);
    assert_eq!(before.row(Table::Meta, b"position").expect("row"), None);
    let left = [key(2, 0), key(3, 0), gone(300, 0), key(301, 0)];
    assert_eq!(positions(&*after, all.0, all.1), left);
    assert_eq!(
        after.row(Table::Meta, b"position").expect("row"),
        Some("301".into())
    );
    assert_eq!(
        engine.size().removed_bytes - removed_bytes,
        2 * (3 + RECORD_COST)
    );
    engine.commit(&batch).expect("the same again is no error");
    assert_eq!(
        engine.size().removed_bytes - removed_bytes,
        2 * (3 + RECORD_COST)
    );
}

fn rows_are_sorted_and_the_last_change_wins(engine: &dyn Engine) {
    let rows = vec![
        row(Table::Leases, "b", Some("1")),
        row(Table::Leases, "a", Some("1")),
        row(Table::Members, "a", Some("other table")),
        row(Table::Leases, "b", Some("2")),
        row(Table::Leases, "c", Some("1")),
        row(Table::Leases, "c", None),
        row(Table::Leases, "never", None),
    ];
    engine
        .commit(&Batch {
            rows,
            ..Batch::default()
        })
        .expect("a commit");
    let view = engine.view().expect("a view");
    let want = vec![("a".into(), "1".into()), ("b".into(), "2".into())];
    assert_eq!(view.rows(Table::Leases).expect("rows"), want);
    assert_eq!(view.row(Table::Leases, b"c").expect("row"), None);
    assert_eq!(view.rows(Table::Alarms).expect("rows"), []);
    assert!(engine.size().allocated > 0);
    engine.settle().expect("nothing is stalled");
}

fn rows_of_an_older_view_stand_still(engine: &dyn Engine) {
    let numbered = |value: &'static str| Batch {
        rows: (0..600)
            .map(|i| RowChange {
                table: Table::Auth,
                key: format!("{i:03}").into(),
                value: (i % 3 > 0 || value == "1").then(|| value.into()),
            })
            .collect(),
        ..Batch::default()
    };
    engine.commit(&numbered("1")).expect("a commit");
    let older = engine.view().expect("a view");
    engine.commit(&numbered("2")).expect("a commit");
    let newer = engine.view().expect("a view");
    let all = |view: &dyn View| view.rows(Table::Auth).expect("rows");
    assert_eq!(all(&*older).len(), 600);
    assert!(all(&*older).iter().all(|(_, value)| value == "1"));
    assert_eq!(all(&*newer).len(), 400);
    assert!(all(&*newer).iter().all(|(_, value)| value == "2"));
    assert_eq!(
        older.row(Table::Auth, b"000").expect("row"),
        Some("1".into())
    );
    assert_eq!(newer.row(Table::Auth, b"000").expect("row"), None);
    let mut seen = Vec::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        seen.push(key.to_vec());
        match seen.len() {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    newer
        .scan_rows(Table::Auth, Some(b"300"), visit)
        .expect("rows");
    assert_eq!(seen, [b"301".to_vec(), b"302".to_vec()]);
    drop(older);
    engine.commit(&numbered("3")).expect("a commit");
    assert!(all(&*newer).iter().all(|(_, value)| value == "2"));
}

fn what_nobody_sees_any_more_goes(engine: &dyn Engine) {
    let main = 1000;
    let records = (0..700).map(|sub| record(key(main, sub))).collect();
    let added = Batch {
        records,
        ..Batch::default()
    };
    engine.commit(&added).expect("a commit");
    let older = engine.view().expect("a view");
    let removed = Batch {
        removed: (0..699).map(|sub| key(main, sub)).collect(),
        ..Batch::default()
    };
    engine.commit(&removed).expect("a commit");
    for later in 0..3 {
        let one = Batch {
            records: vec![record(key(main + 1, later))],
            ..Batch::default()
        };
        engine.commit(&one).expect("a commit");
        let here = ((main, 0), (main + 1, 0));
        assert_eq!(positions(&*older, here.0, here.1).len(), 700);
        let newer = engine.view().expect("a view");
        assert_eq!(positions(&*newer, here.0, here.1), [key(main, 699)]);
        assert_eq!(
            older.record(key(main, 0)).expect("get"),
            Some(record(key(main, 0)).1)
        );
        assert_eq!(newer.record(key(main, 0)).expect("get"), None);
        assert_eq!(positions(&*older, (main + 1, 0), (main + 2, 0)), []);
    }
}

fn suite(engine: &dyn Engine) {
    records_and_scans(engine);
    removals_do_not_show_in_older_views(engine);
    rows_are_sorted_and_the_last_change_wins(engine);
    rows_of_an_older_view_stand_still(engine);
    what_nobody_sees_any_more_goes(engine);
}

fn redb(disk: &FakeDisk) -> RedbEngine {
    disk.create_dir_all(Path::new("/e")).expect("a folder");
    RedbEngine::open(disk, Path::new("/e/db"), 1 << 20).expect("it opens")
}

#[test]
fn memory_conforms_and_lets_go() {
    let engine = memory::engine();
    suite(&engine);
    assert_eq!(engine.durability(), Durability::Checkpoint);
    let before = engine.size().allocated;
    engine.commit(&Batch::default()).expect("a commit");
    let after = engine.size().allocated;
    assert!(
        after < before && after < 60_000,
        "no view holds the removed records: {before} to {after} bytes"
    );
}

#[cfg(feature = "engine-sled")]
#[test]
fn sled_conforms_and_begins_empty() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("sled-0");
    let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::new(tenon_env::real::RealDisk);
    let engine = super::sled::engine(&disk, &folder, 1 << 20).expect("it opens");
    suite(&engine);
    assert_eq!(engine.durability(), Durability::Checkpoint);
    std::mem::forget(engine.view());
    std::mem::forget(engine);
    // As after a kill, in another process: the first one's files are still there, and locked no more.
    let other = dir.path().join("sled-1");
    disk.rename(&folder, &other).expect("renamed");
    let again = super::sled::engine(&disk, &other, 1 << 20).expect("it opens");
    let view = again.view().expect("a view");
    assert_eq!(positions(&*view, (0, 0), (i64::MAX, 0)), []);
    assert_eq!(view.rows(Table::Leases).expect("rows"), []);
    drop((view, again));
    let left = disk.stat(&other).expect("a folder above");
    assert_eq!(left, None, "an engine's files go with it");
}

#[test]
fn redb_conforms_and_keeps_it_all() {
    let disk = FakeDisk::default();
    let engine = redb(&disk);
    suite(&engine);
    let sum = |engine: &dyn Engine| {
        let view = engine.view().expect("a view");
        let rows = Table::ALL.map(|table| view.rows(table).expect("rows"));
        (positions(&*view, (0, 0), (i64::MAX, 0)), rows)
    };
    let before = sum(&engine);
    drop(engine);
    assert_eq!(sum(&redb(&disk)), before);
}
