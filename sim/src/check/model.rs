//! Checker: the model: every key's versions as the timeline makes them, and the rules that one revision's
//! events must keep: versions count up, creations are kept, only what exists is deleted.

use super::timeline::Timeline;
use super::{Finding, Verdict};
use bytes::Bytes;
use std::collections::BTreeMap;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::mvccpb::{Event, KeyValue, event::EventType};

/// All versions of all keys.
#[derive(Clone, Debug, Default)]
pub struct Model {
    keys: BTreeMap<Bytes, Vec<(i64, Option<KeyValue>)>>,
    /// Keys by the lease they are attached to, at the newest revision.
    leased: BTreeMap<i64, std::collections::BTreeSet<Bytes>>,
}

/// Whether `key` is in the interval of etcd's (key, range_end).
pub fn contains(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}

/// Whether the event is a put.
pub fn is_put(event: &Event) -> bool {
    event.r#type == EventType::Put as i32
}

impl Model {
    /// The model of a whole timeline; `compaction` is how far history may have been given up, below which
    /// a previous version may be missing in events.
    pub fn of(timeline: &Timeline, compaction: i64) -> Result<Model, Finding> {
        let mut model = Model::default();
        for (revision, events) in timeline.iter() {
            model.add(revision, events, compaction)?;
        }
        Ok(model)
    }

    /// Adds the next revision.
    pub fn add(&mut self, revision: i64, events: &[Event], compaction: i64) -> Verdict {
        for event in events {
            let kv = event
                .kv
                .as_ref()
                .ok_or(Finding(format!("no key at {revision}")))?;
            let before = self.at(&kv.key, revision).cloned();
            check_event(event, kv, before.as_ref(), compaction)
                .map_err(|e| Finding(format!("revision {revision}, key {:?}: {e}", kv.key)))?;
            if let Some(old) = before.filter(|old| old.lease != 0) {
                self.leased.entry(old.lease).or_default().remove(&kv.key);
            }
            if is_put(event) && kv.lease != 0 {
                self.leased
                    .entry(kv.lease)
                    .or_default()
                    .insert(kv.key.clone());
            }
            let version = is_put(event).then(|| kv.clone());
            self.keys
                .entry(kv.key.clone())
                .or_default()
                .push((revision, version));
        }
        Ok(())
    }

    /// The key as it was after `revision`.
    pub fn at(&self, key: &[u8], revision: i64) -> Option<&KeyValue> {
        let versions = self.keys.get(key)?;
        let upto = versions.partition_point(|(r, _)| *r <= revision);
        versions[..upto].last()?.1.as_ref()
    }

    /// The keys of an interval as they were after `revision`, ascending.
    pub fn range(&self, start: &[u8], end: &[u8], revision: i64) -> Vec<&KeyValue> {
        let inside = self.keys.keys().filter(|key| contains(start, end, key));
        inside.filter_map(|key| self.at(key, revision)).collect()
    }

    /// Keys attached to a lease at the newest revision, ascending.
    pub fn keys_of(&self, lease: i64) -> Vec<Bytes> {
        self.leased
            .get(&lease)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Leases with keys at the newest revision.
    pub fn leases_with_keys(&self) -> Vec<i64> {
        self.leased
            .iter()
            .filter(|(_, keys)| !keys.is_empty())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Whether a transaction's conditions hold after `revision`.
    pub fn holds(&self, compares: &[pb::Compare], revision: i64) -> bool {
        compares
            .iter()
            .all(|compare| self.compare_holds(compare, revision))
    }

    fn compare_holds(&self, compare: &pb::Compare, revision: i64) -> bool {
        use pb::compare::{CompareResult, TargetUnion};
        let found = self.at(&compare.key, revision);
        let order = match &compare.target_union {
            Some(TargetUnion::Version(n)) => found.map_or(0, |kv| kv.version).cmp(n),
            Some(TargetUnion::CreateRevision(n)) => found.map_or(0, |kv| kv.create_revision).cmp(n),
            Some(TargetUnion::ModRevision(n)) => found.map_or(0, |kv| kv.mod_revision).cmp(n),
            Some(TargetUnion::Lease(n)) => found.map_or(0, |kv| kv.lease).cmp(n),
            Some(TargetUnion::Value(v)) => match found {
                Some(kv) => kv.value.cmp(v),
                None => return false,
            },
            None => return false,
        };
        match CompareResult::try_from(compare.result) {
            Ok(CompareResult::Equal) => order.is_eq(),
            Ok(CompareResult::NotEqual) => order.is_ne(),
            Ok(CompareResult::Greater) => order.is_gt(),
            Ok(CompareResult::Less) => order.is_lt(),
            Err(_) => false,
        }
    }
}

fn check_event(
    event: &Event,
    kv: &KeyValue,
    before: Option<&KeyValue>,
    compaction: i64,
) -> Result<(), String> {
    match (&event.prev_kv, before) {
        (Some(told), held) if held != Some(told) => {
            return Err(format!("previous version {told:?}, expected {held:?}"));
        }
        (None, Some(held)) if kv.mod_revision > compaction => {
            return Err(format!("previous version missing, expected {held:?}"));
        }
        _ => {}
    }
    match (is_put(event), before) {
        (true, Some(old)) => {
            let next = (old.create_revision, old.version + 1);
            (next == (kv.create_revision, kv.version))
                .then_some(())
                .ok_or(format!("{kv:?} follows {old:?}"))
        }
        (true, None) => (kv.version == 1 && kv.create_revision == kv.mod_revision)
            .then_some(())
            .ok_or(format!("{kv:?} creates the key")),
        (false, Some(_)) => Ok(()),
        (false, None) => Err("deleted but did not exist".to_owned()),
    }
}
