//! Room storage, apply: a compaction. Only the mark moves here; the sweep follows behind.

use super::{Answer, header};
use crate::state::core::{Inner, State};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{CompactionRequest, CompactionResponse};
use tenon_proto::log::LogId;

pub(super) fn apply(
    inner: &Inner,
    state: &mut State,
    id: LogId,
    request: &CompactionRequest,
) -> Answer<CompactionResponse> {
    if request.revision <= state.compacted {
        return Err(Error::Compacted.into());
    }
    if request.revision > state.revision {
        return Err(Error::FutureRev.into());
    }
    state.compacted = request.revision;
    state.compacted_by = id.index;
    inner.watches.compacted(request.revision);
    inner.compact.notify_one();
    Ok(CompactionResponse {
        header: header(state.revision),
    })
}
