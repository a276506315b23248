//! Locks and elections against running servers.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a client in the real world"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Server, bounded, programs};
use tenon_client::proto::error::Error;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::key_range::KeyRange;
use tenon_client::{Client, Session, request};

/// Waits until `count` places stand in the queue of `name`.
async fn queued(client: &Client, name: &str, count: i64) {
    let places = request::range(&KeyRange::prefix(format!("{name}/")));
    while client.range(places.clone()).await.expect("a read").count != count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_has_one_holder_at_a_time_in_order_of_arrival() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let session = Session::open(&client, 20).await.expect("a session");
            let first = session.lock("l").await.expect("free");
            let key = format!("l/{}", session.lease().hex());
            assert_eq!(
                first.key().as_ref(),
                key.as_bytes(),
                "etcd's scheme of keys"
            );

            let holders = Arc::new(AtomicUsize::new(1));
            let mut waiting = Vec::new();
            for n in 0..5_i64 {
                let (own, holders) = (server.client(), holders.clone());
                waiting.push(tokio::spawn(async move {
                    let session = Session::open(&own, 20).await.expect("a session");
                    let guard = session.lock("l").await.expect("its turn");
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "one holder");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    let revision = guard.revision();
                    guard.unlock().await.expect("unlocked");
                    session.close().await.expect("closed");
                    revision
                }));
                queued(&client, "l", n + 2).await;
            }
            holders.fetch_sub(1, Ordering::SeqCst);
            let mut last = first.revision();
            first.unlock().await.expect("unlocked");
            // They queued in this order; a larger revision for each proves they were served in it.
            for waiter in waiting {
                let revision = waiter.await.expect("no panic");
                assert!(
                    revision > last,
                    "{revision} after {last} at {}",
                    program.name
                );
                last = revision;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_given_up_by_dropping_and_by_losing_the_session() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let holder = Session::open(&client, 20).await.expect("a session");
            let guard = holder.lock("l").await.expect("free");
            let again = holder.lock("l").await.expect("the same place");
            assert_eq!(again.revision(), guard.revision());
            drop(again);

            // One waiter loses its patience, another its session.
            let impatient = Session::open(&client, 20).await.expect("a session");
            {
                let lock = impatient.lock("l");
                tokio::select! {
                    _ = lock => panic!("the lock is held"),
                    () = queued(&client, "l", 2) => {}
                }
            }
            queued(&client, "l", 1).await;
            let doomed = Session::open(&client, 2).await.expect("a session");
            let revoke = pb::LeaseRevokeRequest {
                id: doomed.lease().get(),
            };
            let (result, ()) = tokio::join!(doomed.lock("l"), async {
                queued(&client, "l", 2).await;
                client.lease_revoke(revoke).await.expect("revoked");
            });
            assert_eq!(
                result.expect_err("lost"),
                Error::SessionExpired,
                "{}",
                program.name
            );

            // The holder's session ends, and with it the lock.
            holder.close().await.expect("closed");
            let next = impatient.lock("l").await.expect("free");
            assert!(next.revision() > guard.revision());
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_has_one_leader_whose_values_are_observed() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let none = client.leader("e").await.expect_err("nobody yet");
            assert_eq!(none, Error::ElectionNoLeader);
            let mut observer = client.observe("e");
            let a = Session::open(&client, 20).await.expect("a session");
            let b = Session::open(&client, 20).await.expect("a session");

            let (first, seen) = tokio::join!(a.campaign("e", "a1"), observer.next());
            let first = first.expect("elected");
            assert_eq!(seen.expect("a leader").value.as_ref(), b"a1");
            first.proclaim("a2").await.expect("proclaimed");
            assert_eq!(
                observer.next().await.expect("a value").value.as_ref(),
                b"a2"
            );
            let same = a.campaign("e", "a3").await.expect("leads already");
            assert_eq!(same.revision(), first.revision());
            assert_eq!(client.leader("e").await.expect("a").value.as_ref(), b"a3");
            assert_eq!(
                observer.next().await.expect("a value").value.as_ref(),
                b"a3"
            );

            let (second, resigned) = tokio::join!(b.campaign("e", "b1"), async {
                queued(&client, "e", 2).await;
                first.resign().await
            });
            resigned.expect("resigned");
            let second = second.expect("elected");
            assert!(second.revision() > same.revision(), "{}", program.name);
            assert_eq!(
                observer.next().await.expect("a leader").value.as_ref(),
                b"b1"
            );
            let late = same.proclaim("a4").await.expect_err("no longer");
            assert_eq!(late, Error::ElectionNotLeader);
        })
        .await;
    }
}
