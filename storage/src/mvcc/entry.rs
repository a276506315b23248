//! Room storage, MVCC: where the changes of one key are. Pure data; the key's bytes stand beside it in
//! the index.

use crate::engine::RecordKey;

/// A finished life of a key, from its creation (or what compaction left of it) to its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generation {
    /// Main revision of the creation.
    created: i64,
    /// Puts of this life, plus one for the deletion.
    changes: i64,
    /// Ascending, never empty; the last one, and only it, is a tombstone.
    records: Vec<RecordKey>,
}

/// What most keys do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Older {
    /// Changes of the newest life before its newest change, ascending; no tombstones.
    records: Vec<RecordKey>,
    /// Lives before the newest, ascending.
    generations: Vec<Generation>,
}

/// The changes of one key.
///
/// - All positions ascend: `older.generations`, then `older.records`, then `newest`.
/// - A tombstone ends a life; only the newest record of a life can be one.
/// - `lease` is that of the newest put; 0 after a deletion.
///
/// A key with one life and one record, the common case, takes 48 bytes and no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    newest: RecordKey,
    /// Main revision at which the newest life began.
    created: i64,
    /// Puts of the newest life, plus one when a deletion ended it.
    changes: i64,
    lease: i64,
    older: Option<Box<Older>>,
}

/// A key as it stands at some revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Where the pair's record is; never a tombstone.
    pub record: RecordKey,
    /// Main revision of the creation.
    pub created: i64,
    /// Version: puts since the creation, from 1.
    pub version: i64,
}

impl KeyEntry {
    /// A key put for the first time.
    pub fn created(record: RecordKey, lease: i64) -> KeyEntry {
        KeyEntry {
            newest: record,
            created: record.main,
            changes: 1,
            lease,
            older: None,
        }
    }

    /// The first record met of a key when the index is rebuilt: earlier ones may have been compacted,
    /// so creation and version come from the record. For a tombstone only its own position is known.
    pub fn restored(record: RecordKey, created: i64, version: i64, lease: i64) -> KeyEntry {
        if record.tombstone {
            return KeyEntry {
                newest: record,
                created: record.main,
                changes: 1,
                lease: 0,
                older: None,
            };
        }
        KeyEntry {
            newest: record,
            created,
            changes: version,
            lease,
            older: None,
        }
    }

    /// A record that follows in the rebuild of the index.
    pub fn restore(&mut self, record: RecordKey, created: i64, version: i64, lease: i64) {
        if record.tombstone {
            self.delete(record);
            return;
        }
        self.put(record, lease);
        // Compaction may have taken the head of the life this record belongs to.
        self.created = created;
        self.changes = version;
    }

    /// Adds a put; its creation revision and version are in [`KeyEntry::live`] afterwards.
    pub fn put(&mut self, record: RecordKey, lease: i64) {
        self.push(record, lease);
    }

    /// Ends the newest life. Only a damaged history deletes twice; the positions are kept, they are on disk.
    pub fn delete(&mut self, record: RecordKey) {
        self.push(record, 0);
    }

    /// Adds a record after the newest; after a tombstone it begins a life.
    fn push(&mut self, record: RecordKey, lease: i64) {
        assert!(
            record.position() > self.newest.position(),
            "positions of a key ascend"
        );
        if self.newest.tombstone {
            self.close_generation();
            self.created = record.main;
            self.changes = 1;
        } else {
            let newest = self.newest;
            self.older_mut().records.push(newest);
            self.changes += 1;
        }
        self.newest = record;
        self.lease = lease;
    }

    fn older_mut(&mut self) -> &mut Older {
        self.older.get_or_insert_default()
    }

    fn close_generation(&mut self) {
        let (created, changes, newest) = (self.created, self.changes, self.newest);
        let older = self.older_mut();
        let mut records = std::mem::take(&mut older.records);
        records.push(newest);
        older.generations.push(Generation {
            created,
            changes,
            records,
        });
    }

    /// The pair now; `None` when the key is deleted.
    pub fn live(&self) -> Option<Live> {
        if self.newest.tombstone {
            return None;
        }
        Some(Live {
            record: self.newest,
            created: self.created,
            version: self.changes,
        })
    }

