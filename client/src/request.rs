//! Room `client`: the usual requests in one line each. Pure; whatever is not here is a field of the message.

use bytes::Bytes;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use tenon_proto::etcdserverpb::request_op::Request as Op;
use tenon_proto::key_range::KeyRange;

/// Reads every key of an interval, newest state, linearizable.
pub fn range(keys: &KeyRange) -> pb::RangeRequest {
    pb::RangeRequest {
        key: keys.key().clone(),
        range_end: keys.range_end(),
        ..Default::default()
    }
}

/// Writes a key without lease.
pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> pb::PutRequest {
    pb::PutRequest {
        key: key.into(),
        value: value.into(),
        ..Default::default()
    }
}

/// Deletes every key of an interval.
pub fn delete(keys: &KeyRange) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: keys.key().clone(),
        range_end: keys.range_end(),
        ..Default::default()
    }
}

/// A request that may stand in a transaction.
pub trait Operation {
    /// As the message carries it.
    fn into_op(self) -> Op;
}

macro_rules! operations {
    ($($request:ident => $variant:ident),*) => {
        $(impl Operation for pb::$request {
            fn into_op(self) -> Op {
                Op::$variant(self)
            }
        })*
    };
}

operations! {
    RangeRequest => RequestRange,
    PutRequest => RequestPut,
    DeleteRangeRequest => RequestDeleteRange,
    TxnRequest => RequestTxn
}

/// One operation of a transaction.
pub fn op(request: impl Operation) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request.into_op()),
    }
}

/// Compares something of one key with an operand. A missing key counts as 0; its value equals nothing.
pub fn compare(key: impl Into<Bytes>, result: CompareResult, operand: TargetUnion) -> pb::Compare {
    let target = match operand {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        key: key.into(),
        range_end: Bytes::new(),
        target_union: Some(operand),
    }
}

/// Holds while the key was created at that revision; 0: while it does not exist.
pub fn created_at(key: impl Into<Bytes>, revision: i64) -> pb::Compare {
    let operand = TargetUnion::CreateRevision(revision);
    compare(key, CompareResult::Equal, operand)
}
