//! The client against running servers.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a client in the real world"
)]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;
use support::{Proxy, Server, bounded, programs};
use tenon_client::proto::code::Code;
use tenon_client::proto::error::Error;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::ids::Revision;
use tenon_client::proto::key_range::KeyRange;
use tenon_client::{
    Client, ConnectOptions, Credentials, Watch, WatchError, WatchOptions, WatchUpdate, request,
};

async fn put(client: &Client, key: &str, value: &str) -> i64 {
    let answer = client.put(request::put(key.to_owned(), value.to_owned()));
    let answer = answer.await.expect("a put");
    answer.header.expect("a header").revision
}

/// Revisions of the next `count` events.
async fn revisions(watch: &mut Watch, count: usize) -> Vec<i64> {
    let mut got = Vec::new();
    while got.len() < count {
        if let WatchUpdate::Events(events) = watch.next().await.expect("the watch lives") {
            got.extend(
                events
                    .iter()
                    .map(|e| e.kv.as_ref().expect("a pair").mod_revision),
            );
        }
    }
    got
}

#[tokio::test]
async fn pairs_are_written_read_compared_and_deleted() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let first = put(&client, "a/1", "one").await;
            put(&client, "a/2", "two").await;
            let kv = client.get("a/1").await.expect("a read").expect("a pair");
            assert_eq!((kv.value.as_ref(), kv.mod_revision), (&b"one"[..], first));
            assert_eq!(client.get("b").await, Ok(None));

            let all = client.range(request::range(&KeyRange::prefix("a/"))).await;
            assert_eq!(all.expect("a read").count, 2);
            let txn = |value: &'static str| pb::TxnRequest {
                compare: vec![request::created_at("lock", 0)],
                success: vec![request::op(request::put("lock", value))],
                failure: vec![request::op(request::range(&KeyRange::single("lock")))],
            };
            assert!(client.txn(txn("x")).await.expect("a txn").succeeded);
            assert!(!client.txn(txn("y")).await.expect("a txn").succeeded);

            let gone = client.delete_range(request::delete(&KeyRange::prefix("a/")));
            assert_eq!(gone.await.expect("a delete").deleted, 2);
            let old = pb::RangeRequest {
                revision: first,
                ..request::range(&KeyRange::single("a/1"))
            };
            assert_eq!(client.range(old.clone()).await.expect("history").count, 1);
            let compaction = pb::CompactionRequest {
                revision: first + 3,
                physical: true,
            };
            client.compact(compaction).await.expect("a compaction");
            assert_eq!(client.range(old).await, Err(Error::Compacted));
            let empty = client.put(request::put("", "v")).await;
            assert_eq!(
                empty.expect_err("no key"),
                Error::EmptyKey,
                "{}",
                program.name
            );
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_a_link_that_breaks_tells_every_change_once() {
    for program in programs() {
        bounded(async {
            let mut server = Server::start(&program).await;
            let client = server.client();
            let proxy = Proxy::to(&server.url).await;
            let far = Client::connect([&proxy.url], ConnectOptions::default()).expect("valid");
            let options = WatchOptions::of(KeyRange::prefix("w/"));
            let mut watch = far.watch(options.clone()).await.expect("taken");
            let mut written = Vec::new();
            for round in 0..10 {
                // Before the cut, while cut off, and after it.
                written.push(put(&client, &format!("w/{round}"), "before").await);
                put(&client, "elsewhere", "x").await;
                proxy.close();
                written.push(put(&client, &format!("w/{round}"), "cut").await);
                proxy.open();
                written.push(put(&client, &format!("w/{round}"), "after").await);
                if round % 3 == 0 {
                    let told = revisions(&mut watch, written.len()).await;
                    assert_eq!(told, written, "round {round} at {}", program.name);
                    written.clear();
                }
            }
            assert_eq!(revisions(&mut watch, written.len()).await, written);

            // The server itself dies without warning and comes back.
            server.restart().await;
            let last = put(&client, "w/z", "after the restart").await;
            assert_eq!(revisions(&mut watch, 1).await, [last], "{}", program.name);

            // A watch from a revision on starts there.
            let mut from = far
                .watch(options.from(Revision(last)))
                .await
                .expect("taken");
            assert_eq!(revisions(&mut from, 1).await, [last]);
        })
        .await;
    }
}

