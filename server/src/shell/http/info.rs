//! Room `server/shell`: `/version`, `/metrics` and `/debug/vars`.

use super::{State, refused_unless_get, text};
use crate::shell::metrics::{member, process, text as page, wal};
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
    member::write(&mut out, &shared.services, &shared.health);
    wal::write(&mut out, &shared.wal);
    shared.grpc.write(&mut out);
    process::write(&mut out);
    text::answer(StatusCode::OK, page::CONTENT_TYPE, out.finish())
}

pub(super) async fn vars(axum::extract::State(shared): State, method: Method) -> Response<Body> {
    if let Some(refused) = refused_unless_get(&method) {
        return refused;
    }
    let status = shared.services.context.status();
    let hex = |id: u64| format!("{id:x}");
    let state = if status.is_leader {
        "StateLeader"
    } else {
        "StateFollower"
    };
    let vars = json!({
        "cmdline": shared.command_line,
        "memstats": {},
        "raft.status": {
            "id": hex(status.member_id.get()),
            "term": status.term.get(),
            "commit": status.committed.get(),
            "applied": status.applied.get(),
            "lead": hex(status.leader.map_or(0, |id| id.get())),
            "raftState": state,
        },
    });
    text::answer(
        StatusCode::OK,
        "application/json; charset=utf-8",
        format!("{vars}\n"),
    )
}
