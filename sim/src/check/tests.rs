//! Tests of the checkers: each finds what it is there to find, in a small history made by hand.

use super::timeline::{Timeline, by_revision};
use super::watches::Watched;
use super::{Finding, elections, hashes, leases, model::Model, reads, watches, writes};
use crate::history::{Call, CallId, Outcome, Reply, Request, tag};
use bytes::Bytes;
use std::collections::BTreeMap;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::mvccpb::{Event, KeyValue, event::EventType};

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader {
        revision,
        ..Default::default()
    })
}

fn call(request: Request, floor: i64, outcome: Outcome) -> Call {
    Call {
        client: 1,
        request,
        invoked: 0,
        floor,
        returned: Some(1),
        outcome,
    }
}

fn kv(key: &'static str, number: usize, create: i64, revision: i64, version: i64) -> KeyValue {
    KeyValue {
        key: Bytes::from_static(key.as_bytes()),
        create_revision: create,
        mod_revision: revision,
        version,
        value: Bytes::from(tag(CallId(number))),
        lease: 0,
    }
}

fn put_event(kv: KeyValue, prev_kv: Option<KeyValue>) -> Event {
    Event {
        r#type: EventType::Put as i32,
        kv: Some(kv),
        prev_kv,
    }
}

fn delete_event(key: &'static str, revision: i64, prev_kv: KeyValue) -> Event {
    let key = Bytes::from_static(key.as_bytes());
    let kv = KeyValue {
        key,
        mod_revision: revision,
        ..Default::default()
    };
    Event {
        r#type: EventType::Delete as i32,
        kv: Some(kv),
        prev_kv: Some(prev_kv),
    }
}

fn put(number: usize, key: &'static str, floor: i64, revision: i64) -> Call {
    let key = Bytes::from_static(key.as_bytes());
    let value = Bytes::from(tag(CallId(number)));
    let request = Request::Put(pb::PutRequest {
        key,
        value,
        ..Default::default()
    });
    let reply = Reply::Put(pb::PutResponse {
        header: header(revision),
        prev_kv: None,
    });
    call(request, floor, Outcome::Reply(reply))
}

fn delete(key: &'static str, floor: i64, revision: i64, deleted: i64) -> Call {
    let key = Bytes::from_static(key.as_bytes());
    let request = Request::Delete(pb::DeleteRangeRequest {
        key,
        ..Default::default()
    });
    let reply = pb::DeleteRangeResponse {
        header: header(revision),
        deleted,
        ..Default::default()
    };
    call(request, floor, Outcome::Reply(Reply::Delete(reply)))
}

fn range(floor: i64, revision: i64, kvs: Vec<KeyValue>) -> Call {
    let (key, range_end) = (Bytes::from_static(b"a"), Bytes::from_static(b"z"));
    let request = Request::Range(pb::RangeRequest {
        key,
        range_end,
        ..Default::default()
    });
    let count = kvs.len() as i64;
    let reply = pb::RangeResponse {
        header: header(revision),
        kvs,
        more: false,
        count,
    };
    call(request, floor, Outcome::Reply(Reply::Range(reply)))
}

/// a = call 0 at 2, b = call 1 at 3, a = call 2 at 4, b deleted by call 3 at 5.
fn story() -> (Vec<Call>, Timeline) {
    let calls = vec![
        put(0, "a", 1, 2),
        put(1, "b", 2, 3),
        put(2, "a", 3, 4),
        delete("b", 4, 5, 1),
    ];
    let (a, b) = (kv("a", 0, 2, 2, 1), kv("b", 1, 3, 3, 1));
    let mut timeline = Timeline::default();
    timeline.add(2, vec![put_event(a.clone(), None)]).unwrap();
    timeline.add(3, vec![put_event(b.clone(), None)]).unwrap();
    timeline
        .add(4, vec![put_event(kv("a", 2, 2, 4, 2), Some(a))])
        .unwrap();
    timeline.add(5, vec![delete_event("b", 5, b)]).unwrap();
    (calls, timeline)
}

fn judged(calls: &[Call], timeline: &Timeline) -> Result<Model, Finding> {
    let (model, _) = writes::check(calls, timeline, 0)?;
    reads::check(calls, &model, 0, timeline.last(), reads::Answered::ByOne)?;
    Ok(model)
}

fn found(calls: &[Call], timeline: &Timeline) -> String {
    judged(calls, timeline).expect_err("something is wrong").0
}

#[test]
fn a_right_story_is_accepted() {
    let (mut calls, timeline) = story();
    calls.push(range(5, 5, vec![kv("a", 2, 2, 4, 2)]));
    calls.push(range(1, 3, vec![kv("a", 0, 2, 2, 1), kv("b", 1, 3, 3, 1)]));
    calls.push(delete("b", 5, 5, 0));
    let model = judged(&calls, &timeline).unwrap();
    assert_eq!(model.at(b"b", 4).map(|kv| kv.version), Some(1));
    assert_eq!(model.at(b"b", 5), None);
}

