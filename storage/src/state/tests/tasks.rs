//! Room storage, state: the drain and the compaction as tasks, in a world moved by hand.

use super::{Life, compaction, delete, id, put, small};
use crate::engine::Table;
use crate::state::StoreOptions;
use crate::wal::tests::disk::FakeDisk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenon_proto::command::{Done, LeaseExpire};
use tenon_proto::command::{MemberBirth, MemberPublish};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{
    CompactionResponse, DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse,
    MemberUpdateRequest, PutRequest, PutResponse,
};
use tenon_proto::ids::{LogIndex, MemberId, Revision};
use tenon_proto::log::{Membership, Node, NodeSet};

impl Life {
    /// Lets the tasks run, and time pass, until nothing is left to do.
    fn settle(&self) {
        for _ in 0..40 {
            self.hands.run();
            self.hands.advance();
        }
        self.hands.run();
    }
}

#[test]
fn the_drain_follows_the_flushed_log_and_never_passes_it() {
    let life = Life::new();
    life.store.start(&life.env);
    for i in 0..5 {
        life.put("k", &i.to_string());
    }
    life.settle();
    assert_eq!(
        life.store.engine_durable(),
        LogIndex(0),
        "nothing is flushed yet"
    );
    assert!(life.store.snapshot().is_none());
    for flushed in [2, 2, 4, 9] {
        life.store.set_wal_flushed(LogIndex(flushed));
        life.settle();
        assert_eq!(life.store.engine_durable(), LogIndex(flushed.min(5)));
        let snapshot = life.store.snapshot().expect("something is durable");
        assert_eq!(snapshot.log_id(), id(1, flushed.min(5)));
        assert_eq!(snapshot.revision(), Revision(flushed.min(5) as i64 + 1));
    }
    life.store.apply_blank(id(2, 6));
    life.settle();
    assert_eq!(
        life.store.engine_durable(),
        LogIndex(6),
        "blank entries count"
    );
}

#[test]
fn shutdown_drains_what_is_flushed() {
    let life = Life::new();
    life.store.start(&life.env);
    life.put("k", "v");
    life.put("k", "w");
    life.store.set_wal_flushed(LogIndex(1));
    let (store, ended) = (life.store.clone(), Arc::new(AtomicBool::new(false)));
    let told = ended.clone();
    life.env.spawn("shutdown", async move {
        store.shutdown().await;
        told.store(true, Ordering::SeqCst);
    });
    life.hands.run();
    assert!(ended.load(Ordering::SeqCst), "it needs no time to pass");
    assert_eq!(life.store.engine_durable(), LogIndex(1));
    // The folder is free although this store is still held.
    let held = life.store.clone();
    let again = life.reopened();
    assert_eq!(again.store.revision(), Revision(2));
    again.put("k", "x");
    again.drain();
    drop(held);
    assert_eq!(again.reopened().store.revision(), Revision(3));
}

#[test]
fn who_applies_waits_for_room() {
    let options = StoreOptions {
        undrained_bytes_max: 1_000,
        ..small()
    };
    let life = Life::on(FakeDisk::default(), options);
    life.store.start(&life.env);
    life.put("k", &"v".repeat(2_000));
    let (store, passed) = (life.store.clone(), Arc::new(AtomicBool::new(false)));
    let told = passed.clone();
    life.env.spawn("applier", async move {
        store.room().await;
        told.store(true, Ordering::SeqCst);
    });
    life.settle();
    assert!(
        !passed.load(Ordering::SeqCst),
        "the log is not flushed, so nothing drains"
    );
    life.store.set_wal_flushed(LogIndex(1));
    life.settle();
    assert!(passed.load(Ordering::SeqCst));
}

#[test]
fn compaction_frees_the_engine_and_resumes_after_a_restart() {
    let mut life = Life::new();
    let deleted: Vec<_> = (0..30).map(|i| format!("gone{i}")).collect();
    for round in 0..10 {
        for key in ["a", "b", "c"] {
            life.put(key, &format!("{round}{}", "v".repeat(100)));
        }
    }
    for key in &deleted {
        life.put(key, "v");
        let _: DeleteRangeResponse = life.must(delete(key, ""));
    }
    life.put("a", "last");
    life.drain();
    let full = life.store.size();
    let _: CompactionResponse = life.must(compaction(life.store.revision().get()));
    life.drain();
    // The power goes before any sweep.
    life = life.reopened();
    assert_eq!(
        life.store.size().in_use,
        full.in_use,
        "nothing is removed yet"
    );
    let sum = life.store.hash_kv(0.into());
    life.store.start(&life.env);
    let applied = life.store.applied().expect("it is there").index;
    life.store.set_wal_flushed(LogIndex(applied));
    let (store, done) = (life.store.clone(), Arc::new(AtomicBool::new(false)));
    let told = done.clone();
    life.env.spawn("physical", async move {
        store.wait_compacted(store.compact_revision()).await;
        told.store(true, Ordering::SeqCst);
    });
    life.settle();
    assert!(done.load(Ordering::SeqCst), "a physical compaction ends");
    let snapshot = life.store.snapshot().expect("durable");
    assert_eq!(
        snapshot.records((0, 0), usize::MAX).expect("records").len(),
        3
    );
    assert!(
        life.store.size().in_use < full.in_use / 10,
        "{:?}",
        life.store.size()
    );
    assert_eq!(life.store.inner.state.read().index.len(), 3);
    assert_eq!(life.store.hash_kv(0.into()), sum);
    let again = life.reopened();
    assert_eq!(again.store.hash_kv(0.into()), sum);
    assert_eq!(
        again.store.inner.state.read().swept,
        again.store.compact_revision().get()
    );
}

