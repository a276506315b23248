//! Room storage, apply: a put.

use super::writing::Writing;
use super::{Answer, header};
use crate::check;
use crate::state::core::{Inner, State};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{PutRequest, PutResponse};

pub(super) fn apply(inner: &Inner, state: &mut State, request: &PutRequest) -> Answer<PutResponse> {
    check::put(request)?;
    if request.lease != 0 && !inner.lessor.exists(request.lease) {
        return Err(Error::LeaseNotFound.into());
    }
    check_present(state, request)?;
    let mut writing = Writing::new(inner, state);
    let prev_kv = writing.put(request)?;
    Ok(PutResponse {
        header: header(writing.finish()),
        prev_kv,
    })
}

/// What keeps its value or lease must be there.
pub(super) fn check_present(state: &State, request: &PutRequest) -> Result<(), Error> {
    if !request.ignore_value && !request.ignore_lease {
        return Ok(());
    }
    match state.index.get(&request.key).and_then(|entry| entry.live()) {
        Some(_) => Ok(()),
        None => Err(Error::KeyNotFound),
    }
}
