//! Room storage, apply: what is known of members, and the cluster's version.

use super::Answer;
use crate::state::core::State;
use crate::state::rows;
use tenon_proto::command::{ClusterVersionSet, Done, MemberBirth, MemberPublish};
use tenon_proto::etcdserverpb::MemberUpdateRequest;
use tenon_proto::log::{LogId, Membership};

pub(super) fn on_membership(state: &mut State, id: LogId, membership: &Membership) {
    state.membership_id = Some(id);
    state.membership = membership.clone();
    state.push_row(rows::membership(&id, membership));
    for row in state.members.on_membership(membership) {
        state.push_row(row);
    }
}

pub(super) fn publish(state: &mut State, publish: &MemberPublish) -> Done {
    if let Some(row) = state.members.on_publish(publish) {
        state.push_row(row);
    }
    Done {}
}

pub(super) fn update(state: &mut State, request: &MemberUpdateRequest) -> Answer<Done> {
    let row = state.members.on_update(request, &state.membership)?;
    state.push_row(row);
    Ok(Done {})
}

pub(super) fn birth(state: &mut State, birth: &MemberBirth) -> Done {
    let row = state.members.on_birth(birth);
    state.push_row(row);
    Done {}
}

pub(super) fn cluster_version(state: &mut State, set: &ClusterVersionSet) -> Done {
    state.cluster_version.clone_from(&set.version);
    state.push_row(rows::cluster_version(&set.version));
    Done {}
}
