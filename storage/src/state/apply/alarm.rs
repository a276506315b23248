//! Room storage, apply: alarms.

use super::header;
use crate::state::core::State;
use tenon_proto::etcdserverpb::{AlarmRequest, AlarmResponse};

pub(super) fn apply(state: &mut State, request: &AlarmRequest) -> AlarmResponse {
    let (alarms, row) = state.alarms.apply(request);
    if let Some(row) = row {
        state.push_row(row);
    }
    AlarmResponse {
        header: header(state.revision),
        alarms,
    }
}
