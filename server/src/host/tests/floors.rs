//! Room `server/host`, tests: answers of a host never go back, whoever gives them.

use super::world::{URL, World, get, pause, put};
use crate::host::door::{Backend, Door, SwitchError};
use crate::host::floor::{Floor, SharedFloor};
use crate::service::method::Method;
use std::time::Duration;
use tenon_proto::etcdserverpb as pb;

/// What a member says of itself that is where this one was before it caught up.
fn stale(world: &World, revision: i64) -> pb::StatusResponse {
    let header = world.member.services().context.header(revision);
    pb::StatusResponse {
        header: Some(header),
        leader: header.member_id,
        ..pb::StatusResponse::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_behind_is_left_out() {
    let world = World::new().await;
    let behind = "http://behind:1";
    let strings = world.upstream.add(behind, world.member.services_shared());
    put(&world.door, "k", "1").await.expect("is written");
    *strings.status.lock() = Some(stale(&world, 1));
    let remote = world.remote(&[behind, URL], world.door.shared_floor());
    world.switch(Backend::Remote(remote)).await;
    for serializable in [true, false] {
        let read = get(&world.door, "k", serializable).await.expect("is read");
        assert_eq!(read.kvs[0].value, "1");
    }
    let asked = strings.asked.lock().clone();
    assert!(!asked.is_empty(), "it was looked at");
    assert!(
        asked
            .iter()
            .all(|method| *method == Method::MaintenanceStatus),
        "and asked for nothing: {asked:?}"
    );
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_began_anew_learns_what_it_may_have_answered_before_it_answers() {
    let world = World::new().await;
    put(&world.door, "k", "1").await.expect("is written");
    for (floor, expected) in [
        (SharedFloor::default(), true),
        (SharedFloor::of_earlier_run(), false),
    ] {
        let behind = "http://behind:1";
        let strings = world.upstream.add(behind, world.member.services_shared());
        *strings.status.lock() = Some(stale(&world, 1));
        let remote = world.remote(&[behind, URL], floor.clone());
        let door = Door::with_floor(&world.env, Backend::Remote(remote), floor);
        get(&door, "k", true).await.expect("is read");
        let asked = strings.asked.lock().clone();
        let read = asked.contains(&Method::KvRange);
        assert_eq!(read, expected, "the member behind was asked: {asked:?}");
        assert!(door.floor().revision >= 2, "{:?}", door.floor());
    }
    world.member.shutdown().await;
}

/// Seed 455 of hosts: behind one address there are several members, and the list and the status come from different
/// ones every time. The member that gave the list is asked directly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_learns_how_new_its_answers_must_be_behind_an_address_that_mixes_members() {
    let world = World::new().await;
    put(&world.door, "k", "1").await.expect("is written");
    let mixing = "http://mixing:1";
    let strings = world.upstream.add(mixing, world.member.services_shared());
    *strings.status_of.lock() = Some(7);
    let floor = SharedFloor::of_earlier_run();
    let remote = world.remote(&[mixing], floor.clone());
    let door = Door::with_floor(&world.env, Backend::Remote(remote), floor);
    let read = get(&door, "k", true).await.expect("is read");
    assert_eq!(read.kvs[0].value, "1");
    let directly = world.strings.asked.lock().clone();
    assert!(
        directly.contains(&Method::MaintenanceStatus),
        "the member itself was asked: {directly:?}"
    );

    world.strings.reachable.send_replace(false);
    let remote = world.remote(&[mixing], SharedFloor::of_earlier_run());
    let refused = remote.ready(world.env.now() + Duration::from_secs(1)).await;
    let why = refused.expect_err("nobody can tell").message();
    assert!(why.contains("now one member, now another"), "{why}");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_behind_is_waited_for() {
    let world = World::new().await;
    put(&world.door, "k", "1").await.expect("is written");
    let answered = world.door.floor();
    assert_eq!(answered.revision, world.revision());
    let floor = SharedFloor::new(Floor {
        revision: answered.revision + 1,
        ..answered
    });
    let door = Door::with_floor(
        &world.env,
        Backend::Remote(world.remote(&[URL], floor.clone())),
        floor,
    );
    let other = world.door.clone();
    world.env.spawn("later", async move {
        pause(200).await;
        put(&other, "k", "2").await.expect("is written");
    });
    let read = get(&door, "k", true).await.expect("is read");
    assert_eq!(read.kvs[0].value, "2", "the older answer was not given");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_endpoint_does_not_move_to_a_member_that_is_behind_or_of_another_cluster() {
    let world = World::new().await;
    let answered = world.door.floor();
    let cases = [
        (
            Floor {
                revision: answered.revision + 1,
                ..answered
            },
            "revision",
        ),
        (
            Floor {
                raft_term: answered.raft_term + 1,
                ..answered
            },
            "term",
        ),
        (
            Floor {
                cluster_id: answered.cluster_id + 1,
                ..answered
            },
            "cluster",
        ),
    ];
    for (floor, word) in cases {
        let closed = Backend::Closed(tenon_proto::error::Error::NotCapable);
        let door = Door::with_floor(&world.env, closed, SharedFloor::new(floor));
        let moved = door.switch(world.here(), Duration::from_millis(20)).await;
        let Err(SwitchError::NotFit(why)) = moved else {
            panic!("moved: {moved:?}");
        };
        assert!(why.contains(word), "{why}");
        assert!(matches!(door.backend(), Backend::Closed(_)));
    }
    // Nor is such a member asked.
    let floor = SharedFloor::new(Floor {
        cluster_id: answered.cluster_id + 1,
        ..Floor::default()
    });
    let remote = world.remote(&[URL], floor);
    let deadline = world.env.now() + Duration::from_millis(300);
    let error = remote.ready(deadline).await.expect_err("another cluster");
    assert!(error.message().contains("cluster"), "{error}");
    world.member.shutdown().await;
}
