//! Room storage, apply: leases. Ids and TTLs are final here: the proposer fixed them.

use super::writing::Writing;
use super::{Answer, header};
use crate::engine::{RowChange, Table};
use crate::lease::{GrantError, LeaseRow};
use crate::state::core::{Inner, State};
use tenon_proto::command::{Done, LeaseExpire};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{
    LeaseCheckpointRequest, LeaseCheckpointResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseRevokeResponse,
};
use tenon_proto::log::LogId;

fn row(lease: &LeaseRow) -> RowChange {
    let (key, value) = lease.encode_row();
    RowChange {
        table: Table::Leases,
        key,
        value: Some(value),
    }
}

pub(super) fn grant(
    inner: &Inner,
    state: &mut State,
    request: &LeaseGrantRequest,
) -> Answer<LeaseGrantResponse> {
    let granted = inner
        .lessor
        .grant(request.id, request.ttl)
        .map_err(|error| match error {
            GrantError::Exists => Error::LeaseExist,
            GrantError::TtlTooLarge => Error::LeaseTTLTooLarge,
            // The proposer picks an id; one that did not is of no version of ours.
            GrantError::NoId => Error::LeaseExist,
        })?;
    state.push_row(row(&granted));
    Ok(LeaseGrantResponse {
        header: header(state.revision),
        id: granted.id,
        ttl: granted.ttl_seconds,
        error: String::new(),
    })
}

pub(super) fn revoke(inner: &Inner, state: &mut State, id: i64) -> Answer<LeaseRevokeResponse> {
    let keys = inner.lessor.revoke(id).ok_or(Error::LeaseNotFound)?;
    let mut writing = Writing::new(inner, state);
    for key in &keys {
        inner.measures.deleted();
        writing.delete(key)?;
    }
    let revision = writing.finish();
    state.push_row(RowChange {
        table: Table::Leases,
        key: LeaseRow::key(id),
        value: None,
    });
    Ok(LeaseRevokeResponse {
        header: header(revision),
    })
}

/// A lease ended by its leader's clock. A leader of another term knows nothing of renewals since.
pub(super) fn expire(
    inner: &Inner,
    state: &mut State,
    id: LogId,
    expire: &LeaseExpire,
) -> Answer<Done> {
    if id.term == expire.proposer_term && inner.lessor.exists(expire.id) {
        revoke(inner, state, expire.id)?;
    }
    Ok(Done {})
}

pub(super) fn checkpoint(
    inner: &Inner,
    state: &mut State,
    request: &LeaseCheckpointRequest,
) -> LeaseCheckpointResponse {
    for checkpoint in &request.checkpoints {
        if let Some(lease) = inner
            .lessor
            .checkpoint(checkpoint.id, checkpoint.remaining_ttl)
        {
            state.push_row(row(&lease));
        }
    }
    LeaseCheckpointResponse {
        header: header(state.revision),
    }
}
