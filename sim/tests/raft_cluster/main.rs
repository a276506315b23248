//! Room `sim`, test of room `raft`: three members and more in the simulated world: elections, forwarding, losses, changes
//! of members. Seeds are fixed; time is simulated.

mod nemesis;
mod snapshots;
mod world;

use std::time::Duration;
use tenon_proto::command::Command;
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_proto::peer::ask::Ask;
use tenon_raft::{MemberError, Premise, ProposeError, Reason};
use world::{World, node};

const THREE: [u64; 3] = [1, 2, 3];

#[test]
fn any_member_takes_writes_and_reads() {
    let world = World::new(1, 3);
    let leader = world.leader(&THREE);
    for via in THREE {
        world.put(via, &format!("via{via}"), "x").expect("a put");
        for reader in THREE {
            assert_eq!(
                world.get(reader, &format!("via{via}")).as_deref(),
                Some("x")
            );
        }
    }
    let last = world.put(leader, "last", "y").expect("a put");
    world.applied(&THREE, LogIndex(last.index));
    world.agree(&THREE);
}

#[test]
fn a_dead_leader_is_replaced_and_catches_up() {
    for seed in 10..15 {
        let mut world = World::new(seed, 3);
        let first = world.leader(&THREE);
        world.put(first, "a", "1").expect("a put");
        world.kill(first);
        let rest: Vec<u64> = world.alive();
        let second = world.leader(&rest);
        assert_ne!(first, second);
        assert_eq!(world.get(rest[0], "a").as_deref(), Some("1"));
        for n in 0..50 {
            world
                .put(rest[n % 2], &format!("key{n}"), "2")
                .expect("a put");
        }
        world.restart(first);
        world.leader(&THREE);
        let last = world.put(first, "b", "3").expect("a put");
        world.applied(&THREE, LogIndex(last.index));
        world.agree(&THREE);
    }
}

#[test]
fn a_leader_cut_off_acknowledges_nothing_and_loses_its_office() {
    for seed in 20..25 {
        let world = World::new(seed, 3);
        let old = world.leader(&THREE);
        world.put(old, "a", "1").expect("a put");
        let rest: Vec<u64> = THREE.into_iter().filter(|id| *id != old).collect();
        rest.iter().for_each(|id| world.sim.cut(old, *id));
        let lonely = world.member(old).put("a", "lonely", Duration::from_secs(3));
        assert!(matches!(world.run(lonely), Err(ProposeError::Unknown(_))));
        world.leader(&rest);
        world.put(rest[0], "a", "2").expect("a put");
        let stale = world.member(old);
        let deadline = stale.env.now() + Duration::from_secs(3);
        assert!(
            world.run(stale.raft.read_index(deadline)).is_err(),
            "a stale read"
        );
        assert_eq!(stale.raft.status().leader, None);
        rest.iter().for_each(|id| world.sim.mend(old, *id));
        world.leader(&THREE);
        assert_eq!(world.get(old, "a").as_deref(), Some("2"));
        let last = world.put(old, "b", "3").expect("a put");
        world.applied(&THREE, LogIndex(last.index));
        world.agree(&THREE);
    }
}

#[test]
fn one_grows_to_three_and_shrinks_again() {
    let mut world = World::new(30, 1);
    world.put(1, "a", "1").expect("a put");
    let member = |world: &World| world.member(1).raft.clone();
    let soon = |world: &World| world.member(1).env.now() + Duration::from_secs(20);
    for id in [2, 3] {
        let raft = member(&world);
        let add = raft.add_learner(MemberId(id), node(id), Premise::Any, soon(&world));
        world.run(add).expect("a learner");
        let again = raft.add_learner(MemberId(id), node(id), Premise::Any, soon(&world));
        assert_eq!(world.run(again), Err(MemberError::Exists(MemberId(id))));
        world.start(id, None);
        let last = world.put(1, &format!("for{id}"), "x").expect("a put");
        world.applied(&[id], LogIndex(last.index));
        assert!(world.member(id).raft.status().is_learner);
        let promote = raft.promote(MemberId(id), Premise::Any, soon(&world));
        world.run(promote).expect("a voter");
        assert_eq!(world.get(id, "a").as_deref(), Some("1"));
    }
    // Any member may be asked; here one that does not lead.
    let hand_over = world
        .member(3)
        .raft
        .transfer_leader(MemberId(2), soon(&world));
    world.run(hand_over).expect("a hand-over");
    assert_eq!(world.leader(&THREE), 2);
    let remove = world
        .member(3)
        .raft
        .remove(MemberId(2), Premise::Any, soon(&world));
    world.run(remove).expect("a removal of the leader");
    let leader = world.leader(&[1, 3]);
    world.put(leader, "b", "2").expect("a put");
    let remove = world
        .member(1)
        .raft
        .remove(MemberId(3), Premise::Any, soon(&world));
    world.run(remove).expect("a removal");
    assert_eq!(world.leader(&[1]), 1);
    assert_eq!(world.get(1, "b").as_deref(), Some("2"));
    let last = world
        .member(1)
        .raft
        .remove(MemberId(1), Premise::Any, soon(&world));
    assert_eq!(world.run(last), Err(MemberError::LastVoter));
}

