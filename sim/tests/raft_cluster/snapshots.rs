//! Room `sim`, test of room `raft`: a member that the log cannot bring up any more receives a snapshot, over
//! streams that break, and goes on from it.

use crate::world::{World, node};
use std::time::Duration;
use tenon_proto::ids::{LogIndex, MemberId};
use tenon_raft::Premise;

const THREE: [u64; 3] = [1, 2, 3];

/// A world whose members keep hardly any log.
fn forgetful(mut world: World) -> World {
    world.leader(&world.alive());
    world.catchup_entries = 5;
    world.wal_bytes_max = 100 << 10;
    let ids: Vec<u64> = world.members.keys().copied().collect();
    for id in ids {
        world.kill(id);
        world.restart(id);
    }
    world
}

/// Writes about two megabytes and waits until the log forgot how it began.
fn fill(world: &World, via: u64) -> LogIndex {
    let value = "v".repeat(10_000);
    for n in 0..200 {
        world.put(via, &format!("key{n}"), &value).expect("a put");
    }
    let last = world.put(via, "end", "1").expect("a put");
    let purged = async {
        while world.member(via).wal.first_index().0 < 100 {
            world.sim.sleep(Duration::from_millis(50)).await;
        }
    };
    world.within(60, "purge of the log", purged);
    LogIndex(last.index)
}

#[test]
fn a_member_that_was_away_too_long_is_brought_up() {
    for seed in 200..203 {
        let mut world = forgetful(World::new(seed, 3));
        let leader = world.leader(&THREE);
        let away = THREE
            .into_iter()
            .find(|id| *id != leader)
            .expect("a follower");
        world.kill(away);
        let rest = world.alive();
        let leader = world.leader(&rest);
        let last = fill(&world, leader);
        world.restart(away);
        world.applied(&[away], last);
        assert!(
            world.member(away).wal.first_index().0 > 100,
            "it came as a snapshot"
        );
        let last = world.put(away, "more", "2").expect("a put");
        world.applied(&THREE, LogIndex(last.index));
        world.agree(&THREE);
        // What was installed is durable.
        world.kill(away);
        world.restart(away);
        world.applied(&THREE, LogIndex(last.index));
        world.agree(&THREE);
    }
}

#[test]
fn a_transfer_goes_on_after_its_stream_broke() {
    let mut world = World::new(210, 1);
    world.snapshot_rate = 300 << 10;
    let mut world = forgetful(world);
    world.leader(&[1]);
    let last = fill(&world, 1);
    let raft = world.member(1).raft.clone();
    let soon = world.member(1).env.now() + Duration::from_secs(20);
    world
        .run(raft.add_learner(MemberId(2), node(2), Premise::Any, soon))
        .expect("a learner");
    world.start(2, None);
    // At 300 KiB a second two megabytes take seven seconds and more.
    for _ in 0..3 {
        world.sim.run_for(Duration::from_secs(2)).expect("time");
        assert!(
            world.member(2).raft.status().applied < last,
            "it was not that fast"
        );
        world.sim.reset_streams(1, 2);
    }
    world.within(8, "rest of the transfer", async {
        while world.member(2).raft.status().applied < last {
            world.sim.sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(world.get(2, "end").as_deref(), Some("1"));
    world.agree(&[1, 2]);
}
