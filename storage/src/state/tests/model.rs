//! Room storage, state: the naive model: every revision's whole content, kept for ever.

use std::collections::{BTreeMap, BTreeSet};
use tenon_proto::command::command::Body;
use tenon_proto::command::command_result::Outcome;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use tenon_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::response_op::Response;
use tenon_proto::etcdserverpb::*;
use tenon_proto::mvccpb::KeyValue;

type Content = BTreeMap<Vec<u8>, KeyValue>;

/// A change: revision, the pair (a deletion's has key and revision only), whether it is a deletion.
pub(super) type Change = (i64, KeyValue, bool);

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub revision: i64,
    pub compacted: i64,
    content: Content,
    past: BTreeMap<i64, Content>,
    pub changes: Vec<Change>,
    leases: BTreeSet<i64>,
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

fn inside(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            revision: 1,
            compacted: -1,
            content: Content::new(),
            past: BTreeMap::from([(1, Content::new())]),
            changes: Vec::new(),
            leases: BTreeSet::new(),
        }
    }

    /// Runs a command on a copy, which a refusal throws away.
    pub(super) fn apply(&mut self, body: &Body) -> Result<Outcome, Error> {
        let mut next = self.clone();
        let main = self.revision + 1;
        let outcome = match body {
            Body::Put(request) => {
                if request.lease != 0 && !self.leases.contains(&request.lease) {
                    return Err(Error::LeaseNotFound);
                }
                Outcome::Put(next.put(request, main)?)
            }
            Body::DeleteRange(request) => Outcome::DeleteRange(next.delete(request, main)),
            Body::Txn(request) => {
                let mut response = next.txn(request, &self.clone(), main)?;
                response.header = header(next.revision);
                Outcome::Txn(response)
            }
            Body::Compact(request) => {
                if request.revision <= self.compacted {
                    return Err(Error::Compacted);
                }
                if request.revision > self.revision {
                    return Err(Error::FutureRev);
                }
                next.compacted = request.revision;
                Outcome::Compact(CompactionResponse {
                    header: header(self.revision),
                })
            }
            Body::LeaseGrant(request) => {
                if !next.leases.insert(request.id) {
                    return Err(Error::LeaseExist);
                }
                let (header, error) = (header(self.revision), String::new());
                let (id, ttl) = (request.id, request.ttl);
                Outcome::LeaseGrant(LeaseGrantResponse {
                    header,
                    id,
                    ttl,
                    error,
                })
            }
            Body::LeaseRevoke(request) => {
                if !next.leases.remove(&request.id) {
                    return Err(Error::LeaseNotFound);
                }
                let attached = self.content.values().filter(|kv| kv.lease == request.id);
                for kv in attached {
                    next.remove(&kv.key, main);
                }
                Outcome::LeaseRevoke(LeaseRevokeResponse {
                    header: header(next.revision),
                })
            }
            other => panic!("the model does not know {other:?}"),
        };
        next.past.insert(next.revision, next.content.clone());
        *self = next;
        Ok(outcome)
    }

    fn put(&mut self, request: &PutRequest, main: i64) -> Result<PutResponse, Error> {
        let before = self.content.get(&request.key[..]).cloned();
        let mut kv = KeyValue {
            key: request.key.clone(),
            create_revision: main,
            mod_revision: main,
            version: 1,
            value: request.value.clone(),
            lease: request.lease,
        };
        match &before {
            Some(before) => {
                kv.create_revision = before.create_revision;
                kv.version = before.version + 1;
                if request.ignore_value {
                    kv.value = before.value.clone();
                }
                if request.ignore_lease {
                    kv.lease = before.lease;
                }
            }
            None if request.ignore_value || request.ignore_lease => {
                return Err(Error::KeyNotFound);
            }
            None => {}
        }
        self.content.insert(request.key.to_vec(), kv.clone());
        self.changes.push((main, kv, false));
        self.revision = main;
        let prev_kv = before.filter(|_| request.prev_kv);
        Ok(PutResponse {
            header: header(main),
            prev_kv,
        })
    }

    fn remove(&mut self, key: &[u8], main: i64) -> Option<KeyValue> {
        let gone = self.content.remove(key)?;
        let kv = KeyValue {
            key: gone.key.clone(),
            mod_revision: main,
            ..KeyValue::default()
        };
        self.changes.push((main, kv, true));
        self.revision = main;
        Some(gone)
    }

    fn delete(&mut self, request: &DeleteRangeRequest, main: i64) -> DeleteRangeResponse {
        let keys: Vec<_> = self
            .content
            .keys()
            .filter(|key| inside(key, &request.key, &request.range_end))
            .cloned()
            .collect();
        let gone: Vec<_> = keys
            .iter()
            .filter_map(|key| self.remove(key, main))
            .collect();
        DeleteRangeResponse {
            header: header(self.revision),
            deleted: gone.len() as i64,
            prev_kvs: if request.prev_kv { gone } else { Vec::new() },
        }
    }

    fn txn(&mut self, txn: &TxnRequest, before: &Model, main: i64) -> Result<TxnResponse, Error> {
        let succeeded = txn.compare.iter().all(|compare| before.holds(compare));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let mut responses = Vec::new();
        for op in ops {
            let response = match op.request.as_ref().expect("generated with a request") {
                Request::RequestPut(put) => {
                    if put.lease != 0 && !before.leases.contains(&put.lease) {
                        return Err(Error::LeaseNotFound);
                    }
                    Response::ResponsePut(self.put(put, main)?)
                }
                Request::RequestDeleteRange(delete) => {
                    Response::ResponseDeleteRange(self.delete(delete, main))
                }
                Request::RequestRange(range) => {
                    if range.revision > before.revision {
                        return Err(Error::FutureRev);
                    }
                    if range.revision < 0 && range.revision < before.compacted {
                        return Err(Error::Compacted);
                    }
                    Response::ResponseRange(self.range(range)?)
                }
                Request::RequestTxn(nested) => {
                    let mut response = self.txn(nested, before, main)?;
                    response.header = Some(ResponseHeader::default());
                    Response::ResponseTxn(response)
                }
            };
            responses.push(ResponseOp {
                response: Some(response),
            });
        }
        Ok(TxnResponse {
            header: None,
            succeeded,
            responses,
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let matching = self
            .content
            .values()
            .filter(|kv| inside(&kv.key, &compare.key, &compare.range_end));
        let found: Vec<_> = matching.cloned().collect();
        if found.is_empty() {
            let by_value = compare.target == CompareTarget::Value as i32;
            return !by_value && one(compare, &KeyValue::default());
        }
        found.iter().all(|kv| one(compare, kv))
    }

    /// The content at a revision.
    pub(super) fn at(&self, revision: i64) -> &Content {
        if revision == self.revision {
            return &self.content;
        }
        self.past
            .range(..=revision)
            .next_back()
            .expect("revision 1 is there")
            .1
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        if request.revision > self.revision {
            return Err(Error::FutureRev);
        }
        if request.revision > 0 && request.revision < self.compacted {
            return Err(Error::Compacted);
        }
        let at = if request.revision > 0 {
            request.revision
        } else {
            self.revision
        };
        let content = self.at(at);
        let mut kvs: Vec<KeyValue> = content
            .values()
            .filter(|kv| inside(&kv.key, &request.key, &request.range_end))
            .cloned()
            .collect();
        let count = kvs.len() as i64;
        let header = header(self.revision);
        if request.count_only {
            return Ok(RangeResponse {
                header,
                kvs: Vec::new(),
                more: false,
                count,
            });
        }
        let limit = if request.limit > 0 {
            request.limit as usize
        } else {
            usize::MAX
        };
        let filters = request.min_mod_revision != 0
            || request.max_mod_revision != 0
            || request.min_create_revision != 0
            || request.max_create_revision != 0;
        let implicit = request.sort_order == SortOrder::None as i32;
        if implicit && !filters {
            kvs.truncate(limit.saturating_add(1));
        }
        kvs.retain(|kv| passes(request, kv));
        sort(request, &mut kvs);
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if request.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
                if request.sort_target() != SortTarget::Value {
                    kv.lease = 0;
                }
            }
        }
        Ok(RangeResponse {
            header,
            kvs,
            more,
            count,
        })
    }
}

