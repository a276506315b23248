//! Room storage, quota: what a request may cost in space, before it is proposed. Pure functions; whether
//! the store has that much left is asked of [`crate::Store::size`].

use tenon_proto::command::command::Body;
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest};

/// Allowance for what a record takes beside key and value, bytes.
const PUT_OVERHEAD: u64 = 256;
/// What a lease costs, bytes.
const LEASE_COST: u64 = 64;

/// Bytes the command may add; 0 when it adds nothing and passes whatever the quota says. A transaction
/// costs its larger branch.
pub fn cost(body: &Body) -> u64 {
    match body {
        Body::Put(request) => put(request),
        Body::Txn(request) => txn(request),
        Body::LeaseGrant(_) => LEASE_COST,
        _ => 0,
    }
}

/// Bytes a put may add.
pub fn put(request: &PutRequest) -> u64 {
    request.key.len() as u64 + request.value.len() as u64 + PUT_OVERHEAD
}

/// Bytes a transaction may add: its larger branch.
pub fn txn(request: &TxnRequest) -> u64 {
    operations(&request.success).max(operations(&request.failure))
}

fn operations(ops: &[RequestOp]) -> u64 {
    let cost = |op: &RequestOp| match &op.request {
        Some(Request::RequestPut(request)) => put(request),
        Some(Request::RequestTxn(request)) => txn(request),
        _ => 0,
    };
    ops.iter().map(cost).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::etcdserverpb::{DeleteRangeRequest, LeaseGrantRequest};

    #[test]
    fn the_larger_branch_counts() {
        let put = |bytes: usize| RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: "key".into(),
                value: vec![0; bytes].into(),
                ..PutRequest::default()
            })),
        };
        let nested = |request| RequestOp {
            request: Some(Request::RequestTxn(request)),
        };
        let inner = TxnRequest {
            success: vec![put(10), put(20)],
            ..TxnRequest::default()
        };
        assert_eq!(cost(&Body::Txn(inner.clone())), 2 * 259 + 30);
        let outer = TxnRequest {
            success: vec![put(1)],
            failure: vec![nested(inner)],
            ..Default::default()
        };
        assert_eq!(cost(&Body::Txn(outer)), 2 * 259 + 30);
        assert_eq!(cost(&Body::Txn(TxnRequest::default())), 0);
        assert_eq!(cost(&Body::LeaseGrant(LeaseGrantRequest::default())), 64);
        assert_eq!(cost(&Body::DeleteRange(DeleteRangeRequest::default())), 0);
    }
}