#[test]
fn a_member_whose_disk_was_lost_does_not_vote_again() {
    let mut world = World::new(50, 3);
    let leader = world.leader(&THREE);
    let last = world.put(leader, "a", "1").expect("a put");
    world.applied(&THREE, LogIndex(last.index));
    let lost = THREE
        .into_iter()
        .find(|id| *id != leader)
        .expect("a follower");
    world.kill(lost);
    world.restart_wiped(lost);
    let mut fatal = world.member(lost).raft.fatal();
    let told = async {
        fatal
            .wait_for(Option::is_some)
            .await
            .expect("alive")
            .clone()
    };
    let told = world.within(60, "refusal", told).expect("a reason");
    assert!(told.contains("has run in this cluster before"), "{told}");
    assert!(
        world.member(lost).raft.status().voters.is_empty(),
        "it took part in nothing"
    );
    world.put(leader, "b", "2").expect("a put without it");
}

#[test]
fn a_member_of_the_first_configuration_may_start_late() {
    let mut world = World::begin(60, &THREE, &[1, 2]);
    let leader = world.leader(&[1, 2]);
    let last = world.put(leader, "a", "1").expect("a put");
    let initial = Some(world.initial.clone());
    world.start(3, initial);
    world.applied(&THREE, LogIndex(last.index));
    assert_eq!(*world.member(3).raft.fatal().borrow(), None);
    assert_eq!(world.get(3, "a").as_deref(), Some("1"));
}

#[test]
fn a_leader_steps_down_and_its_office_goes_with_it() {
    let world = World::new(80, 3);
    let old = world.leader(&THREE);
    let last = world.put(old, "a", "1").expect("a put");
    world.applied(&THREE, LogIndex(last.index));
    let member = world.member(old);
    let soon = member.env.now() + Duration::from_secs(20);
    assert_eq!(member.raft.progress().len(), 2, "a leader knows its peers");
    assert!(
        world.run(member.raft.step_down(soon)),
        "somebody takes over"
    );
    let new = world.leader(&THREE);
    assert_ne!(old, new);
    assert!(member.raft.progress().is_empty());
    let office = member.raft.propose_as_leader(Command::default(), soon);
    let refused = ProposeError::NotProposed(Reason::NoLeader);
    assert_eq!(world.run(office), Err(refused));
    assert_eq!(world.get(old, "a").as_deref(), Some("1"));
}

/// Whoever judged a change by a membership that is not the newest any more has judged nothing.
#[test]
fn of_two_changes_judged_by_one_membership_one_is_made() {
    for (seed, via) in [(90, "the leader"), (91, "a follower")] {
        let world = World::new(seed, 3);
        let leader = world.leader(&THREE);
        let last = world.put(leader, "a", "1").expect("a put");
        world.applied(&THREE, LogIndex(last.index));
        let asked = THREE
            .into_iter()
            .find(|id| (*id == leader) == (via == "the leader"));
        let member = world.member(asked.expect("three members"));
        let soon = member.env.now() + Duration::from_secs(20);
        let judged_by = member.raft.store().membership().0.expect("a membership");
        let add = |id| {
            let premise = Premise::At(judged_by);
            member
                .raft
                .add_learner(MemberId(id), node(id), premise, soon)
        };
        let both = world.run(futures_util::future::join(add(4), add(5)));
        let made = [&both.0, &both.1].into_iter().filter(|done| done.is_ok());
        assert_eq!(made.count(), 1, "asked {via}: {both:?}");
        for lost in [both.0, both.1].into_iter().filter_map(Result::err) {
            assert_eq!(lost, MemberError::Outdated, "asked {via}");
        }
    }
}

/// While a peer is busy, one question that waits too short must not take away the answer of another.
#[test]
fn a_late_answer_does_not_cost_a_busy_peer_its_stream() {
    let world = World::new(95, 3);
    let leader = world.leader(&THREE);
    let busy = THREE
        .into_iter()
        .find(|id| *id != leader)
        .expect("a follower");
    let ask = |within| {
        let heard = Ask::HeardWithinMs(1_000);
        world.member(leader).raft.ask(MemberId(busy), heard, within)
    };
    let first = world.run(ask(Duration::from_secs(1)));
    first.expect("the stream is open");
    world.sim.pause(busy);
    let resumed = async {
        world.sim.sleep(Duration::from_secs(1)).await;
        world.sim.resume(busy);
    };
    let patient = ask(Duration::from_secs(5));
    let hasty = ask(Duration::from_millis(200));
    let ((), patient, hasty) = world.run(futures_util::future::join3(resumed, patient, hasty));
    assert!(hasty.is_err(), "nobody answers while paused");
    patient.expect("the answer came once the peer was back");
}

#[test]
fn a_removed_member_is_told() {
    let world = World::new(70, 3);
    let leader = world.leader(&THREE);
    let gone = THREE
        .into_iter()
        .find(|id| *id != leader)
        .expect("a follower");
    let soon = world.member(leader).env.now() + Duration::from_secs(20);
    let raft = world.member(leader).raft.clone();
    let remove = raft.remove(MemberId(gone), Premise::Any, soon);
    world.run(remove).expect("a removal");
    let mut removed = world.member(gone).raft.removed();
    let told = async {
        removed
            .wait_for(Option::is_some)
            .await
            .expect("alive")
            .clone()
    };
    let told = world.within(60, "word of it", told).expect("a reason");
    assert!(told.contains("has been removed"), "{told}");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = || {
        let mut world = World::new(40, 3);
        let leader = world.leader(&THREE);
        world.put(leader, "a", "1").expect("a put");
        world.kill(leader);
        let rest = world.alive();
        world.leader(&rest);
        world.put(rest[0], "b", "2").expect("a put");
        world.sim.trace()
    };
    assert_eq!(run(), run());
}
