//! The client against clusters whose members die.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a client in the real world"
)]

mod support;

use std::time::Duration;
use support::{Server, bounded, programs};
use tenon_client::proto::code::Code;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::key_range::KeyRange;
use tenon_client::{Client, ConnectOptions, Session, Watch, WatchOptions, WatchUpdate, request};

/// Position of the leader among the members.
async fn leader(members: &[Server]) -> usize {
    loop {
        for (at, member) in members.iter().enumerate() {
            let client = member.client().with_timeout(Duration::from_secs(1));
            if let Ok(status) = client.status(pb::StatusRequest {}).await
                && status.leader != 0
                && status.header.is_some_and(|h| h.member_id == status.leader)
            {
                return at;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Puts a key, again under unknown outcomes: the same pair twice is one key.
async fn put(client: &Client, key: &str) {
    loop {
        match client.put(request::put(key.to_owned(), "v")).await {
            Ok(_) => return,
            Err(error) => {
                let passing = [Code::Unavailable, Code::DeadlineExceeded];
                assert!(passing.contains(&error.code()), "{error:?}");
            }
        }
    }
}

/// Keys as the watch tells them, until `last` came; a key told twice in a row was put twice.
async fn keys_until(watch: &mut Watch, last: &str) -> (Vec<String>, Vec<i64>) {
    let (mut keys, mut revisions) = (Vec::new(), Vec::new());
    while keys.last().is_none_or(|key| key != last) {
        let WatchUpdate::Events(events) = watch.next().await.expect("the watch lives") else {
            continue;
        };
        for kv in events.into_iter().filter_map(|e| e.kv) {
            revisions.push(kv.mod_revision);
            keys.push(String::from_utf8(kv.key.to_vec()).expect("text"));
        }
    }
    keys.dedup();
    (keys, revisions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_watches_leases_and_locks_outlive_the_leader() {
    for program in programs() {
        bounded(async {
            let mut members = Server::start_cluster(&program, 3).await;
            let urls: Vec<String> = members.iter().map(|m| m.url.clone()).collect();
            let client = Client::connect(urls, ConnectOptions::default()).expect("valid");
            let options = WatchOptions::of(KeyRange::prefix("k/"));
            let mut watch = client.watch(options).await.expect("taken");
            let session = Session::open(&client, 10).await.expect("a session");
            let guard = session.lock("l").await.expect("free");

            let mut written = Vec::new();
            for round in 0..2 {
                let down = leader(&members).await;
                members[down].kill();
                for n in 0..20 {
                    let key = format!("k/{round}/{n:02}");
                    put(&client, &key).await;
                    assert!(client.get(key.clone()).await.expect("a read").is_some());
                    written.push(key);
                }
                members[down].restart().await;
            }
            let (keys, revisions) = keys_until(&mut watch, written.last().expect("some")).await;
            assert_eq!(keys, written, "{}", program.name);
            assert!(revisions.is_sorted_by(|a, b| a < b), "each once, in order");

            assert!(!session.is_lost(), "renewed at the new leaders");
            let held = client.get(guard.key().clone()).await.expect("a read");
            let created = held.expect("still held").create_revision;
            assert_eq!(created, guard.revision().get());
            guard.unlock().await.expect("unlocked");
        })
        .await;
    }
}
