//! Room `sim`, workloads: the requests clients make: drawn, and carried out through the services.

use crate::history::{CallId, Reply, Request, tag};
use crate::rng::SimRng;
use crate::world::Endpoint;
use bytes::Bytes;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{self as pb, compare, request_op};
use tenon_server::service::Services;

/// How often each kind of request is drawn, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Puts.
    pub puts: u64,
    /// Deletions of one key or several.
    pub deletes: u64,
    /// Ranges: old and new, limited, counted, serializable.
    pub ranges: u64,
    /// Transactions that compare, write and read.
    pub txns: u64,
    /// Compactions.
    pub compactions: u64,
    /// Hashes of the history.
    pub hashes: u64,
    /// Grants, renewals and revocations of leases.
    pub leases: u64,
}

impl Mix {
    /// Everything, most of it puts; leases on demand.
    pub fn usual(leases: bool) -> Mix {
        Mix {
            puts: 40,
            deletes: 10,
            ranges: 20,
            txns: 12,
            compactions: 4,
            hashes: 4,
            leases: if leases { 10 } else { 0 },
        }
    }
}

/// Which keys a client's deletions may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Any.
    All,
    /// Those that its kind of client puts; other workloads are left alone.
    Own,
}

/// What a client draws its requests from.
pub(crate) struct Draw {
    pub(crate) rng: SimRng,
    pub(crate) keys: u64,
    pub(crate) mix: Mix,
    /// Which keys it deletes.
    pub(crate) reach: Reach,
    /// The lease this client works with; 0 before the first.
    pub(crate) lease: i64,
    pub(crate) client: u64,
    granted: i64,
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("k{number:02}"))
}

impl Draw {
    pub(crate) fn new(rng: SimRng, client: u64, keys: u64, mix: Mix) -> Draw {
        Draw {
            rng,
            keys,
            mix,
            reach: Reach::All,
            lease: 0,
            client,
            granted: 0,
        }
    }

    fn key(&mut self) -> Bytes {
        key(self.rng.below(self.keys))
    }

    /// One key, some of them, or all.
    fn interval(&mut self) -> (Bytes, Bytes) {
        match self.rng.below(4) {
            0 => (Bytes::from_static(b"k"), Bytes::from_static(b"l")),
            1 => {
                let first = self.rng.below(self.keys);
                let count = self.rng.between(1, 5);
                (key(first), key(first + count))
            }
            2 => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
            _ => (self.key(), Bytes::new()),
        }
    }

    fn value(&mut self, id: CallId) -> Bytes {
        let mut value = tag(id).into_bytes();
        let len = match self.rng.below(40) {
            0 => self.rng.between(5_000, 40_000),
            _ => self.rng.below(200),
        };
        value.resize(value.len() + len as usize, b'.');
        Bytes::from(value)
    }

    fn put(&mut self, id: CallId) -> pb::PutRequest {
        let lease = if self.mix.leases > 0 && self.rng.below(4) == 0 {
            self.lease
        } else {
            0
        };
        let prev_kv = self.rng.chance(300_000);
        pb::PutRequest {
            key: self.key(),
            value: self.value(id),
            lease,
            prev_kv,
            ..Default::default()
        }
    }

    fn range(&mut self, seen: i64, compaction: i64) -> pb::RangeRequest {
        let (key, range_end) = self.interval();
        let oldest = compaction.max(1);
        let revision = match self.rng.below(4) {
            0 if seen > oldest => self.rng.between(oldest as u64, seen as u64) as i64,
            _ => 0,
        };
        let limit = if self.rng.below(4) == 0 {
            self.rng.between(1, 4) as i64
        } else {
            0
        };
        pb::RangeRequest {
            key,
            range_end,
            revision,
            limit,
            serializable: self.rng.chance(300_000),
            keys_only: self.rng.chance(100_000),
            count_only: self.rng.chance(100_000),
            ..Default::default()
        }
    }

    /// Two keys are written, a third is read, so that reads do not depend on the order inside.
    fn txn(&mut self, id: CallId, seen: i64) -> pb::TxnRequest {
        let first = self.rng.below(self.keys);
        let (a, b, c) = (key(first), key(first + 1), key(first + 2));
        let target_union = match self.rng.below(3) {
            0 => compare::TargetUnion::ModRevision(self.rng.below(seen.max(1) as u64 + 1) as i64),
            1 => compare::TargetUnion::Version(self.rng.below(3) as i64),
            _ => compare::TargetUnion::CreateRevision(0),
        };
        let target = match target_union {
            compare::TargetUnion::ModRevision(_) => compare::CompareTarget::Mod,
            compare::TargetUnion::Version(_) => compare::CompareTarget::Version,
            _ => compare::CompareTarget::Create,
        };
        let result = self.rng.below(4) as i32;
        let compare = pb::Compare {
            result,
            target: target as i32,
            key: a.clone(),
            range_end: Bytes::new(),
            target_union: Some(target_union),
        };
        let put = |key: Bytes, value| pb::PutRequest {
            key,
            value,
            ..Default::default()
        };
        let read = pb::RangeRequest {
            key: c,
            ..Default::default()
        };
        let second = match self.rng.below(2) {
            0 => request_op::Request::RequestPut(put(b, self.value(id))),
            _ => request_op::Request::RequestDeleteRange(pb::DeleteRangeRequest {
                key: b,
                ..Default::default()
            }),
        };
        let ops = |all: Vec<request_op::Request>| {
            all.into_iter()
                .map(|request| pb::RequestOp {
                    request: Some(request),
                })
                .collect()
        };
        let written = request_op::Request::RequestPut(put(a, self.value(id)));
        let read = request_op::Request::RequestRange(read);
        pb::TxnRequest {
            compare: vec![compare],
            success: ops(vec![written, second, read.clone()]),
            failure: ops(vec![read]),
        }
    }

