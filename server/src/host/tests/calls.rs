//! Room `server/host`, tests: calls with one answer while the endpoint moves, and what is asked again elsewhere.

use super::world::{InProcess, URL, WITHIN, World, get, pause, put, within};
use crate::host::door::{Backend, Door, SwitchError};
use crate::host::floor::SharedFloor;
use crate::host::remote::Remote;
use crate::service::method::Method;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenon_env::Lane;
use tenon_proto::code::Code;
use tenon_proto::error::Error;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_notice_nothing_of_ten_moves() {
    let world = World::new().await;
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..50)
        .map(|client| {
            let (door, done) = (world.door.clone(), done.clone());
            world.env.spawn("client", async move {
                for n in 0..40 {
                    let (key, value) = (format!("k{client}"), n.to_string());
                    let both = async {
                        put(&door, &key, &value).await.expect("is written");
                        get(&door, &key, n % 2 == 0).await.expect("is read")
                    };
                    let read = within(Duration::from_secs(5), both).await;
                    let read = read.expect("within a client's patience");
                    assert_eq!(read.kvs[0].value, value);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for turn in 0..10 {
        pause(20).await;
        let to = match turn % 2 {
            0 => world.there(),
            _ => world.here(),
        };
        world.switch(to).await;
    }
    for client in clients {
        client.ended().await;
    }
    assert_eq!(done.load(Ordering::Relaxed), 50 * 40);
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_sent_goes_elsewhere_and_what_may_be_done_is_not_done_twice() {
    let world = World::new().await;
    let dead = "http://dead:1";
    let remote = world.remote(&[dead, URL], world.door.shared_floor());
    let door = Door::new(&world.env, Backend::Remote(remote.clone()));
    put(&door, "k", "1").await.expect("goes elsewhere");
    // Sent, and nobody knows.
    *world.strings.loses_answers.lock() = true;
    let before = world.revision();
    let unknown = put(&door, "k", "2").await.expect_err("the answer is lost");
    assert_eq!(unknown, Error::TimeoutDueToConnectionLost);
    assert_eq!(unknown.code(), Code::Unavailable);
    assert_eq!(world.revision(), before + 1, "it was done once");
    // A read may be asked again.
    let strings = world.strings.loses_answers.clone();
    world.env.spawn("mends", async move {
        pause(100).await;
        *strings.lock() = false;
    });
    let read = get(&door, "k", false).await.expect("is read in the end");
    assert_eq!(read.kvs[0].value, "2");
    remote.shutdown();
    let error = put(&door, "k", "3").await.expect_err("it is over");
    assert_eq!(error, Error::Stopped);
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_behind_the_door_is_a_plain_answer_and_calls_left_behind_are_counted() {
    let world = World::new().await;
    let closed = Backend::Closed(Error::NotCapable);
    let door = Door::new(&world.env, closed.clone());
    assert_eq!(put(&door, "k", "1").await, Err(Error::NotCapable));
    assert_eq!(
        door.overall(false, &Default::default()).await,
        Err(Error::NotCapable.message())
    );
    let moved = door.switch(world.here(), Duration::from_secs(5)).await;
    moved.expect("the member is fit");
    put(&door, "k", "1").await.expect("is written");
    // Somebody holds on to the old stay: the endpoint moves all the same.
    let held = door.enter();
    let moved = door.switch(closed, Duration::from_millis(10)).await;
    assert_eq!(moved, Err(SwitchError::Lingering { calls: 1 }));
    drop(held);
    assert_eq!(put(&door, "k", "1").await, Err(Error::NotCapable));
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_a_member_learns_who_the_members_are_and_is_healthy() {
    let world = World::new().await;
    let given = "http://given:1";
    world.upstream.add(given, world.member.services_shared());
    let remote = world.remote(&[given], SharedFloor::default());
    let deadline = world.env.now() + Duration::from_secs(5);
    remote.ready(deadline).await.expect("a member answers");
    let mut endpoints = remote.watch_endpoints();
    let learnt = endpoints.wait_for(|urls| urls == &[URL]);
    let learnt = within(Duration::from_secs(5), learnt).await;
    assert!(learnt.expect("in time").is_ok());
    let door = Door::new(&world.env, Backend::Remote(remote.clone()));
    assert_eq!(door.overall(false, &Default::default()).await, Ok(()));
    for check in crate::service::health::Check::READY {
        assert_eq!(door.check(*check).await, Ok(()));
    }
    // What is about one member is answered by the leader.
    world.strings.asked.lock().clear();
    let request = tenon_proto::etcdserverpb::HashKvRequest { revision: 0 };
    let (method, caller) = (Method::MaintenanceHashKv, Default::default());
    let deadline = world.env.now() + Duration::from_secs(5);
    let hash = remote.call(method, &caller, &request, deadline).await;
    let hash: tenon_proto::etcdserverpb::HashKvResponse = hash.expect("is hashed");
    let leader = world.member.services().context.member().get();
    assert_eq!(hash.header.expect("set").member_id, leader);
    assert!(world.strings.asked.lock().contains(&method));
    world.member.shutdown().await;
}

/// On a thread of its own: it would block for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_mode_ends_in_the_middle_of_a_look_at_the_members() {
    let story = async {
        let env = tenon_env::real::env_without_peers();
        let nobody = vec!["http://nobody:1".to_owned()];
        let upstream = Arc::new(InProcess::default());
        let remote = Remote::new(&env, upstream, nobody, SharedFloor::default());
        pause(20).await;
        remote.shutdown();
        drop(remote);
        pause(20).await;
    };
    let env = tenon_env::real::env_without_peers();
    let ended = env.blocking(Lane::Read, move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(story);
    });
    assert!(within(WITHIN, ended).await.is_some(), "it hangs");
}
