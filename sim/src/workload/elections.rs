//! Room `sim`, workloads: candidates for an office, as etcd's clients elect a leader: each puts a key of its own under
//! the office's prefix, attached to its lease, and leads once no older key is there. Some go on after their lease ended.

use super::appends::if_then;
use super::{Desk, reply};
use crate::check::elections::{CANDIDATE, DECREE, after};
use crate::history::{CallId, Reply, Request, tag};
use crate::rng::SimRng;
use crate::world::Client;
use bytes::Bytes;
use std::time::Duration;
use tenon_proto::etcdserverpb::{self as pb, compare};

/// Looks at older candidates before this one gives up.
const LOOKS: u32 = 40;

/// One candidature.
struct Candidate {
    /// The key that stands for it.
    key: Bytes,
    /// The prefix of all candidates for the office.
    office: Bytes,
    lease: i64,
    /// Revision at which its key was created.
    since: i64,
}

/// Stands for election again and again until it is over. Client number `number` of this workload, from 1.
pub(crate) async fn stand_for_election(desk: Desk, client: Client, number: u64, mut rng: SimRng) {
    let mut turn = 0;
    while !desk.is_over() {
        turn += 1;
        let lease = (1_000 + number as i64) * 100_000 + turn;
        let ttl = rng.between(1, 3) as i64;
        let granted = desk
            .call(&client, number, |_| Request::Grant(lease, ttl))
            .await;
        if reply(granted).is_some()
            && let Some(own) = enter(&desk, &client, number, &mut rng, lease).await
            && is_oldest(&desk, &client, number, &mut rng, &own).await
        {
            lead(&desk, &client, number, &mut rng, &own).await;
        }
        if rng.chance(700_000) {
            desk.call(&client, number, |_| Request::Revoke(lease)).await;
        }
        desk.think(&client, &mut rng, Duration::from_millis(200))
            .await;
    }
}

/// Puts the candidate's key; `None` when that is not known to have happened.
async fn enter(
    desk: &Desk,
    client: &Client,
    number: u64,
    rng: &mut SimRng,
    lease: i64,
) -> Option<Candidate> {
    let office = Bytes::from([CANDIDATE, rng.below(2).to_string().as_bytes(), b"/"].concat());
    let key = Bytes::from([&office[..], format!("{lease:x}").as_bytes()].concat());
    let mut own = Candidate {
        key,
        office,
        lease,
        since: 0,
    };
    let put = |id| Request::Txn(own.put(id, own.key.clone()));
    match reply(desk.call(client, number, put).await) {
        Some(Reply::Txn(r)) if r.succeeded => {
            own.since = r.header.map_or(0, |h| h.revision);
            Some(own)
        }
        _ => None,
    }
}

/// Waits until no older candidate is there, or gives up.
async fn is_oldest(
    desk: &Desk,
    client: &Client,
    number: u64,
    rng: &mut SimRng,
    own: &Candidate,
) -> bool {
    for _ in 0..LOOKS {
        if desk.is_over() {
            return false;
        }
        let all = pb::RangeRequest {
            key: own.office.clone(),
            range_end: after(&own.office),
            ..Default::default()
        };
        let read = desk.call(client, number, |_| Request::Range(all)).await;
        if let Some(Reply::Range(read)) = reply(read) {
            let oldest = read.kvs.iter().map(|kv| kv.create_revision).min();
            match oldest {
                Some(oldest) if oldest == own.since => return true,
                _ if !read.kvs.iter().any(|kv| kv.key == own.key) => return false,
                _ => {}
            }
        }
        let renew = |_| Request::KeepAlive(own.lease);
        desk.call(client, number, renew).await;
        desk.think(client, rng, Duration::from_millis(300)).await;
    }
    false
}

/// Proclaims values and issues decrees for a while; then resigns, or only goes away.
async fn lead(desk: &Desk, client: &Client, number: u64, rng: &mut SimRng, own: &Candidate) {
    for _ in 0..rng.between(1, 6) {
        if desk.is_over() {
            return;
        }
        let key = match rng.chance(500_000) {
            true => own.key.clone(),
            false => own.decree(),
        };
        let put = |id| Request::Txn(own.put(id, key));
        if let Some(Reply::Txn(r)) = reply(desk.call(client, number, put).await)
            && !r.succeeded
        {
            return;
        }
        let most = *rng.pick(&[20, 200, 3_000]);
        desk.think(client, rng, Duration::from_millis(most)).await;
    }
    if rng.chance(500_000) {
        let resign = pb::DeleteRangeRequest {
            key: own.key.clone(),
            ..Default::default()
        };
        let resign = |_| Request::Delete(resign);
        desk.call(client, number, resign).await;
    }
}

impl Candidate {
    /// The key that only the holder of the office writes.
    fn decree(&self) -> Bytes {
        let office = self.office.strip_prefix(CANDIDATE).unwrap_or_default();
        Bytes::from([DECREE, office].concat())
    }

    /// Puts a key if the candidate's own is as it was created, which for a new one means that it is not there.
    fn put(&self, id: CallId, key: Bytes) -> pb::TxnRequest {
        let unchanged = pb::Compare {
            result: compare::CompareResult::Equal as i32,
            target: compare::CompareTarget::Create as i32,
            key: self.key.clone(),
            range_end: Bytes::new(),
            target_union: Some(compare::TargetUnion::CreateRevision(self.since)),
        };
        let put = pb::PutRequest {
            value: Bytes::from(format!("{}r;fence={}", tag(id), self.since)),
            lease: if key == self.key { self.lease } else { 0 },
            key,
            ..Default::default()
        };
        if_then(unchanged, put)
    }
}