    /// The next request. `seen` is the highest revision anybody saw, `compaction` how far history may be
    /// given up already, `watched` how far watchers are.
    pub(crate) fn request(
        &mut self,
        id: CallId,
        seen: i64,
        compaction: i64,
        watched: i64,
    ) -> Request {
        let mix = self.mix;
        let parts = [
            mix.puts,
            mix.deletes,
            mix.ranges,
            mix.txns,
            mix.compactions,
            mix.hashes,
            mix.leases,
        ];
        let mut at = self.rng.below(parts.iter().sum());
        let kind = parts.iter().position(|part| {
            let found = at < *part;
            at = at.saturating_sub(*part);
            found
        });
        match kind {
            Some(0) => Request::Put(self.put(id)),
            Some(1) => {
                let (mut key, mut range_end) = self.interval();
                if self.reach == Reach::Own && key[0] == 0 {
                    (key, range_end) = (Bytes::from_static(b"k"), Bytes::from_static(b"l"));
                }
                let prev_kv = self.rng.chance(300_000);
                Request::Delete(pb::DeleteRangeRequest {
                    key,
                    range_end,
                    prev_kv,
                })
            }
            Some(2) => Request::Range(self.range(seen, compaction)),
            Some(3) => Request::Txn(self.txn(id, seen)),
            Some(4) if watched > compaction.max(1) => {
                Request::Compact(self.rng.between(compaction.max(1) as u64, watched as u64) as i64)
            }
            Some(4 | 5) => Request::HashKv(if seen > compaction.max(1) { seen } else { 0 }),
            _ => self.about_leases(),
        }
    }

    fn about_leases(&mut self) -> Request {
        match self.rng.below(6) {
            0 if self.lease != 0 => Request::Revoke(std::mem::take(&mut self.lease)),
            1..5 if self.lease != 0 => Request::KeepAlive(self.lease),
            _ => {
                self.granted += 1;
                self.lease = self.client as i64 * 1_000 + self.granted;
                Request::Grant(self.lease, self.rng.between(2, 5) as i64)
            }
        }
    }
}

/// Carries a request out at whoever answers.
pub(crate) async fn carry_out(endpoint: Endpoint, request: Request) -> Result<Reply, Error> {
    match endpoint {
        Endpoint::Member(services) => carry_out_at(services, request).await,
        Endpoint::Host(host) => super::through::carry_out(host, request).await,
    }
}

/// Carries a request out at a member.
pub(crate) async fn carry_out_at(services: Services, request: Request) -> Result<Reply, Error> {
    let caller = Caller::default();
    match request {
        Request::Put(r) => services.kv.put(&caller, r).await.map(Reply::Put),
        Request::Delete(r) => services
            .kv
            .delete_range(&caller, r)
            .await
            .map(Reply::Delete),
        Request::Range(r) => services.kv.range(&caller, r).await.map(Reply::Range),
        Request::Txn(r) => services.kv.txn(&caller, r).await.map(Reply::Txn),
        Request::Compact(revision) => {
            let request = pb::CompactionRequest {
                revision,
                physical: false,
            };
            services
                .kv
                .compact(&caller, request)
                .await
                .map(Reply::Compact)
        }
        Request::Grant(id, ttl) => {
            let request = pb::LeaseGrantRequest { id, ttl };
            services
                .lease
                .grant(&caller, request)
                .await
                .map(Reply::Grant)
        }
        Request::Revoke(id) => {
            let request = pb::LeaseRevokeRequest { id };
            services
                .lease
                .revoke(&caller, request)
                .await
                .map(Reply::Revoke)
        }
        Request::KeepAlive(id) => crate::world::keep_alive(services, id)
            .await
            .map(Reply::KeepAlive),
        Request::HashKv(revision) => {
            let request = pb::HashKvRequest { revision };
            services
                .maintenance
                .hash_kv(&caller, request)
                .await
                .map(Reply::HashKv)
        }
    }
}
