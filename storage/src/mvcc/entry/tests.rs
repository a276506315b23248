//! Room storage, MVCC: a key's entry against a plain list of its changes.

use super::*;
use proptest::prelude::*;

fn put(main: i64) -> RecordKey {
    RecordKey {
        main,
        sub: 0,
        tombstone: false,
    }
}

fn gone(main: i64) -> RecordKey {
    RecordKey {
        tombstone: true,
        ..put(main)
    }
}

/// etcd's rule said the long way: which records compaction at `at` keeps.
fn kept(changes: &[RecordKey], at: i64) -> Vec<RecordKey> {
    let newest = changes.iter().rfind(|c| c.main <= at);
    let mut kept: Vec<_> = newest
        .into_iter()
        .filter(|c| !c.tombstone || c.main == at)
        .copied()
        .collect();
    kept.extend(changes.iter().filter(|c| c.main > at));
    kept
}

fn live_at(changes: &[RecordKey], at: i64) -> Option<Live> {
    let upto: Vec<_> = changes.iter().filter(|c| c.main <= at).collect();
    let newest = upto.last()?;
    if newest.tombstone {
        return None;
    }
    let life: Vec<_> = upto.iter().rev().take_while(|c| !c.tombstone).collect();
    let created = life.last()?.main;
    Some(Live {
        record: ***life.first()?,
        created,
        version: life.len() as i64,
    })
}

fn build(changes: &[RecordKey]) -> KeyEntry {
    let mut entry = KeyEntry::created(changes[0], 0);
    for change in &changes[1..] {
        if change.tombstone {
            entry.delete(*change)
        } else {
            entry.put(*change, 0)
        }
    }
    entry
}

fn all(entry: &KeyEntry) -> Vec<RecordKey> {
    let mut records = Vec::new();
    entry.changes_between(0, i64::MAX, |r| records.push(r));
    records
}

proptest! {
    #[test]
    fn reads_and_compactions_match_the_plain_list(
        steps in proptest::collection::vec((1i64..4, any::<bool>()), 1..25),
        compactions in proptest::collection::vec(0i64..80, 0..4),
    ) {
        let mut changes: Vec<RecordKey> = Vec::new();
        let mut main = 1;
        for (step, delete) in steps {
            main += step;
            let dead = changes.last().is_none_or(|c| c.tombstone);
            changes.push(if delete && !dead { gone(main) } else { put(main) });
        }
        let mut entry = build(&changes);
        prop_assert_eq!(all(&entry), changes.clone());
        let mut compacted = -1;
        let mut left = changes.clone();
        for at in compactions {
            if at <= compacted || at > main {
                continue;
            }
            compacted = at;
            let keep = kept(&left, at);
            let mut removed = Vec::new();
            let empty = entry.compact(at, |r| removed.push(r));
            removed.sort_unstable();
            let want: Vec<_> = left.iter().filter(|r| !keep.contains(r)).copied().collect();
            prop_assert_eq!(removed, want);
            prop_assert_eq!(empty, keep.is_empty());
            left = keep;
            if empty {
                break;
            }
            prop_assert_eq!(all(&entry), left.clone());
            prop_assert_eq!(entry.heap_bytes() == 0, left.len() == 1);
        }
        for at in compacted.max(0)..=main {
            let want = live_at(&changes, at);
            if !left.is_empty() {
                prop_assert_eq!(entry.live_at(at), want, "at {}", at);
            } else {
                prop_assert_eq!(want, None);
            }
        }
    }

    #[test]
    fn a_rebuilt_entry_answers_like_the_old_one(
        steps in proptest::collection::vec((1i64..4, any::<bool>()), 1..25),
        at in 0i64..80,
    ) {
        let mut changes: Vec<RecordKey> = Vec::new();
        let mut main = 1;
        for (step, delete) in steps {
            main += step;
            let dead = changes.last().is_none_or(|c| c.tombstone);
            changes.push(if delete && !dead { gone(main) } else { put(main) });
        }
        let mut entry = build(&changes);
        let at = at.min(main);
        if entry.compact(at, |_| {}) {
            return Ok(());
        }
        let mut rebuilt: Option<KeyEntry> = None;
        for record in all(&entry) {
            let live = live_at(&changes, record.main);
            let (created, version) = live.map_or((0, 0), |l| (l.created, l.version));
            match &mut rebuilt {
                None => rebuilt = Some(KeyEntry::restored(record, created, version, 0)),
                Some(entry) => entry.restore(record, created, version, 0),
            }
        }
        let rebuilt = rebuilt.expect("it has records");
        for revision in at..=main {
            prop_assert_eq!(rebuilt.live_at(revision), entry.live_at(revision));
        }
        prop_assert_eq!(rebuilt.live(), entry.live());
    }
}
