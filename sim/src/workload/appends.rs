//! Room `sim`, workloads: clients that append to lists: read, then put the longer list if nobody was faster.

use super::{Desk, reply};
use crate::check::appends::{PREFIX, elements};
use crate::history::{CallId, Reply, Request, tag};
use crate::rng::SimRng;
use crate::world::Client;
use bytes::Bytes;
use std::time::Duration;
use tenon_proto::etcdserverpb::{self as pb, compare, request_op};

/// Lists longer than this are left alone, so that their values stay small.
const LONGEST: usize = 150;

/// Appends to `lists` lists until it is over.
pub(crate) async fn append(
    desk: Desk,
    client: Client,
    number: u64,
    mut rng: SimRng,
    lists: u64,
    think: Duration,
) {
    while !desk.is_over() {
        desk.think(&client, &mut rng, think).await;
        let key = Bytes::from([PREFIX, rng.below(lists).to_string().as_bytes()].concat());
        let range = pb::RangeRequest {
            key: key.clone(),
            ..Default::default()
        };
        let read = desk.call(&client, number, |_| Request::Range(range)).await;
        let Some(Reply::Range(read)) = reply(read) else {
            continue;
        };
        let (version, value) = read
            .kvs
            .first()
            .map_or((0, Bytes::new()), |kv| (kv.mod_revision, kv.value.clone()));
        let list = elements(&value).unwrap_or_default();
        if list.len() < LONGEST {
            let longer = |id| Request::Txn(append_one(id, key, version, &list));
            desk.call(&client, number, longer).await;
        }
    }
}

fn append_one(id: CallId, key: Bytes, version: i64, list: &[u64]) -> pb::TxnRequest {
    let words: Vec<String> = list
        .iter()
        .chain([&(id.0 as u64)])
        .map(u64::to_string)
        .collect();
    let put = pb::PutRequest {
        key: key.clone(),
        value: Bytes::from(tag(id) + &words.join(",")),
        ..Default::default()
    };
    if_then(
        pb::Compare {
            result: compare::CompareResult::Equal as i32,
            target: compare::CompareTarget::Mod as i32,
            key,
            range_end: Bytes::new(),
            target_union: Some(compare::TargetUnion::ModRevision(version)),
        },
        put,
    )
}

/// A transaction that puts when one condition holds.
pub(super) fn if_then(condition: pb::Compare, put: pb::PutRequest) -> pb::TxnRequest {
    let request = Some(request_op::Request::RequestPut(put));
    pb::TxnRequest {
        compare: vec![condition],
        success: vec![pb::RequestOp { request }],
        failure: Vec::new(),
    }
}