#[test]
fn revisions_have_no_gap_and_never_change() {
    let (_, mut timeline) = story();
    assert!(
        timeline
            .add(7, vec![put_event(kv("c", 9, 7, 7, 1), None)])
            .is_err(),
        "a gap"
    );
    assert!(
        timeline
            .add(3, vec![put_event(kv("b", 9, 3, 3, 1), None)])
            .is_err(),
        "another content"
    );
    assert!(timeline.add(6, vec![]).is_err(), "nothing changed");
    let back = vec![
        put_event(kv("c", 9, 7, 7, 1), None),
        put_event(kv("c", 9, 6, 6, 1), None),
    ];
    assert!(by_revision(back).is_err(), "told in the wrong order");
}

#[test]
fn a_lost_or_doubled_or_invented_write_is_found() {
    let (mut calls, timeline) = story();
    calls.push(put(4, "c", 5, 6));
    assert!(found(&calls, &timeline).contains("acknowledged and lost"));

    let (mut calls, timeline) = story();
    calls.push(delete("a", 5, 6, 1));
    assert!(found(&calls, &timeline).contains("acknowledged and lost"));

    let (calls, mut timeline) = story();
    let again = put_event(kv("a", 2, 2, 6, 3), Some(kv("a", 2, 2, 4, 2)));
    timeline.add(6, vec![again]).unwrap();
    assert!(found(&calls, &timeline).contains("told 4 and stands at 6"));

    let (mut calls, timeline) = story();
    calls[2].outcome = Outcome::Refused(Error::NoSpace);
    assert!(found(&calls, &timeline).contains("refused"));
    calls[2].outcome = Outcome::Unknown;
    judged(&calls, &timeline).expect("an unknown outcome may have happened");

    let (mut calls, timeline) = story();
    calls.truncate(3);
    assert!(
        found(&calls, &timeline).contains("no cause"),
        "a deletion that nobody asked for"
    );
}

#[test]
fn a_write_that_goes_back_is_found() {
    let (mut calls, timeline) = story();
    calls[2].floor = 4;
    assert!(found(&calls, &timeline).contains("asked for after 4"));
}

#[test]
fn a_stale_or_wrong_read_is_found() {
    let (mut calls, timeline) = story();
    calls.push(range(5, 4, vec![kv("a", 2, 2, 4, 2), kv("b", 1, 3, 3, 1)]));
    assert!(found(&calls, &timeline).contains("went back behind 5"));
    calls.pop();
    calls.push(range(5, 5, vec![kv("a", 0, 2, 2, 1)]));
    assert!(found(&calls, &timeline).contains("should show"));
    calls.pop();
    calls.push(range(5, 9, vec![]));
    assert!(found(&calls, &timeline).contains("beyond"));
}

#[test]
fn a_watch_that_misses_repeats_or_invents_is_found() {
    let (_, timeline) = story();
    let plain = |event: &Event| Event {
        prev_kv: None,
        ..event.clone()
    };
    let all: Vec<Event> = timeline
        .iter()
        .flat_map(|(_, e)| e.iter().map(plain))
        .collect();
    let watched = |events: Vec<Event>| Watched {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        first: 2,
        last: 5,
        events,
        progress: Vec::new(),
    };
    watches::check(&watched(all.clone()), &timeline).unwrap();
    let mut missing = all.clone();
    missing.remove(1);
    let mut repeated = all.clone();
    repeated.insert(1, all[0].clone());
    let mut swapped = all.clone();
    swapped.swap(0, 1);
    let early = [all.clone(), vec![put_event(kv("a", 9, 2, 6, 3), None)]].concat();
    for wrong in [missing, repeated, swapped, early, all[..3].to_vec()] {
        assert!(
            watches::check(&watched(wrong.clone()), &timeline).is_err(),
            "{wrong:?}"
        );
    }
}

#[test]
fn another_hash_of_the_same_history_is_found() {
    let hash = |hash, hash_revision, compact_revision| {
        let reply = pb::HashKvResponse {
            header: header(hash_revision),
            hash,
            hash_revision,
            compact_revision,
        };
        call(
            Request::HashKv(hash_revision),
            1,
            Outcome::Reply(Reply::HashKv(reply)),
        )
    };
    assert_eq!(
        hashes::check(&[hash(7, 5, -1), hash(7, 5, -1), hash(8, 5, 3)]),
        Ok(1)
    );
    assert!(hashes::check(&[hash(7, 5, -1), hash(8, 5, -1)]).is_err());
}

