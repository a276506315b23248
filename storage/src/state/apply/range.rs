//! Room storage, apply: reading under the lock: the ranges and compares of transactions.

use super::writing::pair;
use super::{Answer, header};
use crate::check;
use crate::mvcc::entry::{KeyEntry, Live};
use crate::mvcc::index::Interval;
use crate::mvcc::read_cache::ReadCache;
use crate::mvcc::select::Selection;
use crate::state::core::{State, fetch};
use crate::state::scan::{self, Want};
use crate::state::store::Fatal;
use std::cmp::Ordering;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use tenon_proto::etcdserverpb::{Compare, RangeRequest, RangeResponse};

/// Whether a range may be read when the store stands at `revision`.
pub(crate) fn check_revision(
    request: &RangeRequest,
    revision: i64,
    compacted: i64,
) -> Result<(), Error> {
    check::range(request)?;
    if request.revision > revision {
        return Err(Error::FutureRev);
    }
    if request.revision > 0 && request.revision < compacted {
        return Err(Error::Compacted);
    }
    Ok(())
}

/// As [`check_revision`] for a range inside a transaction, where etcd takes a negative revision for one before the
/// compacted one, which is -1 before any compaction; elsewhere it means the newest.
pub(crate) fn check_revision_in_txn(
    request: &RangeRequest,
    revision: i64,
    compacted: i64,
) -> Result<(), Error> {
    check_revision(request, revision, compacted)?;
    if request.revision < 0 && request.revision < compacted {
        return Err(Error::Compacted);
    }
    Ok(())
}

/// A whole range under the lock; `revision` is where the reader stands.
pub(super) fn range_locked(
    state: &State,
    cache: &ReadCache,
    request: &RangeRequest,
    revision: i64,
) -> Answer<RangeResponse> {
    let selection = Selection::new(request);
    let interval = Interval::new(&request.key, &request.range_end);
    let want = Want {
        at: (request.revision > 0).then_some(request.revision),
        values: selection.needs_values(),
        items_max: if selection.count_only {
            0
        } else {
            selection.fetch().unwrap_or(usize::MAX)
        },
        keys_max: usize::MAX,
        count: true,
    };
    let chunk = scan::collect(state, interval, None, &want);
    let mut kvs = scan::resolve(chunk.items, cache, &*state.view)?;
    let more = selection.finish(&mut kvs);
    Ok(RangeResponse {
        header: header(revision),
        kvs,
        more,
        count: chunk.counted,
    })
}

/// Whether all compares hold on the state as it is.
pub(crate) fn compare_all(
    state: &State,
    cache: &ReadCache,
    compares: &[Compare],
) -> Result<bool, Fatal> {
    for compare in compares {
        if !holds(state, cache, compare)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A compare must hold for every pair of its interval. Without any pair the numbers count as 0, and a
/// compare of values is false, whatever it asks.
fn holds(state: &State, cache: &ReadCache, compare: &Compare) -> Result<bool, Fatal> {
    let interval = Interval::new(&compare.key, &compare.range_end);
    let mut any = false;
    for (_, entry) in state.index.range(interval) {
        let Some(live) = entry.live() else {
            continue;
        };
        any = true;
        let order = match compare.target() {
            CompareTarget::Value if known_target(compare) => {
                let record = fetch(&state.recent, cache, &*state.view, live.record)?;
                let asked = match &compare.target_union {
                    Some(TargetUnion::Value(value)) => &value[..],
                    _ => &[],
                };
                pair(&record)?.value[..].cmp(asked)
            }
            _ => compare_number(compare, Some((live, entry))),
        };
        if !satisfies(compare, order) {
            return Ok(false);
        }
    }
    if any {
        return Ok(true);
    }
    let by_value = known_target(compare) && compare.target() == CompareTarget::Value;
    Ok(!by_value && satisfies(compare, compare_number(compare, None)))
}

fn known_target(compare: &Compare) -> bool {
    CompareTarget::try_from(compare.target).is_ok()
}

/// Orders a number of the pair against the asked one, which is 0 when it is missing or of another
/// kind. Targets outside the schema compare as equal.
fn compare_number(compare: &Compare, found: Option<(Live, &KeyEntry)>) -> Ordering {
    use CompareTarget as Target;
    let live = found.map(|(live, _)| live);
    let (number, asked) = match (
        CompareTarget::try_from(compare.target),
        &compare.target_union,
    ) {
        (Ok(Target::Version), asked) => (
            live.map(|live| live.version),
            asked.as_ref().map(|a| {
                if let TargetUnion::Version(n) = a {
                    *n
                } else {
                    0
                }
            }),
        ),
        (Ok(Target::Create), asked) => (
            live.map(|live| live.created),
            asked.as_ref().map(|a| {
                if let TargetUnion::CreateRevision(n) = a {
                    *n
                } else {
                    0
                }
            }),
        ),
        (Ok(Target::Mod), asked) => (
            live.map(|live| live.record.main),
            asked.as_ref().map(|a| {
                if let TargetUnion::ModRevision(n) = a {
                    *n
                } else {
                    0
                }
            }),
        ),
        (Ok(Target::Lease), asked) => (
            found.map(|(_, entry)| entry.lease()),
            asked
                .as_ref()
                .map(|a| if let TargetUnion::Lease(n) = a { *n } else { 0 }),
        ),
        (Ok(Target::Value) | Err(_), _) => (None, None),
    };
    number.unwrap_or(0).cmp(&asked.unwrap_or(0))
}

/// Result numbers outside the schema are satisfied by anything, as in etcd.
fn satisfies(compare: &Compare, order: Ordering) -> bool {
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => order == Ordering::Equal,
        Ok(CompareResult::NotEqual) => order != Ordering::Equal,
        Ok(CompareResult::Greater) => order == Ordering::Greater,
        Ok(CompareResult::Less) => order == Ordering::Less,
        Err(_) => true,
    }
}