#[tokio::test]
async fn compaction_of_what_was_not_told_yet_ends_the_watch() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let proxy = Proxy::to(&server.url).await;
            let far = Client::connect([&proxy.url], ConnectOptions::default()).expect("valid");
            let mut watch = far
                .watch(WatchOptions::of(KeyRange::single("k")))
                .await
                .expect("taken");
            proxy.close();
            put(&client, "k", "1").await;
            let revision = put(&client, "k", "2").await;
            let compaction = pb::CompactionRequest {
                revision,
                physical: false,
            };
            client.compact(compaction).await.expect("a compaction");
            proxy.open();
            let end = WatchError::Compacted {
                compact_revision: Revision(revision),
            };
            assert_eq!(watch.next().await, Err(end.clone()), "{}", program.name);
            assert_eq!(watch.next().await, Err(end), "and it stays ended");
            let again = WatchOptions::of(KeyRange::single("k")).from(Revision(revision));
            let mut again = client.watch(again).await.expect("taken");
            assert_eq!(revisions(&mut again, 1).await, [revision]);
        })
        .await;
    }
}

#[tokio::test]
async fn progress_is_told_when_asked_for_and_moves_the_place() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let keys = KeyRange::single("nobody writes this");
            let mut watch = client.watch(WatchOptions::of(keys)).await.expect("taken");
            let revision = put(&client, "k", "1").await;
            // A server that is not caught up may stay silent, so ask until it tells.
            let told = loop {
                watch.request_progress();
                let next = tokio::time::timeout(Duration::from_millis(200), watch.next());
                if let Ok(update) = next.await {
                    break update.expect("the watch lives");
                }
            };
            assert_eq!(
                told,
                WatchUpdate::Progress(Revision(revision)),
                "{}",
                program.name
            );
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_lease_lives_and_a_lost_one_is_told() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            let lease = client.grant(2).await.expect("a lease");
            let kept = client.keep_alive(lease).await.expect("it lives");
            let pair = pb::PutRequest {
                lease: lease.get(),
                ..request::put("k", "v")
            };
            client.put(pair).await.expect("a put");
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert!(
                client.get("k").await.expect("a read").is_some(),
                "kept beyond its TTL"
            );
            assert!(!kept.is_lost());

            let revoke = pb::LeaseRevokeRequest { id: lease.get() };
            client.lease_revoke(revoke).await.expect("a revoke");
            assert_eq!(kept.lost().await, Error::LeaseNotFound, "{}", program.name);
            assert_eq!(client.get("k").await, Ok(None));
            assert_eq!(
                client.keep_alive_once(lease).await.expect_err("gone"),
                Error::LeaseNotFound
            );
        })
        .await;
    }
}

#[tokio::test]
async fn a_lease_nobody_can_renew_is_lost_by_the_clock() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let proxy = Proxy::to(&server.url).await;
            let far = Client::connect([&proxy.url], ConnectOptions::default()).expect("valid");
            let lease = far.grant(2).await.expect("a lease");
            let kept = far.keep_alive(lease).await.expect("it lives");
            proxy.close();
            let why = kept.lost().await;
            assert_eq!(why.code(), Code::Unavailable, "{why} at {}", program.name);
        })
        .await;
    }
}

