//! Room `sim`, workloads: clients that take turns with a lock. Some holders are slow: they go on writing after their
//! lease ended, and only the fence stops them.

use super::appends::if_then;
use super::{Desk, reply};
use crate::check::locks::{GUARDED, LOCK};
use crate::history::{CallId, Reply, Request, tag};
use crate::rng::SimRng;
use crate::world::Client;
use bytes::Bytes;
use std::time::Duration;
use tenon_proto::etcdserverpb::{self as pb, compare};

/// Locks and writes until it is over. Client number `number` of this workload, from 1.
pub(crate) async fn lock_and_write(desk: Desk, client: Client, number: u64, mut rng: SimRng) {
    let mut turn = 0;
    while !desk.is_over() {
        turn += 1;
        let lock = rng.below(2).to_string();
        let lease = (1_000 + number as i64) * 100_000 + turn;
        let ttl = rng.between(1, 3) as i64;
        let granted = desk
            .call(&client, number, |_| Request::Grant(lease, ttl))
            .await;
        if reply(granted).is_some() {
            let acquire = |id| Request::Txn(acquire(id, &lock, lease));
            let acquired = desk.call(&client, number, acquire).await;
            if let Some(Reply::Txn(r)) = reply(acquired)
                && r.succeeded
            {
                let fence = r.header.as_ref().map_or(0, |h| h.revision);
                hold(&desk, &client, number, &mut rng, (&lock, lease, fence)).await;
            }
        }
        if rng.chance(700_000) {
            desk.call(&client, number, |_| Request::Revoke(lease)).await;
        }
        desk.think(&client, &mut rng, Duration::from_millis(200))
            .await;
    }
}

/// Writes under the lock for a while; renews the lease now and then, or forgets to.
async fn hold(
    desk: &Desk,
    client: &Client,
    number: u64,
    rng: &mut SimRng,
    (lock, lease, fence): (&str, i64, i64),
) {
    for _ in 0..rng.between(1, 6) {
        if desk.is_over() {
            return;
        }
        let write = |id| Request::Txn(write(id, lock, fence));
        let written = desk.call(client, number, write).await;
        if let Some(Reply::Txn(r)) = reply(written)
            && !r.succeeded
        {
            return;
        }
        if rng.chance(300_000) {
            desk.call(client, number, |_| Request::KeepAlive(lease))
                .await;
        }
        let most = *rng.pick(&[20, 200, 3_000]);
        desk.think(client, rng, Duration::from_millis(most)).await;
    }
}

fn created(lock: &str, revision: i64) -> pb::Compare {
    pb::Compare {
        result: compare::CompareResult::Equal as i32,
        target: compare::CompareTarget::Create as i32,
        key: Bytes::from([LOCK, lock.as_bytes()].concat()),
        range_end: Bytes::new(),
        target_union: Some(compare::TargetUnion::CreateRevision(revision)),
    }
}

fn acquire(id: CallId, lock: &str, lease: i64) -> pb::TxnRequest {
    let free = created(lock, 0);
    let put = pb::PutRequest {
        key: free.key.clone(),
        value: Bytes::from(tag(id)),
        lease,
        ..Default::default()
    };
    if_then(free, put)
}

fn write(id: CallId, lock: &str, fence: i64) -> pb::TxnRequest {
    let put = pb::PutRequest {
        key: Bytes::from([GUARDED, lock.as_bytes()].concat()),
        value: Bytes::from(format!("{}{};fence={fence}", tag(id), "w")),
        ..Default::default()
    };
    if_then(created(lock, fence), put)
}
