//! Room storage, MVCC: the order, filters and cut of a range answer. Pure functions over pairs.

use tenon_proto::etcdserverpb::RangeRequest;
use tenon_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use tenon_proto::mvccpb::KeyValue;

/// How a range request wants its answer, read once. Enum numbers outside the schema were refused
/// before ([`crate::check`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Most pairs to answer; `None` = all.
    pub limit: Option<usize>,
    /// Only the number of keys is wanted.
    pub count_only: bool,
    /// Values are left out.
    pub keys_only: bool,
    sort: Option<(SortTarget, Direction)>,
    fetch_all: bool,
    modified: (i64, i64),
    created: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Selection {
    /// Reads the request.
    ///
    /// - Order NONE with a target other than KEY sorts upward, but only what the limit let through
    ///   in key order (one pair more than the limit).
    /// - An explicit order fetches everything, but for KEY upward, which is the natural order.
    pub fn new(request: &RangeRequest) -> Selection {
        let (order, target) = (request.sort_order(), request.sort_target());
        let sort = match (order, target) {
            (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => None,
            (SortOrder::None | SortOrder::Ascend, other) => Some((other, Direction::Up)),
            (SortOrder::Descend, other) => Some((other, Direction::Down)),
        };
        let modified = (request.min_mod_revision, request.max_mod_revision);
        let created = (request.min_create_revision, request.max_create_revision);
        let filtered = modified != (0, 0) || created != (0, 0);
        Selection {
            limit: usize::try_from(request.limit)
                .ok()
                .filter(|limit| *limit > 0),
            count_only: request.count_only,
            keys_only: request.keys_only,
            sort,
            fetch_all: filtered || (order != SortOrder::None && sort.is_some()),
            modified,
            created,
        }
    }

    /// How many pairs to fetch in key order: one more than the limit tells whether there is more.
    /// `None` = all.
    pub fn fetch(&self) -> Option<usize> {
        if self.fetch_all {
            return None;
        }
        self.limit.map(|limit| limit.saturating_add(1))
    }

    /// Whether the values themselves are looked at or answered; without them the index is enough.
    pub fn needs_values(&self) -> bool {
        !self.keys_only || matches!(self.sort, Some((SortTarget::Value, _)))
    }

    /// Filters, sorts and cuts `kvs`, given in key order; answers whether the limit cut any off.
    pub fn finish(&self, kvs: &mut Vec<KeyValue>) -> bool {
        kvs.retain(|kv| inside(kv.mod_revision, self.modified));
        kvs.retain(|kv| inside(kv.create_revision, self.created));
        if let Some((target, direction)) = self.sort {
            sort(kvs, target, direction);
        }
        let more = self.limit.is_some_and(|limit| kvs.len() > limit);
        if let Some(limit) = self.limit {
            kvs.truncate(limit);
        }
        if self.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        more
    }
}

/// Whether a revision passes a filter; 0 = that side is open.
fn inside(revision: i64, (min, max): (i64, i64)) -> bool {
    (min == 0 || revision >= min) && (max == 0 || revision <= max)
}

fn sort(kvs: &mut [KeyValue], target: SortTarget, direction: Direction) {
    kvs.sort_by(|a, b| {
        let order = match target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        match direction {
            Direction::Up => order,
            Direction::Down => order.reverse(),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs() -> Vec<KeyValue> {
        let rows = [
            ("a", 2, 9, 5, "x"),
            ("b", 3, 3, 1, "z"),
            ("c", 4, 8, 2, "y"),
        ];
        let pair =
            |(key, created, modified, version, value): (&str, i64, i64, i64, &str)| KeyValue {
                key: key.to_owned().into(),
                create_revision: created,
                mod_revision: modified,
                version,
                value: value.to_owned().into(),
                lease: 0,
            };
        rows.into_iter().map(pair).collect()
    }

    fn run(request: RangeRequest) -> (String, bool) {
        let selection = Selection::new(&request);
        let mut kvs = pairs();
        kvs.truncate(selection.fetch().unwrap_or(usize::MAX));
        let more = selection.finish(&mut kvs);
        let keys = kvs
            .iter()
            .map(|kv| std::str::from_utf8(&kv.key).expect("a name"));
        (keys.collect(), more)
    }

    #[test]
    fn orders_filters_and_cuts() {
        let base = RangeRequest::default();
        let by = |order: SortOrder, target: SortTarget, limit: i64| RangeRequest {
            sort_order: order as i32,
            sort_target: target as i32,
            limit,
            ..base.clone()
        };
        use {SortOrder as O, SortTarget as T};
        let table = [
            (base.clone(), "abc", false),
            (by(O::Descend, T::Key, 0), "cba", false),
            (by(O::Descend, T::Key, 1), "c", true),
            (by(O::Ascend, T::Key, 2), "ab", true),
            (by(O::Ascend, T::Key, 3), "abc", false),
            (by(O::Ascend, T::Mod, 1), "b", true),
            (by(O::Descend, T::Create, 0), "cba", false),
            (by(O::Ascend, T::Version, 0), "bca", false),
            (by(O::Descend, T::Value, 0), "bca", false),
            // Order NONE, other target: the first limit+1 keys are sorted, then cut.
            (by(O::None, T::Version, 1), "b", true),
            (by(O::None, T::Mod, 2), "bc", true),
            (by(O::None, T::Value, -1), "acb", false),
            (
                RangeRequest {
                    min_mod_revision: 8,
                    limit: 1,
                    ..base.clone()
                },
                "a",
                true,
            ),
            (
                RangeRequest {
                    max_create_revision: 3,
                    limit: 2,
                    ..base.clone()
                },
                "ab",
                false,
            ),
            (
                RangeRequest {
                    min_create_revision: 3,
                    max_mod_revision: 8,
                    ..base.clone()
                },
                "bc",
                false,
            ),
        ];
        for (request, keys, more) in table {
            assert_eq!(run(request.clone()), (keys.to_owned(), more), "{request:?}");
        }
    }

    #[test]
    fn values_are_needed_only_when_seen() {
        let keys_only = RangeRequest {
            keys_only: true,
            ..RangeRequest::default()
        };
        assert!(!Selection::new(&keys_only).needs_values());
        let by_value = RangeRequest {
            sort_target: SortTarget::Value as i32,
            ..keys_only
        };
        assert!(Selection::new(&by_value).needs_values());
        let mut kvs = pairs();
        Selection::new(&by_value).finish(&mut kvs);
        assert!(kvs.iter().all(|kv| kv.value.is_empty()));
    }
}