#[tokio::test]
async fn members_and_maintenance_answer() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let proxy = Proxy::to(&server.url).await;
            let client = Client::connect([&proxy.url], ConnectOptions::default()).expect("valid");
            client.sync_endpoints().await.expect("a list");
            assert_eq!(client.endpoints().join(","), server.url, "{}", program.name);

            let list = client.member_list(false).await.expect("a list");
            let status = client.status(pb::StatusRequest {}).await.expect("a status");
            assert_eq!(list.members.len(), 1);
            assert_eq!(status.leader, list.members[0].id);
            assert_eq!(client.alarms().await, Ok(vec![]));
            assert_eq!(client.disarm().await, Ok(vec![]));
            let hash = client.hash_kv(pb::HashKvRequest { revision: 0 }).await;
            assert_eq!(hash.expect("a hash").compact_revision, -1);
            let only = client.only(&server.url).expect("valid");
            only.status(pb::StatusRequest {}).await.expect("a status");
            assert_eq!(only.endpoints().len(), 1);
            let unknown = pb::MemberRemoveRequest { id: 1 };
            let error = client.member_remove(unknown).await.expect_err("unknown");
            assert_eq!(error, Error::MemberNotFound, "{}", program.name);
        })
        .await;
    }
}

#[tokio::test]
async fn large_answers_come_in_parts() {
    for program in programs() {
        bounded(async {
            let server = Server::start(&program).await;
            let client = server.client();
            for n in 0..50 {
                put(&client, &format!("k/{n:02}"), "v").await;
            }
            let all = request::range(&KeyRange::prefix("k/"));
            let mut parts = client.range_stream(all).await.expect("a stream");
            let mut keys = BTreeSet::new();
            while let Some(part) = parts.next().await.expect("a part") {
                let kvs = part.range_response.unwrap_or_default().kvs;
                keys.extend(kvs.into_iter().map(|kv| kv.key));
            }
            assert_eq!(keys.len(), 50);
            // Tenon serves snapshots once its tools are done.
            if !program.is_etcd() {
                return;
            }
            let mut parts = client.snapshot().await.expect("a stream");
            let mut last = 0;
            while let Some(part) = parts.next().await.expect("a part") {
                last = part.blob.len();
            }
            assert_eq!(last, 32, "the last part is a SHA-256");
        })
        .await;
    }
}

#[tokio::test]
async fn a_password_becomes_a_token_and_a_stale_one_is_renewed() {
    // Served by etcd; by Tenon once the security issue is done.
    for program in programs().into_iter().filter(|p| p.is_etcd()) {
        bounded(async {
            let server = Server::start(&program).await;
            let plain = server.client();
            let root = |password: &str| ConnectOptions {
                credentials: Some(Credentials {
                    user: "root".into(),
                    password: password.into(),
                }),
                ..ConnectOptions::default()
            };
            let connect = |password| Client::connect([&server.url], root(password)).expect("valid");
            // Credentials do no harm while authentication is off.
            put(&connect("pw"), "early", "x").await;
            let user = pb::AuthUserAddRequest {
                name: "root".into(),
                password: "pw".into(),
                ..Default::default()
            };
            plain.user_add(user).await.expect("a user");
            let role = pb::AuthRoleAddRequest {
                name: "root".into(),
            };
            plain.role_add(role).await.expect("a role");
            let grant = pb::AuthUserGrantRoleRequest {
                user: "root".into(),
                role: "root".into(),
            };
            plain.user_grant_role(grant).await.expect("a grant");
            let early = connect("pw");
            put(&early, "k", "no token needed yet").await;
            plain.auth_enable().await.expect("enabled");

            let error = plain.get("k").await.expect_err("no token");
            assert_eq!(error, Error::UserEmpty);
            let error = connect("wrong").get("k").await.expect_err("wrong password");
            assert_eq!(error, Error::AuthFailed);
            put(&early, "k", "asks for a token once one is needed").await;
            let watch = early.watch(WatchOptions::of(KeyRange::single("k")));
            let mut watch = watch.await.expect("taken with a token");

            // A new password makes every token of the user stale.
            let change = pb::AuthUserChangePasswordRequest {
                name: "root".into(),
                password: "pw".into(),
                ..Default::default()
            };
            early.user_change_password(change).await.expect("changed");
            let revision = put(&early, "k", "with the second token").await;
            assert_eq!(revisions(&mut watch, 1).await, [revision]);
            let fresh = early.watch(WatchOptions::of(KeyRange::all()));
            fresh.await.expect("taken with the second token");
            early.auth_disable().await.expect("disabled");
        })
        .await;
    }
}