/// Whether a pair passes the revision filters.
fn passes(request: &RangeRequest, kv: &KeyValue) -> bool {
    let low = |value: i64, min: i64| min == 0 || value >= min;
    let high = |value: i64, max: i64| max == 0 || value <= max;
    low(kv.mod_revision, request.min_mod_revision)
        && high(kv.mod_revision, request.max_mod_revision)
        && low(kv.create_revision, request.min_create_revision)
        && high(kv.create_revision, request.max_create_revision)
}

/// Ties have no promised order; here they stay in key order, either way round.
fn sort(request: &RangeRequest, kvs: &mut [KeyValue]) {
    let descending = request.sort_order == SortOrder::Descend as i32;
    if descending {
        kvs.reverse();
    }
    match request.sort_target() {
        SortTarget::Key => kvs.sort_by(|a, b| a.key.cmp(&b.key)),
        SortTarget::Version => kvs.sort_by_key(|kv| kv.version),
        SortTarget::Create => kvs.sort_by_key(|kv| kv.create_revision),
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if descending {
        kvs.reverse();
    }
}

fn one(compare: &Compare, kv: &KeyValue) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (compare.target(), &compare.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(n))) => kv.version.cmp(n),
        (CompareTarget::Version, _) => kv.version.cmp(&0),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(n))) => kv.create_revision.cmp(n),
        (CompareTarget::Create, _) => kv.create_revision.cmp(&0),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(n))) => kv.mod_revision.cmp(n),
        (CompareTarget::Mod, _) => kv.mod_revision.cmp(&0),
        (CompareTarget::Value, Some(TargetUnion::Value(v))) => kv.value.cmp(v),
        (CompareTarget::Value, _) => kv.value[..].cmp(&[]),
        (CompareTarget::Lease, Some(TargetUnion::Lease(n))) => kv.lease.cmp(n),
        (CompareTarget::Lease, _) => kv.lease.cmp(&0),
    };
    match compare.result() {
        CompareResult::Equal => order == Equal,
        CompareResult::NotEqual => order != Equal,
        CompareResult::Greater => order == Greater,
        CompareResult::Less => order == Less,
    }
}
