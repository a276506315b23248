//! Room storage, state: random commands on the store and on the naive model, with drains, sweeps and
//! restarts between them.

use super::model::Model;
use super::{Life, op, small_on};
use crate::check;
use crate::state::EngineKind;
use crate::wal::tests::disk::FakeDisk;
use crate::watch::HistoryLimits;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use tenon_proto::command::command::Body;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::compare::TargetUnion;
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::*;
use tenon_proto::ids::Revision;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::KeyValue;
use tenon_proto::mvccpb::event::EventType;

#[derive(Clone, Debug)]
enum Step {
    Run(Body),
    Read(RangeRequest),
    Drain,
    Sweep,
    Restart,
}

fn key() -> impl Strategy<Value = bytes::Bytes> {
    select(vec!["a", "aa", "ab", "b", "c", "d"])
        .prop_map(|key| bytes::Bytes::from_static(key.as_bytes()))
}

fn end() -> impl Strategy<Value = bytes::Bytes> {
    select(vec!["", "", "b", "c", "e", "\0"])
        .prop_map(|key| bytes::Bytes::from_static(key.as_bytes()))
}

fn a_put() -> impl Strategy<Value = PutRequest> {
    let value = select(vec![
        "",
        "x",
        "yy",
        "long enough to be let go of some time or other",
    ]);
    let lease = prop_oneof![4 => Just(0i64), 3 => 1i64..4, 1 => Just(-5i64)];
    let flags = (any::<bool>(), 0u8..8);
    (key(), value, lease, flags).prop_map(|(key, value, lease, (prev_kv, ignore))| {
        let (ignore_value, ignore_lease) = (ignore == 0, ignore <= 1);
        PutRequest {
            key,
            value: if ignore_value {
                bytes::Bytes::new()
            } else {
                value.into()
            },
            lease: if ignore_lease { 0 } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        }
    })
}

fn a_delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (key(), end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| DeleteRangeRequest {
        key,
        range_end,
        prev_kv,
    })
}

fn filter() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0i64), 1 => 1i64..20]
}

fn a_range() -> impl Strategy<Value = RangeRequest> {
    let revision = prop_oneof![3 => Just(0i64), 3 => 1i64..30, 1 => Just(-1i64)];
    let limit = prop_oneof![3 => Just(0i64), 3 => 1i64..5, 1 => Just(-3i64)];
    let filters = (filter(), filter(), filter(), filter());
    let sort = (0i32..3, 0i32..5, any::<bool>(), 0u8..6);
    (key(), end(), revision, limit, filters, sort).prop_map(
        |(key, range_end, revision, limit, filters, (order, target, keys_only, count))| {
            RangeRequest {
                key,
                range_end,
                limit,
                revision,
                sort_order: order,
                sort_target: target,
                serializable: false,
                keys_only,
                count_only: count == 0,
                min_mod_revision: filters.0,
                max_mod_revision: filters.1,
                min_create_revision: filters.2,
                max_create_revision: filters.3,
            }
        },
    )
}

fn a_compare() -> impl Strategy<Value = Compare> {
    let asked = option::of(prop_oneof![
        (0i64..4).prop_map(TargetUnion::Version),
        (0i64..20).prop_map(TargetUnion::CreateRevision),
        (0i64..20).prop_map(TargetUnion::ModRevision),
        select(vec!["", "x"]).prop_map(|v| TargetUnion::Value(v.into())),
        (0i64..3).prop_map(TargetUnion::Lease),
    ]);
    (0i32..4, 0i32..5, key(), asked, end()).prop_map(
        |(result, target, key, target_union, range_end)| Compare {
            result,
            target,
            key,
            target_union,
            range_end,
        },
    )
}

fn a_txn() -> impl Strategy<Value = TxnRequest> {
    let leaf = prop_oneof![
        3 => a_put().prop_map(|r| op(Request::RequestPut(r))),
        1 => a_delete().prop_map(|r| op(Request::RequestDeleteRange(r))),
        2 => a_range().prop_map(|r| op(Request::RequestRange(r))),
    ];
    let ops = leaf.prop_recursive(2, 12, 3, |inner| {
        (
            vec(a_compare(), 0..2),
            vec(inner.clone(), 0..3),
            vec(inner, 0..3),
        )
            .prop_map(|(compare, success, failure)| {
                op(Request::RequestTxn(TxnRequest {
                    compare,
                    success,
                    failure,
                }))
            })
    });
    (
        vec(a_compare(), 0..3),
        vec(ops.clone(), 0..4),
        vec(ops, 0..4),
    )
        .prop_map(|(compare, success, failure)| TxnRequest {
            compare,
            success,
            failure,
        })
        .prop_filter("static checks pass", |txn| check::txn(txn, 128).is_ok())
}

fn step() -> impl Strategy<Value = Step> {
    let grant = (1i64..4).prop_map(|id| LeaseGrantRequest { id, ttl: 60 });
    let revoke = (1i64..4).prop_map(|id| LeaseRevokeRequest { id });
    let compact = (0i64..30).prop_map(|revision| CompactionRequest {
        revision,
        physical: false,
    });
    prop_oneof![
        8 => a_put().prop_map(|r| Step::Run(r.into())),
        3 => a_delete().prop_map(|r| Step::Run(r.into())),
        5 => a_txn().prop_map(|r| Step::Run(r.into())),
        2 => grant.prop_map(|r| Step::Run(r.into())),
        1 => revoke.prop_map(|r| Step::Run(r.into())),
        1 => compact.prop_map(|r| Step::Run(r.into())),
        6 => a_range().prop_map(Step::Read),
        2 => Just(Step::Drain),
        1 => Just(Step::Sweep),
        1 => Just(Step::Restart),
    ]
}