    /// The lease of the pair now; 0 when there is none.
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// The pair at main revision `at`; `None` when the key did not exist then.
    pub fn live_at(&self, at: i64) -> Option<Live> {
        if self.newest.main <= at {
            return self.live();
        }
        let older = self.older.as_deref()?;
        if let Some(i) = last_at_or_below(&older.records, at) {
            let later = (older.records.len() - i) as i64;
            let (record, created) = (older.records[i], self.created);
            return Some(Live {
                record,
                created,
                version: self.changes - later,
            });
        }
        for generation in older.generations.iter().rev() {
            let Some(i) = last_at_or_below(&generation.records, at) else {
                continue;
            };
            let record = generation.records[i];
            if record.tombstone {
                return None;
            }
            let later = (generation.records.len() - 1 - i) as i64;
            let version = generation.changes - later;
            return Some(Live {
                record,
                created: generation.created,
                version,
            });
        }
        None
    }

    /// Main revision of the newest change, deletions included.
    pub fn modified(&self) -> i64 {
        self.newest.main
    }

    /// Calls `visit` with every change with `from <= main <= to`, ascending.
    pub fn changes_between(&self, from: i64, to: i64, mut visit: impl FnMut(RecordKey)) {
        if self.newest.main < from {
            return;
        }
        let older = self.older.as_deref();
        let generations = older
            .iter()
            .flat_map(|o| &o.generations)
            .flat_map(|g| &g.records);
        let records = older.iter().flat_map(|o| &o.records);
        for record in generations.chain(records).chain([&self.newest]) {
            if from <= record.main && record.main <= to {
                visit(*record);
            }
        }
    }

    /// Whether compaction at any revision could take something from this entry.
    pub fn is_settled(&self) -> bool {
        self.older.is_none() && !self.newest.tombstone
    }

    /// Drops what compaction at `at` passed and hands every dropped record to `removed`. Answers
    /// whether the entry is empty now and must leave the index.
    pub fn compact(&mut self, at: i64, mut removed: impl FnMut(RecordKey)) -> bool {
        if self.is_settled() {
            return false;
        }
        let mut in_older_life = false;
        if let Some(older) = self.older.as_deref_mut() {
            // Lives that ended before `at` go whole; one that ended at or after it stays, cut.
            let whole = older.generations.partition_point(|g| end_of(g).main < at);
            for generation in older.generations.drain(..whole) {
                generation.records.into_iter().for_each(&mut removed);
            }
            older.generations.shrink_to_fit();
            if let Some(first) = older.generations.first_mut() {
                cut(&mut first.records, at, &mut removed);
                in_older_life = true;
            }
        }
        if !in_older_life && self.compact_newest_life(at, &mut removed) {
            return true;
        }
        if self
            .older
            .as_ref()
            .is_some_and(|o| o.records.is_empty() && o.generations.is_empty())
        {
            self.older = None;
        }
        false
    }

    /// Compaction of the newest life, when no earlier one is left. Answers whether nothing is left.
    fn compact_newest_life(&mut self, at: i64, removed: &mut impl FnMut(RecordKey)) -> bool {
        let gone = self.newest.tombstone && self.newest.main < at;
        if self.newest.main <= at {
            if let Some(older) = self.older.as_deref_mut() {
                older.records.drain(..).for_each(&mut *removed);
                older.records.shrink_to_fit();
            }
        } else if let Some(older) = self.older.as_deref_mut() {
            cut(&mut older.records, at, removed);
        }
        if gone {
            removed(self.newest);
        }
        gone
    }

    /// Bytes of heap memory behind this entry.
    pub fn heap_bytes(&self) -> usize {
        let size = size_of::<RecordKey>();
        self.older.as_deref().map_or(0, |older| {
            let lives: usize = older
                .generations
                .iter()
                .map(|g| size_of::<Generation>() + g.records.capacity() * size)
                .sum();
            size_of::<Older>() + older.records.capacity() * size + lives
        })
    }
}

fn end_of(generation: &Generation) -> RecordKey {
    *generation.records.last().expect("a generation has records")
}

/// Index of the newest record with main at or below `at`.
fn last_at_or_below(records: &[RecordKey], at: i64) -> Option<usize> {
    records.partition_point(|r| r.main <= at).checked_sub(1)
}

/// Drops the records before the newest one at or below `at`.
fn cut(records: &mut Vec<RecordKey>, at: i64, removed: &mut impl FnMut(RecordKey)) {
    if let Some(keep) = last_at_or_below(records, at)
        && keep > 0
    {
        records.drain(..keep).for_each(removed);
        records.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
