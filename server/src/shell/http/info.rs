//! Room `server/shell`: `/version`, `/metrics` and `/debug/vars`.

use super::{State, refused_unless_get, text};
use crate::host::door::Backend;
use crate::shell::metrics::{member, peer, process, text as page, wal};
use crate::version::{CLUSTER_VERSION, ETCD_VERSION};
use axum::body::Body;
use http::{Method, Response, StatusCode};
use serde_json::json;

pub(super) async fn version(method: Method) -> Response<Body> {
    if let Some(refused) = refused_unless_get(&method) {
        return refused;
    }
    let body = format!(
        "{{\"etcdserver\":\"{ETCD_VERSION}\",\"etcdcluster\":\"{CLUSTER_VERSION}\",\
         \"storage\":\"{CLUSTER_VERSION}\"}}"
    );
    text::answer(StatusCode::OK, "application/json", body)
}

pub(super) async fn metrics(axum::extract::State(shared): State) -> Response<Body> {
    let mut out = page::Page::default();
    if let Backend::Member(services) = shared.door.enter().backend() {
        member::write(&mut out, services);
        peer::write(&mut out, &services.context);
        wal::write(&mut out, services.context.wal());
    }
    member::health(&mut out, &shared.health);
    member::gates(&mut out, &shared.gates);
    shared.grpc.write(&mut out);
    process::write(&mut out);
    text::answer(StatusCode::OK, page::CONTENT_TYPE, out.finish())
}

pub(super) async fn vars(axum::extract::State(shared): State, method: Method) -> Response<Body> {
    if let Some(refused) = refused_unless_get(&method) {
        return refused;
    }
    let mut vars = json!({ "cmdline": shared.command_line, "memstats": {} });
    if let Backend::Member(services) = shared.door.enter().backend() {
        vars["raft.status"] = raft_status(&services.context.status());
    }
    text::answer(
        StatusCode::OK,
        "application/json; charset=utf-8",
        format!("{vars}\n"),
    )
}

fn raft_status(status: &tenon_raft::RaftStatus) -> serde_json::Value {
    let hex = |id: u64| format!("{id:x}");
    let state = if status.is_leader {
        "StateLeader"
    } else {
        "StateFollower"
    };
    json!({
        "id": hex(status.member_id.get()),
        "term": status.term.get(),
        "commit": status.committed.get(),
        "applied": status.applied.get(),
        "lead": hex(status.leader.map_or(0, |id| id.get())),
        "raftState": state,
    })
}
