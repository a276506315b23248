//! Room `sim`, the world of whole members: what its levers do.

use std::time::Duration;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_server::service::watch::NeedsLeader;
use tenon_sim::world::{CallError, Joins, State, Why, World, WorldOptions};
use tenon_sim::{CrashMode, NodeId, Sim};

fn options(founders: u64) -> WorldOptions {
    WorldOptions {
        founders,
        ..WorldOptions::default()
    }
}

/// Runs `play` in a world of `founders` that all serve.
fn play<F: Future<Output = ()>>(seed: u64, founders: u64, play: impl FnOnce(World) -> F) -> u64 {
    let sim = Sim::new(seed);
    let world = World::begin(&sim, options(founders));
    let whole = async {
        for node in world.nodes() {
            world.until_serving(node).await;
        }
        play(world.clone()).await;
    };
    sim.run_until(whole)
        .unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    sim.trace().hash()
}

/// Repeats until it is answered.
async fn put(client: &tenon_sim::world::Client, key: &str, value: &str) -> i64 {
    loop {
        if let Ok(revision) = client.put(key, value).await {
            return revision;
        }
        client.env().sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_killed_leader_is_replaced_and_nothing_is_lost() {
    play(1, 3, async |world| {
        let client = world.client(1);
        put(&client, "a", "1").await;
        let leader = world.leader().unwrap();
        world.kill(leader, CrashMode::Torn);
        assert_eq!(world.state(leader), State::Down);
        put(&client, "b", "2").await;
        assert_ne!(world.leader(), Some(leader));
        world.start(leader);
        world.until_serving(leader).await;
        let mut pinned = world.client(2);
        pinned.pinned = Some(leader);
        assert_eq!(pinned.get("a").await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(pinned.get("b").await.unwrap().as_deref(), Some(&b"2"[..]));
        let exits = world.exits();
        assert_eq!(exits.len(), 1);
        assert_eq!((exits[0].node, &exits[0].why), (leader, &Why::Killed));
    });
}

#[test]
fn members_join_get_a_vote_and_leave() {
    play(2, 3, async |world| {
        let client = world.client(1);
        put(&client, "a", "1").await;
        world.join(&client, 4, Joins::Learner).await.unwrap();
        let learner = world.until_serving(4).await;
        assert!(learner.member.services().context.is_learner());
        while world.promote(&client, 4).await.is_err() {
            client.env().sleep(Duration::from_millis(100)).await;
        }
        put(&client, "b", "2").await;
        let first = world.leader().unwrap();
        while world.remove(&client, first).await.is_err() {
            client.env().sleep(Duration::from_millis(100)).await;
        }
        while world.state(first) != State::Down {
            client.env().sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(world.exits().last().unwrap().why, Why::Removed);
        put(&client, "c", "3").await;
        // The node comes back as somebody else.
        while world.join(&client, first, Joins::Voter).await.is_err() {
            client.env().sleep(Duration::from_millis(100)).await;
        }
        world.until_serving(first).await;
        let mut pinned = world.client(2);
        pinned.pinned = Some(first);
        loop {
            if let Ok(value) = pinned.get("c").await {
                assert_eq!(value.as_deref(), Some(&b"3"[..]));
                break;
            }
        }
    });
}

/// Asks for two additions at once, of two members; how many were made, and the word for the other.
async fn add_two(world: &World, requests: [pb::MemberAddRequest; 2]) -> (usize, Vec<CallError>) {
    let (mut client, leader) = (world.client(3), world.leader().unwrap());
    client.patience = Duration::from_secs(20);
    let follower = world.nodes().into_iter().find(|n| *n != leader).unwrap();
    let add = |at: NodeId, request: pb::MemberAddRequest| {
        client.call_at(at, move |services| async move {
            let caller = Caller::default();
            services.cluster.member_add(&caller, request).await
        })
    };
    let [first, second] = requests;
    let both = futures_util::future::join(add(leader, first), add(follower, second)).await;
    let (made, refused): (Vec<_>, Vec<_>) = [both.0, both.1].into_iter().partition(Result::is_ok);
    (
        made.len(),
        refused.into_iter().filter_map(Result::err).collect(),
    )
}

/// Once both passed: each was judged before the other was in the list.
#[test]
fn two_additions_asked_at_once_are_judged_one_after_the_other() {
    for seed in 30..34 {
        play(seed, 3, async |world| {
            let client = world.client(1);
            put(&client, "a", "1").await;
            let add = |urls: &[&str], is_learner| pb::MemberAddRequest {
                peer_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
                is_learner,
            };
            let one = add(&["http://n8:2380"], true);
            let other = add(&["http://n9:2380"], true);
            let (made, refused) = add_two(&world, [one, other]).await;
            assert_eq!(
                (made, refused),
                (1, vec![CallError::Refused(Error::TooManyLearners)])
            );
            let one = add(&["http://n5:2380", "http://n6:2380"], false);
            let other = add(&["http://n6:2380", "http://n7:2380"], false);
            let (made, refused) = add_two(&world, [one, other]).await;
            assert_eq!(
                (made, refused),
                (1, vec![CallError::Refused(Error::PeerURLExist)])
            );
        });
    }
}

/// Once it waited for ever: its log ended with its own removal, so it had no vote to ask for, and nobody called.
#[test]
fn a_member_that_heard_of_its_removal_and_then_nothing_learns_of_it() {
    for seed in 10..14 {
        play(seed, 3, async |world| {
            let client = world.client(1);
            put(&client, "a", "1").await;
            let leader = world.leader().unwrap();
            let rest: Vec<NodeId> = world.nodes().into_iter().filter(|n| *n != leader).collect();
            let (gone, stays) = (rest[0], rest[1]);
            // It hears the others and is not heard.
            for other in [leader, stays] {
                world.sim().link(gone, other, |link| link.cut = true);
            }
            let mut pinned = world.client(2);
            pinned.pinned = Some(leader);
            world.remove(&pinned, gone).await.unwrap();
            world.partition(&[&[gone], &[leader, stays]]);
            world.sim().sleep(Duration::from_secs(5)).await;
            world.heal();
            let told = async {
                while world.state(gone) != State::Down {
                    client.env().sleep(Duration::from_millis(50)).await;
                }
            };
            let told = client.env().timeout(Duration::from_secs(30), told).await;
            assert!(told.is_some(), "seed {seed}: {}", world.describe());
            assert_eq!(world.exits().last().unwrap().why, Why::Removed);
        });
    }
}

#[test]
fn a_client_beyond_a_cut_learns_nothing() {
    play(3, 3, async |world| {
        let mut client = world.client(1);
        client.patience = Duration::from_secs(1);
        client.pinned = Some(NodeId(2));
        client.put("a", "1").await.unwrap();
        world.sim().link(2, client.node(), |link| link.cut = true);
        assert_eq!(client.put("a", "2").await, Err(CallError::Unknown(None)));
        world.sim().link(2, client.node(), |link| link.cut = false);
        assert_eq!(client.get("a").await.unwrap().as_deref(), Some(&b"2"[..]));
    });
}

#[test]
fn a_partition_and_a_watch_beyond_it() {
    play(4, 3, async |world| {
        let client = world.client(1);
        let first = put(&client, "a", "1").await;
        let old = world.leader().unwrap();
        let rest: Vec<NodeId> = world.nodes().into_iter().filter(|n| *n != old).collect();
        let mut watch = world.watch(old, NeedsLeader::No).unwrap();
        let create = pb::WatchCreateRequest {
            key: "a".into(),
            start_revision: first,
            ..Default::default()
        };
        watch.create(create).await;
        world.partition(&[&[old], &rest]);
        let mut pinned = world.client(2);
        pinned.pinned = Some(rest[0]);
        let second = put(&pinned, "a", "2").await;
        world.heal();
        let mut told = Vec::new();
        while told.last() != Some(&second) {
            let answer = watch.next().await.unwrap();
            told.extend(
                answer
                    .events
                    .iter()
                    .map(|e| e.kv.as_ref().unwrap().mod_revision),
            );
        }
        assert_eq!(told, [first, second]);
    });
}

#[test]
fn an_orderly_stop_hands_leadership_over() {
    play(5, 3, async |world| {
        let client = world.client(1);
        put(&client, "a", "1").await;
        let old = world.leader().unwrap();
        let began = world.sim().now();
        world.stop(old).await;
        assert_eq!(world.exits().last().unwrap().why, Why::Stopped);
        put(&client, "b", "2").await;
        let took = world.sim().now() - began;
        assert!(
            took < Duration::from_secs(1),
            "an election was waited for: {took:?}"
        );
    });
}

#[test]
fn one_seed_one_history() {
    let run = || {
        play(6, 5, async |world| {
            let client = world.client(1);
            put(&client, "a", "1").await;
            world.kill(world.leader().unwrap(), CrashMode::Lost);
            put(&client, "b", "2").await;
        })
    };
    assert_eq!(run(), run());
}
