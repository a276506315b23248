//! Room storage, apply: transactions. All compares of all levels are decided on the state before it,
//! then everything that can fail on the chosen path is checked, then the path runs: nothing can fail
//! any more, so nothing is left behind half done.

use super::range::{check_revision_in_txn, compare_all, range_locked};
use super::writing::Writing;
use super::{Answer, header, put};
use crate::check;
use crate::mvcc::index::Interval;
use crate::state::core::{Inner, State};
use crate::state::store::Fatal;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::response_op::Response;
use tenon_proto::etcdserverpb::{
    DeleteRangeResponse, PutRequest, PutResponse, RequestOp, ResponseHeader, ResponseOp,
    TxnRequest, TxnResponse,
};

/// The branches chosen at all levels of the path, outermost first, in the order they are met.
struct Path {
    chosen: Vec<bool>,
}

pub(super) fn apply(inner: &Inner, state: &mut State, request: &TxnRequest) -> Answer<TxnResponse> {
    let mut path = Path { chosen: Vec::new() };
    choose(inner, state, request, &mut path)?;
    check_path(
        inner,
        state,
        request,
        &mut path.chosen.iter(),
        &mut Vec::new(),
    )?;
    let mut writing = Writing::new(inner, state);
    let mut response = run(&mut writing, request, &mut path.chosen.iter())?;
    response.header = header(writing.finish());
    Ok(response)
}

fn branch(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded {
        &request.success
    } else {
        &request.failure
    }
}

fn nested(ops: &[RequestOp]) -> impl Iterator<Item = &TxnRequest> {
    ops.iter().filter_map(|op| match &op.request {
        Some(Request::RequestTxn(nested)) => Some(nested),
        _ => None,
    })
}

fn choose(
    inner: &Inner,
    state: &State,
    request: &TxnRequest,
    path: &mut Path,
) -> Result<(), Fatal> {
    let succeeded = compare_all(state, &inner.read_cache, &request.compare)?;
    path.chosen.push(succeeded);
    for nested in nested(branch(request, succeeded)) {
        choose(inner, state, nested, path)?;
    }
    Ok(())
}

fn next(chosen: &mut std::slice::Iter<'_, bool>) -> bool {
    *chosen
        .next()
        .expect("a choice was made for every level of the path")
}

/// What the path wrote before some operation: an interval, and whether it was put (or deleted).
type Written<'a> = Vec<(Interval<'a>, bool)>;

/// What only the state can refuse, on the chosen path, against the state before the transaction.
fn check_path<'a>(
    inner: &Inner,
    state: &State,
    request: &'a TxnRequest,
    chosen: &mut std::slice::Iter<'_, bool>,
    written: &mut Written<'a>,
) -> Result<(), Error> {
    for op in branch(request, next(chosen)) {
        match &op.request {
            Some(Request::RequestRange(range)) => {
                check_revision_in_txn(range, state.revision, state.compacted)?;
            }
            Some(Request::RequestPut(request)) => {
                check::put(request)?;
                if request.lease != 0 && !inner.lessor.exists(request.lease) {
                    return Err(Error::LeaseNotFound);
                }
                check_present(state, request, written)?;
                written.push((Interval::new(&request.key, &[]), true));
            }
            Some(Request::RequestDeleteRange(delete)) => {
                check::delete_range(delete)?;
                written.push((Interval::new(&delete.key, &delete.range_end), false));
            }
            Some(Request::RequestTxn(nested)) => {
                check_path(inner, state, nested, chosen, written)?;
            }
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// What keeps its value or lease must be there when its turn comes: etcd looks only at the state
/// before the transaction, and panics when an earlier operation deleted the key.
fn check_present(state: &State, request: &PutRequest, written: &Written<'_>) -> Result<(), Error> {
    if !request.ignore_value && !request.ignore_lease {
        return Ok(());
    }
    match written
        .iter()
        .rev()
        .find(|(interval, _)| interval.contains(&request.key))
    {
        Some((_, true)) => Ok(()),
        Some((_, false)) => Err(Error::KeyNotFound),
        None => put::check_present(state, request),
    }
}

fn run(
    writing: &mut Writing<'_>,
    request: &TxnRequest,
    chosen: &mut std::slice::Iter<'_, bool>,
) -> Answer<TxnResponse> {
    let succeeded = next(chosen);
    let mut responses = Vec::new();
    for op in branch(request, succeeded) {
        let response = match op.request.as_ref().expect("checked before") {
            Request::RequestRange(range) => {
                let (cache, revision) = (&writing.inner.read_cache, writing.revision());
                Response::ResponseRange(range_locked(writing.state, cache, range, revision)?)
            }
            Request::RequestPut(put) => {
                let prev_kv = writing.put(put)?;
                Response::ResponsePut(PutResponse {
                    header: header(writing.revision()),
                    prev_kv,
                })
            }
            Request::RequestDeleteRange(delete) => {
                let interval = Interval::new(&delete.key, &delete.range_end);
                let (deleted, prev_kvs) = writing.delete_range(interval, delete.prev_kv)?;
                let header = header(writing.revision());
                Response::ResponseDeleteRange(DeleteRangeResponse {
                    header,
                    deleted,
                    prev_kvs,
                })
            }
            Request::RequestTxn(nested) => {
                let mut response = run(writing, nested, chosen)?;
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
