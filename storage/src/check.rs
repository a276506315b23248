//! Room storage, static checks of requests: what can be refused by looking at the request alone, before
//! it is proposed or read. Pure functions; answers are etcd's errors in etcd's order.

use crate::mvcc::index::Interval;
use std::collections::BTreeSet;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

/// A range: key given, sort numbers known.
pub fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let known = SortOrder::try_from(request.sort_order).is_ok()
        && SortTarget::try_from(request.sort_target).is_ok();
    if known {
        Ok(())
    } else {
        Err(Error::InvalidSortOption)
    }
}

/// A put: key given, `ignore_value` without value, `ignore_lease` without lease.
pub fn put(request: &PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

/// A delete: key given.
pub fn delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        Err(Error::EmptyKey)
    } else {
        Ok(())
    }
}

/// A transaction, both branches and all levels: list sizes (`ops_max` for each list; a nested one has
/// what its parent's longest list leaves), every operation, and no key written twice in one branch.
pub fn txn(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    txn_operations(request, ops_max)?;
    written_once(&request.success)?;
    written_once(&request.failure)?;
    Ok(())
}

/// Whether a transaction only reads: nothing but ranges at the top level of both branches. A nested
/// transaction counts as a write, as in etcd.
pub fn txn_is_read_only(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Whether a read-only transaction may be served from local state: every range is serializable.
pub fn txn_is_serializable(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.all(|op| matches!(&op.request, Some(Request::RequestRange(range)) if range.serializable))
}

fn txn_operations(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    let longest = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    let left = ops_max.checked_sub(longest).ok_or(Error::TooManyOps)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(request)) => range(request)?,
            Some(Request::RequestPut(request)) => put(request)?,
            Some(Request::RequestDeleteRange(request)) => delete_range(request)?,
            Some(Request::RequestTxn(request)) => txn_operations(request, left)?,
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// What one branch writes.
#[derive(Default)]
struct Written<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Vec<Interval<'a>>,
}

impl<'a> Written<'a> {
    /// A delete up to "no end" is not noticed, as in etcd; it runs in order.
    fn deletes_key(&self, key: &[u8]) -> bool {
        self.deletes
            .iter()
            .any(|interval| interval.end != [0] && interval.contains(key))
    }
}

/// Collects what a list of operations writes, refusing a key put twice or put and deleted.
///
/// As in etcd this level's deletes come first, then nested transactions one after another, then this
/// level's puts: a nested put is checked against the deletes of earlier siblings, but a later sibling's
/// delete of it is not noticed. The two branches of one nested transaction exclude each other.
fn written_once(ops: &[RequestOp]) -> Result<Written<'_>, Error> {
    let mut written = Written::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            written
                .deletes
                .push(Interval::new(&delete.key, &delete.range_end));
        }
    }
    for op in ops {
        let Some(Request::RequestTxn(nested)) = &op.request else {
            continue;
        };
        let then = written_once(&nested.success)?;
        let or_else = written_once(&nested.failure)?;
        let puts: BTreeSet<_> = then.puts.union(&or_else.puts).copied().collect();
        for key in puts {
            if written.deletes_key(key) || !written.puts.insert(key) {
                return Err(Error::DuplicateKey);
            }
        }
        written.deletes.extend(then.deletes);
        written.deletes.extend(or_else.deletes);
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request
            && (written.deletes_key(&put.key) || !written.puts.insert(&put.key))
        {
            return Err(Error::DuplicateKey);
        }
    }
    Ok(written)
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
