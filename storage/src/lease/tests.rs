//! Room storage, leases: unit stories and a property test against a model that keeps one flat list.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tenon_env::BoxFuture;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct TestClock(AtomicU64);

impl TestClock {
    fn advance(&self, by: Duration) -> Instant {
        let by = u64::try_from(by.as_nanos()).unwrap();
        Instant(self.0.fetch_add(by, Ordering::Relaxed) + by)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant(self.0.load(Ordering::Relaxed))
    }
    fn wall_ms(&self) -> u64 {
        0
    }
    fn sleep_until(&self, _deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn leader() -> (Arc<TestClock>, Lessor) {
    let clock = Arc::new(TestClock::default());
    let lessor = Lessor::new(clock.clone());
    lessor.promote(clock.now(), SECOND);
    (clock, lessor)
}

/// Ticks every 500 ms for `seconds`; what expired, with the half-second it did.
fn run(clock: &TestClock, lessor: &Lessor, seconds: u32) -> Vec<(u32, i64)> {
    let mut out = Vec::new();
    for tick in 1..=seconds * 2 {
        let now = clock.advance(SECOND / 2);
        out.extend(lessor.expired(now, 500).into_iter().map(|id| (tick, id)));
    }
    out
}

#[test]
fn grants_are_bounded_and_unique() {
    let (_, lessor) = leader();
    assert_eq!(lessor.grant(-7, LEASE_TTL_SECONDS_MAX).unwrap().id, -7);
    assert_eq!(lessor.grant(-7, 2), Err(GrantError::Exists));
    assert_eq!(
        lessor.grant(1, LEASE_TTL_SECONDS_MAX + 1),
        Err(GrantError::TtlTooLarge)
    );
    assert_eq!(lessor.grant(0, 2), Err(GrantError::NoId));
    assert_eq!(lessor.count(), 1);
}

#[test]
fn keys_move_between_leases_and_come_back_sorted() {
    let (_, lessor) = leader();
    lessor.grant(1, 10).unwrap();
    lessor.grant(2, 10).unwrap();
    for key in ["c", "a", "b", "d"] {
        lessor.attach(&Bytes::from(key), 1);
    }
    lessor.attach(&Bytes::from("b"), 2);
    lessor.attach(&Bytes::from("d"), 0);
    assert_eq!(lessor.lease_of(b"b"), 2);
    assert_eq!(
        lessor.revoke(1),
        Some(vec![Bytes::from("a"), Bytes::from("c")])
    );
    assert_eq!(lessor.revoke(1), None);
    lessor.detach(b"b");
    assert_eq!(lessor.revoke(2), Some(vec![]));
    assert_eq!(lessor.lease_of(b"a"), 0);
}

#[test]
fn rows_rebuild_the_set() {
    let (clock, lessor) = leader();
    lessor.grant(-9, 700).unwrap();
    let row = lessor.checkpoint(-9, 400).unwrap();
    let (key, value) = row.encode_row();
    assert_eq!(key, LeaseRow::key(-9));
    let attached = [(Bytes::from("k"), -9), (Bytes::from("free"), 0)];
    let again = Lessor::restore(clock.clone(), [&value[..]], attached).unwrap();
    assert_eq!(again.rows(), vec![row]);
    assert_eq!(again.keys(-9), vec![Bytes::from("k")]);
    assert_eq!(
        again
            .info(-9, clock.now(), false)
            .unwrap()
            .remaining_seconds,
        400
    );
    again.promote(clock.now(), SECOND);
    assert_eq!(again.remaining(-9, clock.now()), Some(SECOND * 401));
}

#[test]
fn a_lease_ends_once_then_answers_zero_until_it_is_revoked() {
    let (clock, lessor) = leader();
    lessor.grant(5, 2).unwrap();
    assert_eq!(run(&clock, &lessor, 3), vec![(4, 5)]);
    assert_eq!(lessor.renew(5, clock.now()), Renewal::Gone);
    let info = lessor.info(5, clock.now(), true).unwrap();
    assert_eq!((info.remaining_seconds, info.granted_seconds), (0, 2));
    // The proposal came to nothing: proposed again three seconds after the first.
    assert_eq!(run(&clock, &lessor, 3), vec![(4, 5)]);
    lessor.revoke(5).unwrap();
    assert_eq!(run(&clock, &lessor, 10), vec![]);
    assert_eq!(lessor.renew(5, clock.now()), Renewal::Gone);
    assert_eq!(lessor.info(5, clock.now(), true), None);
}

#[test]
fn renewals_keep_a_lease_and_allocate_nothing() {
    let (clock, lessor) = leader();
    lessor.grant(5, 2).unwrap();
    lessor.grant(6, 1000).unwrap();
    for _ in 0..10_000 {
        let now = clock.advance(SECOND / 10);
        let renewed = Renewal::Renewed {
            ttl_seconds: 2,
            clear_checkpoint: false,
        };
        assert_eq!(lessor.renew(5, now), renewed);
        lessor.renew(6, now);
        assert!(lessor.expired(now, 500).is_empty());
        assert!(lessor.timer_entries() <= 4, "{}", lessor.timer_entries());
    }
}

#[test]
fn grants_and_revokes_of_long_leases_do_not_pile_up() {
    let (_, lessor) = leader();
    for id in 1..10_000 {
        lessor.grant(id, 1_000_000).unwrap();
        lessor.revoke(id).unwrap();
    }
    assert!(lessor.timer_entries() < 200, "{}", lessor.timer_entries());
}

#[test]
fn leader_changes_give_the_remainder_not_the_whole_ttl() {
    let (clock, lessor) = leader();
    lessor.grant(1, 1000).unwrap();
    run(&clock, &lessor, 299);
    assert_eq!(lessor.checkpoints_due(clock.now(), 10), vec![]);
    run(&clock, &lessor, 1);
    assert_eq!(lessor.checkpoints_due(clock.now(), 10), vec![(1, 700)]);
    assert_eq!(lessor.checkpoints_due(clock.now(), 10), vec![]);
    lessor.checkpoint(1, 700);
    lessor.demote();
    assert_eq!(lessor.renew(1, clock.now()), Renewal::NotLeader);
    assert!(lessor.expired(clock.advance(SECOND * 9999), 10).is_empty());
    lessor.promote(clock.now(), SECOND);
    assert_eq!(lessor.remaining(1, clock.now()), Some(SECOND * 701));
    // A renewal must clear the remainder before the client hears of it.
    let renewed = Renewal::Renewed {
        ttl_seconds: 1000,
        clear_checkpoint: true,
    };
    assert_eq!(lessor.renew(1, clock.now()), renewed);
    lessor.checkpoint(1, 0);
    let renewed = Renewal::Renewed {
        ttl_seconds: 1000,
        clear_checkpoint: false,
    };
    assert_eq!(lessor.renew(1, clock.now()), renewed);
}

#[test]
fn a_renewal_right_after_promotion_gives_no_more_than_the_ttl() {
    let (clock, lessor) = leader();
    lessor.grant(1, 2).unwrap();
    lessor.promote(clock.now(), SECOND * 5);
    lessor.renew(1, clock.now());
    assert_eq!(run(&clock, &lessor, 3), vec![(4, 1)]);
}

#[test]
fn a_stall_lets_waiting_renewals_be_heard_first() {
    let (clock, lessor) = leader();
    lessor.grant(1, 2).unwrap();
    lessor.grant(2, 2).unwrap();
    run(&clock, &lessor, 1);
    let now = clock.advance(SECOND * 30);
    assert!(lessor.expired(now, 10).is_empty());
    assert!(matches!(lessor.renew(1, now), Renewal::Renewed { .. }));
    assert_eq!(run(&clock, &lessor, 1), vec![(2, 2)]);
}

#[test]
fn listing_is_by_end_soonest_first() {
    let (clock, lessor) = leader();
    lessor.grant(1, 30).unwrap();
    lessor.grant(2, 10).unwrap();
    lessor.grant(3, 20).unwrap();
    assert_eq!(lessor.list(), vec![2, 3, 1]);
    lessor.renew(2, clock.advance(SECOND * 9));
    assert_eq!(lessor.list(), vec![2, 3, 1]);
    lessor.renew(2, clock.advance(SECOND * 9));
    assert_eq!(lessor.list(), vec![3, 2, 1]);
}

#[test]
fn at_most_max_end_in_one_call_and_none_is_lost() {
    let (clock, lessor) = leader();
    for id in 1..=1200 {
        lessor.grant(id, 2).unwrap();
    }
    let now = clock.advance(SECOND * 2);
    let counts: Vec<usize> = (0..4).map(|_| lessor.expired(now, 500).len()).collect();
    assert_eq!(counts, vec![500, 500, 200, 0]);
}

#[derive(Clone, Debug)]
enum Op {
    Grant(i64, i64),
    Revoke(i64),
    Renew(i64),
    Attach(u8, i64),
    Detach(u8),
    Tick(u32, usize),
    Promote(u32),
    Demote,
    Checkpoint(i64, i64),
}

fn op() -> impl Strategy<Value = Op> {
    let id = 1..6i64;
    prop_oneof![
        (id.clone(), 1..8i64).prop_map(|(id, ttl)| Op::Grant(id, ttl)),
        id.clone().prop_map(Op::Revoke),
        id.clone().prop_map(Op::Renew),
        (0..5u8, 0..6i64).prop_map(|(key, id)| Op::Attach(key, id)),
        (0..5u8).prop_map(Op::Detach),
        (1..1500u32, 1..4usize).prop_map(|(ms, max)| Op::Tick(ms, max)),
        (0..2000u32).prop_map(Op::Promote),
        Just(Op::Demote),
        (id, 0..9i64).prop_map(|(id, left)| Op::Checkpoint(id, left)),
    ]
}

#[derive(Clone, Debug)]
struct ModelLease {
    ttl: i64,
    left: i64,
    /// Milliseconds; meaningful on the leader.
    ends: u64,
    proposed: Option<u64>,
}

/// One flat list, searched from end to end each time.
#[derive(Default)]
struct Model {
    now: u64,
    leader: bool,
    leases: BTreeMap<i64, ModelLease>,
    keys: BTreeMap<u8, i64>,
}

impl Model {
    fn tick(&mut self, max: usize) -> Vec<i64> {
        let now = self.now;
        if !self.leader {
            return Vec::new();
        }
        let mut due: Vec<(u64, i64)> = self
            .leases
            .iter()
            .map(|(id, lease)| (lease.proposed.map_or(lease.ends, |at| at + 3000), *id))
            .filter(|(at, _)| *at <= now)
            .collect();
        due.sort_unstable();
        due.truncate(max);
        for (_, id) in &due {
            self.leases.get_mut(id).unwrap().proposed = Some(now);
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether the id was free.
    fn grant(&mut self, id: i64, ttl: i64) -> bool {
        let fresh = !self.leases.contains_key(&id);
        let ends = self.now + ttl as u64 * 1000;
        self.leases.entry(id).or_insert(ModelLease {
            ttl,
            left: 0,
            ends,
            proposed: None,
        });
        fresh
    }

    fn renew(&mut self, id: i64) -> Renewal {
        match self.leases.get_mut(&id) {
            _ if !self.leader => Renewal::NotLeader,
            Some(lease) if lease.proposed.is_none() && lease.ends > self.now => {
                lease.ends = self.now + lease.ttl as u64 * 1000;
                Renewal::Renewed {
                    ttl_seconds: lease.ttl,
                    clear_checkpoint: lease.left > 0,
                }
            }
            _ => Renewal::Gone,
        }
    }

    fn promote(&mut self, extend: u32) {
        self.leader = true;
        for lease in self.leases.values_mut() {
            let left = if lease.left > 0 {
                lease.left
            } else {
                lease.ttl
            };
            lease.ends = self.now + left as u64 * 1000 + u64::from(extend);
            lease.proposed = None;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_flat_list(ops in proptest::collection::vec(op(), 1..120)) {
        let clock = Arc::new(TestClock::default());
        let lessor = Lessor::new(clock.clone());
        let mut model = Model::default();
        for op in ops {
            step(&clock, &lessor, &mut model, op)?;
            for (id, lease) in &model.leases {
                let info = lessor.info(*id, clock.now(), true).expect("model has it");
                let keys: Vec<Bytes> = model.keys.iter()
                    .filter(|(_, owner)| *owner == id)
                    .map(|(key, _)| Bytes::copy_from_slice(&[*key]))
                    .collect();
                prop_assert_eq!(info.keys, keys);
                let left = match (model.leader, lease.proposed) {
                    (true, None) => lease.ends.saturating_sub(model.now) / 1000,
                    (true, Some(_)) => 0,
                    _ => if lease.left > 0 { lease.left as u64 } else { lease.ttl as u64 },
                };
                prop_assert_eq!(info.remaining_seconds as u64, left);
            }
            prop_assert_eq!(lessor.count(), model.leases.len());
        }
    }
}

fn step(
    clock: &TestClock,
    lessor: &Lessor,
    model: &mut Model,
    op: Op,
) -> Result<(), TestCaseError> {
    match op {
        Op::Grant(id, ttl) => prop_assert_eq!(lessor.grant(id, ttl).is_ok(), model.grant(id, ttl)),
        Op::Revoke(id) => {
            let keys = model.leases.remove(&id).map(|_| {
                let keys = model.keys.iter().filter(|(_, owner)| **owner == id);
                keys.map(|(key, _)| Bytes::copy_from_slice(&[*key]))
                    .collect::<Vec<_>>()
            });
            model.keys.retain(|_, owner| *owner != id);
            prop_assert_eq!(lessor.revoke(id), keys);
        }
        Op::Renew(id) => prop_assert_eq!(lessor.renew(id, clock.now()), model.renew(id)),
        Op::Attach(key, id) => {
            if id == 0 || model.leases.contains_key(&id) {
                lessor.attach(&Bytes::copy_from_slice(&[key]), id);
                model.keys.remove(&key);
                if id != 0 {
                    model.keys.insert(key, id);
                }
            }
        }
        Op::Detach(key) => {
            lessor.detach(&[key]);
            model.keys.remove(&key);
        }
        Op::Tick(ms, max) => {
            clock.advance(Duration::from_millis(ms.into()));
            model.now += u64::from(ms);
            prop_assert_eq!(lessor.expired(clock.now(), max), model.tick(max));
        }
        Op::Promote(extend) => {
            lessor.promote(clock.now(), Duration::from_millis(extend.into()));
            model.promote(extend);
        }
        Op::Demote => {
            lessor.demote();
            model.leader = false;
        }
        Op::Checkpoint(id, left) => {
            let row = lessor.checkpoint(id, left);
            let lease = model.leases.get_mut(&id);
            prop_assert_eq!(row.is_some(), lease.is_some());
            if let Some(lease) = lease {
                lease.left = left.min(lease.ttl);
            }
        }
    }
    Ok(())
}
