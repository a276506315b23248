//! Room `sim`, cluster: what its levers and clients do.

use super::*;
use parking_lot::Mutex;
use std::sync::Arc;
use tenon_proto::error::Error;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

#[test]
fn what_is_put_is_there() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    cluster
        .run(async {
            let first = client.put("a", "1").await.unwrap();
            let entry = client.get("a").await.unwrap().unwrap();
            assert_eq!((entry.value.as_str(), entry.modified), ("1", first));
            assert!(
                client
                    .put_if_created(("b", 0), "b", "new", 0)
                    .await
                    .unwrap()
            );
            assert!(
                !client
                    .put_if_created(("b", 0), "b", "newer", 0)
                    .await
                    .unwrap()
            );
            client.put("a2", "2").await.unwrap();
            let (entries, at) = client.get_prefix("a").await.unwrap();
            assert_eq!((entries.len(), at), (2, first + 2));
            assert!(client.delete("a").await.unwrap());
            assert!(!client.delete("a").await.unwrap());
            assert_eq!(client.get("a").await.unwrap(), None);
        })
        .unwrap();
}

#[test]
fn a_broken_promise_ends_the_run_and_comes_again() {
    let broken = || {
        let cluster = Cluster::new(7);
        let count = Arc::new(Mutex::new(0));
        let seen = count.clone();
        cluster.invariant("few", move || match *seen.lock() {
            n if n > 3 => Err(format!("{n} are too many")),
            _ => Ok(()),
        });
        let client = cluster.client();
        let (here, counted) = (client.clone(), count.clone());
        client.spawn("counter", async move {
            loop {
                here.sleep(10 * MS).await;
                here.put("n", "x").await.unwrap();
                *counted.lock() += 1;
            }
        });
        let violation = cluster.advance(S).unwrap_err();
        assert_eq!(*count.lock(), 4, "not one step longer");
        (violation, cluster.html())
    };
    let (violation, html) = broken();
    assert_eq!(violation.what, "few: 4 are too many");
    assert!(violation.to_string().starts_with("seed 7 at "));
    assert_eq!((violation, html), broken());
}

#[test]
fn a_watch_ends_with_its_member_and_goes_on_elsewhere() {
    let cluster = Cluster::new(2);
    cluster
        .run(async {
            let writer = cluster.client();
            let client = cluster.client();
            let mut watch = client.watch_prefix("w", 0).await.unwrap();
            let first = writer.put("w1", "1").await.unwrap();
            let change = watch.next().await.unwrap();
            assert_eq!(change.revision(), first);
            let served_by = cluster.members();
            for member in served_by {
                cluster.crash(member, CrashMode::Kept);
            }
            assert_eq!(watch.next().await, Err(WatchEnd::Broken));
            assert!(
                client.watch_prefix("w", 0).await.is_none(),
                "nobody is there"
            );
            cluster
                .members()
                .into_iter()
                .for_each(|m| cluster.restart(m));
            let second = writer.put("w2", "2").await.unwrap();
            writer.delete("w1").await.unwrap();
            let mut watch = client.watch_prefix("w", first + 1).await.unwrap();
            let change = watch.next().await.unwrap();
            assert!(matches!(&change, Change::Put(e) if e.modified == second && e.value == "2"));
            assert_eq!(
                watch.next().await,
                Ok(Change::Deleted("w1".to_owned(), second + 1))
            );
        })
        .unwrap();
}

#[test]
fn a_lock_passes_on_and_its_fence_grows() {
    let cluster = Cluster::new(3);
    cluster
        .run(async {
            let (one, two) = (cluster.client(), cluster.client());
            let lease = one.lease_grant(5).await.unwrap();
            let held = one.lock("job", lease).await.unwrap();
            let holder = one.holder("job").await.unwrap().unwrap();
            assert_eq!((holder.key, holder.created), (held.key.clone(), held.fence));
            let other = two.lease_grant(60).await.unwrap();
            let waits = two.lock("job", other);
            let mut waits = std::pin::pin!(waits);
            let at_once = futures_util::future::select(waits.as_mut(), Box::pin(two.sleep(2 * S)));
            assert!(matches!(
                at_once.await,
                futures_util::future::Either::Right(_)
            ));
            assert_eq!(one.lease_keep_alive(lease).await, Ok(5));
            cluster.expire_lease(lease).await.unwrap();
            let next = waits.await.unwrap();
            assert!(next.fence > held.fence);
            let guard = (held.key.as_str(), held.fence);
            assert!(!one.put_if_created(guard, "work", "late", 0).await.unwrap());
            assert_eq!(one.lease_keep_alive(lease).await, Ok(0));
            let gone = CallError::Refused(Error::LeaseNotFound);
            assert_eq!(one.lock("job", lease).await, Err(gone));
            two.unlock(&next).await.unwrap();
            assert_eq!(two.holder("job").await.unwrap(), None);
        })
        .unwrap();
}

#[test]
fn a_lone_leader_answers_nothing_and_a_pause_stops_a_client() {
    let cluster = Cluster::new(4);
    cluster
        .run(async {
            let leader = cluster.leader().unwrap();
            cluster.isolate(leader);
            let (cut_off, free) = (cluster.client_of(leader), cluster.client());
            let lost = cut_off.put("a", "1").await;
            assert!(matches!(lost, Err(CallError::Unknown(_))), "{lost:?}");
            while free.put("b", "2").await.is_err() {}
            assert_ne!(cluster.leader(), Some(leader));
            cluster.heal();
            assert_eq!(cut_off.get("b").await.unwrap().unwrap().value, "2");

            let ticks = Arc::new(Mutex::new(0));
            let (here, counted) = (free.clone(), ticks.clone());
            free.spawn("ticker", async move {
                loop {
                    here.sleep(10 * MS).await;
                    *counted.lock() += 1;
                }
            });
            cluster.pause(free.node());
            cluster.sleep(S).await;
            assert_eq!(*ticks.lock(), 0);
            cluster.resume(free.node());
            cluster.sleep(S).await;
            assert!(*ticks.lock() > 50);
            cluster.crash(free.node(), CrashMode::Kept);
            let then = *ticks.lock();
            cluster.sleep(S).await;
            assert_eq!(*ticks.lock(), then);
        })
        .unwrap();
}

#[test]
fn a_storm_leaves_everything_whole_and_repeats() {
    let weather = || {
        let cluster = Cluster::new(5);
        let client = cluster.client();
        let here = client.clone();
        client.spawn("writer", async move {
            for n in 0.. {
                let _ = here.put(&format!("k{}", n % 5), &n.to_string()).await;
                here.sleep(50 * MS).await;
            }
        });
        let storm = Storm {
            lasts: 12 * S,
            clients: vec![client.node()],
            ..Storm::default()
        };
        cluster.run(cluster.storm(storm)).unwrap();
        let last = cluster.run(cluster.client().put("k", "last")).unwrap();
        assert!(last.is_ok(), "{last:?}");
        (
            cluster.control().trace().hash(),
            cluster.chronicle().counts(),
            last,
        )
    };
    let first = weather();
    let kinds = first.1.keys().filter(|k| **k != "election").count();
    assert!(kinds >= 2, "{:?}", first.1);
    assert_eq!(first, weather());
}