#[test]
fn a_snapshot_stands_still_and_streams_in_pieces() {
    let life = Life::new();
    for i in 0..20 {
        life.put(&format!("k{}", i % 5), &"v".repeat(50));
    }
    life.drain();
    let snapshot = life.store.snapshot().expect("durable");
    let _: CompactionResponse = life.must(compaction(21));
    life.put("k0", "later");
    life.drain();
    life.sweep();
    life.drain();
    let (mut from, mut seen) = ((0, 0), Vec::new());
    loop {
        let piece = snapshot.records(from, 150).expect("records");
        let Some((last, _)) = piece.last() else { break };
        assert!(piece.len() <= 3);
        from = (last.main, last.sub + 1);
        seen.extend(piece.into_iter().map(|(key, _)| key.main));
    }
    assert_eq!(seen, (2..=21).collect::<Vec<_>>());
    assert_eq!(snapshot.revision(), Revision(21));
    assert_eq!(snapshot.rows(Table::Leases).expect("rows"), []);
    let after = life.store.snapshot().expect("durable");
    assert_eq!(after.records((0, 0), usize::MAX).expect("records").len(), 6);
}

#[test]
fn leases_survive_and_expire_by_their_own_term_only() {
    let life = Life::new();
    let _: LeaseGrantResponse = life.must(LeaseGrantRequest { id: -7, ttl: 60 });
    let _: LeaseGrantResponse = life.must(LeaseGrantRequest { id: 8, ttl: 60 });
    for (key, lease) in [("a", -7), ("b", 8), ("c", 8)] {
        let _: PutResponse = life.must(PutRequest {
            lease,
            ..put(key, "v")
        });
    }
    // A leader of another term knows nothing.
    let _: Done = life.must(LeaseExpire {
        id: 8,
        proposer_term: 7,
    });
    assert_eq!(life.all().count, 3);
    life.drain();
    let life = life.reopened();
    let revision = life.store.revision();
    let _: Done = life.must(LeaseExpire {
        id: 8,
        proposer_term: 1,
    });
    assert_eq!(
        life.store.revision(),
        Revision(revision.get() + 1),
        "both keys in one revision"
    );
    assert_eq!(life.all().count, 1);
    assert_eq!(life.store.leases().lease_of(b"a"), -7);
}

#[test]
fn members_survive() {
    let life = Life::new();
    let birth = MemberBirth {
        id: 2,
        peer_urls: vec!["http://b:2380".into()],
        token_or_time: "17".into(),
        learner: true,
        promote: "auto".into(),
    };
    let _: Done = life.must(birth);
    let node = |url: &str| Node {
        peer_urls: vec![url.into()],
        birth: "token".into(),
    };
    let nodes = [(1, node("http://a:2380")), (2, node("http://b:2380"))];
    let membership = Membership {
        configs: vec![NodeSet { ids: vec![1] }],
        nodes: nodes.into_iter().collect(),
    };
    life.store.apply_membership(life.next_id(), &membership);
    let publish = MemberPublish {
        member_id: 1,
        name: "one".into(),
        client_urls: vec!["http://a:2379".into()],
    };
    let _: Done = life.must(publish);
    let update = |id, url: &str| MemberUpdateRequest {
        id,
        peer_urls: vec![url.into()],
    };
    assert_eq!(
        life.refused(update(3, "http://c:2380")),
        Error::MemberNotFound
    );
    assert_eq!(
        life.refused(update(2, "http://a:2380")),
        Error::PeerURLExist
    );
    let _: Done = life.must(update(2, "http://b:9999"));
    life.drain();
    let life = life.reopened();
    let members = life.store.members();
    assert_eq!(members.len(), 2);
    assert_eq!(
        (members[0].name.as_str(), members[0].is_learner),
        ("one", false)
    );
    assert_eq!(
        (&members[1].peer_urls[..], members[1].is_learner),
        (&["http://b:9999".to_owned()][..], true)
    );
    assert!(members[1].promote_auto && members[0].published && !members[1].published);
    let alone = Membership {
        nodes: [(1, node("http://a:2380"))].into_iter().collect(),
        ..membership
    };
    life.store.apply_membership(life.next_id(), &alone);
    assert_eq!(life.store.removed_members(), [MemberId(2)]);
    assert_eq!(life.store.membership().0, life.store.applied());
}
