//! Room storage, apply: a deletion.

use super::writing::Writing;
use super::{Answer, header};
use crate::check;
use crate::mvcc::index::Interval;
use crate::state::core::{Inner, State};
use tenon_proto::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse};

pub(super) fn apply(
    inner: &Inner,
    state: &mut State,
    request: &DeleteRangeRequest,
) -> Answer<DeleteRangeResponse> {
    check::delete_range(request)?;
    let mut writing = Writing::new(inner, state);
    let interval = Interval::new(&request.key, &request.range_end);
    let (deleted, prev_kvs) = writing.delete_range(interval, request.prev_kv)?;
    Ok(DeleteRangeResponse {
        header: header(writing.finish()),
        deleted,
        prev_kvs,
    })
}