#[test]
fn a_lease_that_ends_early_is_found() {
    let grant = |ttl| {
        let reply = pb::LeaseGrantResponse {
            header: header(1),
            id: 7,
            ttl,
            error: String::new(),
        };
        call(
            Request::Grant(7, ttl),
            1,
            Outcome::Reply(Reply::Grant(reply)),
        )
    };
    let expired = BTreeMap::from([(7, 9)]);
    let seen = |ns| BTreeMap::from([(9, ns)]);
    leases::check(&[grant(2)], &expired, &seen(2_000_000_000), 0).unwrap();
    assert!(leases::check(&[grant(2)], &expired, &seen(1_900_000_000), 0).is_err());
    leases::check(&[grant(2)], &expired, &seen(1_900_000_000), 5).expect("clocks may run fast");
}

#[test]
fn who_rules_without_being_the_oldest_candidate_is_found() {
    let one = kv("office/0/a", 1, 2, 2, 1);
    let two = kv("office/0/b", 2, 3, 3, 1);
    let decree = |fence: i64, revision: i64| KeyValue {
        value: Bytes::from(format!("{}r;fence={fence}", tag(CallId(9)))),
        ..kv("decree/0/", 9, revision, revision, 1)
    };
    let begun = [put_event(one.clone(), None), put_event(two.clone(), None)];
    let judge = |more: &[Event]| {
        let mut timeline = Timeline::default();
        for (revision, events) in by_revision(begun.iter().chain(more).cloned().collect()).unwrap()
        {
            timeline.add(revision, events).unwrap();
        }
        let model = Model::of(&timeline, 0).unwrap();
        elections::check(&timeline, &model)
    };
    let proclaims = |kv: &KeyValue| {
        let next = KeyValue {
            mod_revision: 4,
            version: 2,
            ..kv.clone()
        };
        put_event(next, Some(kv.clone()))
    };
    assert_eq!(judge(&[proclaims(&one)]), Ok(1));
    assert_eq!(judge(&[put_event(decree(2, 4), None)]), Ok(1));
    assert!(judge(&[proclaims(&two)]).is_err());
    assert!(judge(&[put_event(decree(3, 4), None)]).is_err());
    let gone = delete_event("office/0/a", 4, one.clone());
    let after_it = |event: Event| judge(&[gone.clone(), event]);
    assert_eq!(after_it(put_event(decree(3, 5), None)), Ok(1));
    assert!(after_it(put_event(decree(2, 5), None)).is_err());
}

/// A put of `a` under lease 7 at 2 and its deletion at 3; then whatever comes.
fn leased() -> (Vec<Call>, Timeline) {
    let mut put = put(0, "a", 1, 2);
    if let Request::Put(request) = &mut put.request {
        request.lease = 7;
    }
    let a = KeyValue {
        lease: 7,
        ..kv("a", 0, 2, 2, 1)
    };
    let mut timeline = Timeline::default();
    timeline.add(2, vec![put_event(a.clone(), None)]).unwrap();
    timeline.add(3, vec![delete_event("a", 3, a)]).unwrap();
    (vec![put], timeline)
}

fn delete_all(floor: i64) -> Call {
    let request = pb::DeleteRangeRequest {
        key: Bytes::from_static(b"a"),
        range_end: Bytes::from_static(b"z"),
        ..Default::default()
    };
    call(Request::Delete(request), floor, Outcome::Unknown)
}

/// Cluster seed 416: a revocation that found no key any more was taken for the cause of the revision that it named.
#[test]
fn what_was_asked_for_later_is_no_cause() {
    let (mut calls, timeline) = leased();
    let revoked = pb::LeaseRevokeResponse { header: header(3) };
    let revoked = Outcome::Reply(Reply::Revoke(revoked));
    calls.extend([delete_all(2), call(Request::Revoke(7), 3, revoked)]);
    let (_, expired) = writes::check(&calls, &timeline, 0).unwrap();
    assert_eq!(expired, BTreeMap::new(), "the deletion was it");
}

/// Seed 205 of hosts: a deletion of unknown outcome was taken for the end of a lease, and had no effect left when it came.
#[test]
fn a_doubtful_cause_goes_where_it_is_needed() {
    let (mut calls, mut timeline) = leased();
    calls.extend([delete_all(2), put(2, "b", 3, 4), put(3, "c", 4, 5)]);
    let (b, c) = (kv("b", 2, 4, 4, 1), kv("c", 3, 5, 5, 1));
    timeline.add(4, vec![put_event(b.clone(), None)]).unwrap();
    timeline.add(5, vec![put_event(c.clone(), None)]).unwrap();
    let gone = vec![delete_event("b", 6, b), delete_event("c", 6, c)];
    timeline.add(6, gone).unwrap();
    let (_, expired) = writes::check(&calls, &timeline, 0).unwrap();
    assert_eq!(expired, BTreeMap::from([(7, 3)]));
    calls[1] = delete_all(6);
    let nobody = writes::check(&calls, &timeline, 0);
    assert!(nobody.is_err(), "asked for after it happened");
}