/// Everything a client could see of the past and the present.
fn compare_all(life: &Life, model: &Model) {
    assert_eq!(life.store.revision(), Revision(model.revision));
    assert_eq!(life.store.compact_revision(), Revision(model.compacted));
    for revision in model.compacted.max(1)..=model.revision {
        let request = RangeRequest {
            revision,
            ..super::range("\0", "\0")
        };
        let want: Vec<KeyValue> = model.at(revision).values().cloned().collect();
        let mut cursor = life.store.range_cursor(&request).expect("not compacted");
        let mut kvs = Vec::new();
        while !cursor.is_done() {
            kvs.extend(cursor.next(2).expect("no compaction meanwhile"));
        }
        assert_eq!(kvs, want, "at {revision}");
        assert_eq!(cursor.finish(), Ok((false, want.len() as i64)));
    }
    for (key, end) in [("\0", "\0"), ("a", ""), ("aa", "c")] {
        compare_history(life, model, &KeyRange::new(key, end), 1);
        compare_history(life, model, &KeyRange::new(key, end), 1000);
    }
}

fn compare_history(life: &Life, model: &Model, range: &KeyRange, page: usize) {
    let limits = HistoryLimits {
        matched_revisions_max: page,
        matched_bytes_max: 1 << 20,
        scanned_records_max: page * 2,
    };
    let history = life.store.history();
    let mut from = model.compacted.max(1);
    let wanted = model.changes.iter().filter(|(main, kv, deleted)| {
        // At the compaction revision itself only what a read there shows, and its deletions, is sure.
        *main > from || (*main == from && (*deleted || model.at(from).get(&kv.key[..]) == Some(kv)))
    });
    let wanted: Vec<_> = wanted
        .filter(|(_, kv, _)| range.contains(&kv.key))
        .cloned()
        .collect();
    let mut seen = Vec::new();
    while from <= model.revision {
        let page = history
            .changes(range, from, model.revision, limits)
            .expect("not compacted");
        assert!(page.next > from, "a page gets past a revision");
        for event in &page.events {
            assert!(event.revision() < page.next);
            let gone = event.kind() == EventType::Delete;
            let before = history
                .pair_at(&event.kv().key, event.revision() - 1)
                .expect("nothing is lost");
            if event.revision() > model.compacted.max(1) {
                let want = model
                    .at(event.revision() - 1)
                    .get(&event.kv().key[..])
                    .cloned();
                assert_eq!(before, want);
            }
            seen.push((event.revision(), event.kv().clone(), gone));
        }
        from = page.next;
    }
    assert_eq!(seen, wanted);
}

fn run(engine: EngineKind, steps: Vec<Step>) {
    let life = Life::on(FakeDisk::default(), small_on(engine));
    let (mut life, mut model) = (life, Model::new());
    for step in steps {
        match step {
            Step::Run(body) => {
                let want = model.apply(&body);
                let got = life.run(body.clone()).into_result();
                assert_eq!(got, want, "{body:?}");
            }
            Step::Read(request) => {
                let txn = TxnRequest {
                    success: vec![op(Request::RequestRange(request.clone()))],
                    ..TxnRequest::default()
                };
                let want = model.range(&request);
                assert_eq!(life.store.range(&request), want);
                let want = match request.revision < 0 && request.revision < model.compacted {
                    // Inside a transaction that is a revision before the compacted one.
                    true => want.and(Err(Error::Compacted)),
                    false => want,
                };
                let txn = life
                    .store
                    .read_txn(&txn)
                    .map(|mut txn| txn.responses.remove(0));
                let range = txn.map(|op| match op.response {
                    Some(response_op::Response::ResponseRange(range)) => range,
                    other => panic!("a range answers a range, not {other:?}"),
                });
                assert_eq!(range, want);
            }
            Step::Drain => life.drain(),
            Step::Sweep => life.sweep(),
            Step::Restart => {
                life.drain();
                let before = life.store.hash_kv(Revision(0));
                life = life.reopened();
                assert_eq!(life.store.hash_kv(Revision(0)), before);
            }
        }
    }
    compare_all(&life, &model);
    let sum = life.store.hash_kv(Revision(0)).expect("HashKV now");
    let older = life.store.hash_kv(Revision(model.compacted.max(1)));
    life.drain();
    life.sweep();
    life.drain();
    assert_eq!(
        life.store.hash_kv(Revision(0)),
        Ok(sum),
        "removal does not change the sum"
    );
    assert_eq!(life.store.hash_kv(Revision(model.compacted.max(1))), older);
    compare_all(&life, &model);
    let life = life.reopened();
    assert_eq!(
        life.store.hash_kv(Revision(0)),
        Ok(sum),
        "a restart does not change the sum"
    );
    compare_all(&life, &model);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        rng_seed: RngSeed::Fixed(20),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn the_store_answers_as_the_model(
        engine in select(vec![EngineKind::Redb, EngineKind::Memory]),
        steps in vec(step(), 1..60),
    ) {
        run(engine, steps);
    }
}
