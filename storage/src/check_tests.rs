//! Room storage, static checks: tables of requests and etcd's answers.

use super::*;
use tenon_proto::etcdserverpb::Compare;

fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

fn a_put(key: &'static str) -> RequestOp {
    op(Request::RequestPut(PutRequest {
        key: key.into(),
        ..PutRequest::default()
    }))
}

fn a_delete(key: &'static str, end: &'static str) -> RequestOp {
    let request = DeleteRangeRequest {
        key: key.into(),
        range_end: end.into(),
        prev_kv: false,
    };
    op(Request::RequestDeleteRange(request))
}

fn a_range(key: &'static str) -> RequestOp {
    op(Request::RequestRange(RangeRequest {
        key: key.into(),
        ..RangeRequest::default()
    }))
}

fn then(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest {
        success,
        ..TxnRequest::default()
    }
}

fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
    op(Request::RequestTxn(TxnRequest {
        success,
        failure,
        ..TxnRequest::default()
    }))
}

#[test]
fn single_requests() {
    let empty = RangeRequest::default();
    assert_eq!(range(&empty), Err(Error::EmptyKey));
    let keyed = RangeRequest {
        key: "k".into(),
        ..empty
    };
    assert_eq!(range(&keyed), Ok(()));
    assert_eq!(
        range(&RangeRequest {
            sort_order: 9,
            ..keyed.clone()
        }),
        Err(Error::InvalidSortOption)
    );
    assert_eq!(
        range(&RangeRequest {
            sort_target: 9,
            ..keyed
        }),
        Err(Error::InvalidSortOption)
    );

    let keyed = PutRequest {
        key: "k".into(),
        ..PutRequest::default()
    };
    assert_eq!(put(&PutRequest::default()), Err(Error::EmptyKey));
    assert_eq!(put(&keyed), Ok(()));
    let both = PutRequest {
        ignore_value: true,
        value: "v".into(),
        ..keyed.clone()
    };
    assert_eq!(put(&both), Err(Error::ValueProvided));
    let both = PutRequest {
        ignore_lease: true,
        lease: 3,
        ..keyed.clone()
    };
    assert_eq!(put(&both), Err(Error::LeaseProvided));
    let neither = PutRequest {
        ignore_lease: true,
        ignore_value: true,
        ..keyed
    };
    assert_eq!(put(&neither), Ok(()));
    assert_eq!(
        delete_range(&DeleteRangeRequest::default()),
        Err(Error::EmptyKey)
    );
}

#[test]
fn both_branches_are_looked_at() {
    let bad = TxnRequest {
        failure: vec![a_put("")],
        ..then(vec![a_put("ok")])
    };
    assert_eq!(txn(&bad, 128), Err(Error::EmptyKey));
    assert_eq!(
        txn(&then(vec![RequestOp { request: None }]), 128),
        Err(Error::KeyNotFound)
    );
    let compare = TxnRequest {
        compare: vec![Compare::default()],
        ..TxnRequest::default()
    };
    assert_eq!(txn(&compare, 128), Err(Error::EmptyKey));
    let twice = TxnRequest {
        failure: vec![a_put("a"), a_put("a")],
        ..then(vec![])
    };
    assert_eq!(txn(&twice, 128), Err(Error::DuplicateKey));
    assert_eq!(txn(&TxnRequest::default(), 128), Ok(()));
}

#[test]
fn operations_are_counted_per_list_and_nested() {
    let ranges = |n: usize| vec![a_range("k"); n];
    let full = TxnRequest {
        failure: ranges(128),
        ..then(ranges(128))
    };
    assert_eq!(txn(&full, 128), Ok(()));
    assert_eq!(txn(&then(ranges(129)), 128), Err(Error::TooManyOps));
    assert_eq!(txn(&then(vec![nested(ranges(127), vec![])]), 128), Ok(()));
    assert_eq!(
        txn(&then(vec![nested(ranges(128), vec![])]), 128),
        Err(Error::TooManyOps)
    );
}

#[test]
fn keys_are_written_once() {
    let table = [
        (vec![a_put("a"), a_put("b")], true),
        (vec![a_put("a"), a_put("a")], false),
        (vec![a_put("a"), a_delete("a", "")], false),
        (vec![a_delete("a", "c"), a_put("b")], false),
        (vec![a_delete("a", "b"), a_put("b")], true),
        (vec![a_delete("a", "\0"), a_put("b")], true),
        (vec![a_delete("a", "c"), a_delete("b", "d")], true),
        (vec![a_put("a"), nested(vec![a_put("a")], vec![])], false),
        (vec![nested(vec![], vec![a_put("a")]), a_put("a")], false),
        (vec![nested(vec![a_put("a")], vec![a_put("a")])], true),
        (
            vec![
                nested(vec![a_put("a")], vec![]),
                nested(vec![], vec![a_put("a")]),
            ],
            false,
        ),
        (
            vec![nested(vec![a_delete("a", "")], vec![]), a_put("a")],
            false,
        ),
        (
            vec![
                nested(vec![a_delete("a", "")], vec![]),
                nested(vec![a_put("a")], vec![]),
            ],
            false,
        ),
        // Only this order is not noticed; it runs in order.
        (
            vec![
                nested(vec![a_put("a")], vec![]),
                nested(vec![a_delete("a", "")], vec![]),
            ],
            true,
        ),
    ];
    for (ops, fine) in table {
        let want = if fine {
            Ok(())
        } else {
            Err(Error::DuplicateKey)
        };
        assert_eq!(txn(&then(ops.clone()), 128), want, "{ops:?}");
    }
}

#[test]
fn reads_are_told_from_writes() {
    assert!(txn_is_read_only(&then(vec![a_range("a")])));
    assert!(txn_is_read_only(&TxnRequest::default()));
    assert!(!txn_is_read_only(&then(vec![a_range("a"), a_put("a")])));
    assert!(!txn_is_read_only(&then(vec![nested(
        vec![a_range("a")],
        vec![]
    )])));
    assert!(!txn_is_serializable(&then(vec![a_range("a")])));
}
