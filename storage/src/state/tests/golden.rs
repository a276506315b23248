//! Room storage, state: HashKV of stories, equal to what etcd 3.7.3 answered for the same requests, at
//! every stage of draining and removal.

use super::{Life, compaction, delete, op, put};
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::*;
use tenon_proto::ids::Revision;

/// When the records move behind the story's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Everything stays in memory, nothing is removed.
    Memory,
    /// Drained after each step, nothing is removed.
    Drained,
    /// Drained after each step, compactions carried out.
    Removed,
    /// The same, and opened anew.
    Reopened,
}

const STAGES: [Stage; 4] = [
    Stage::Memory,
    Stage::Drained,
    Stage::Removed,
    Stage::Reopened,
];

struct Story {
    life: Option<Life>,
    stage: Stage,
}

impl Story {
    fn new(stage: Stage) -> Story {
        Story {
            life: Some(Life::new()),
            stage,
        }
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("it lives on")
    }

    /// Lets the stage happen, then compares the sum at `revision`.
    fn sum(&mut self, revision: i64, hash: u32, compacted: i64) {
        if self.stage != Stage::Memory {
            self.life().drain();
        }
        if matches!(self.stage, Stage::Removed | Stage::Reopened) {
            self.life().sweep();
            self.life().drain();
        }
        if self.stage == Stage::Reopened {
            self.life = self.life.take().map(Life::reopened);
        }
        let sum = self
            .life()
            .store
            .hash_kv(Revision(revision))
            .expect("HashKV");
        let got = (sum.hash, sum.compact_revision.get());
        assert_eq!(
            got,
            (hash, compacted),
            "{:?}, revision {revision}",
            self.stage
        );
    }
}

fn compact(story: &Story, revision: i64) {
    let _: CompactionResponse = story.life().must(compaction(revision));
}

fn remove(story: &Story, key: &str, end: &str) {
    let _: DeleteRangeResponse = story.life().must(delete(key, end));
}

#[test]
fn generations_and_compactions() {
    for stage in STAGES {
        let mut story = Story::new(stage);
        story.sum(0, 1_084_519_789, -1);
        story.life().put("a", "1");
        story.life().put("b", "2");
        story.life().put("a", "3");
        remove(&story, "a", "");
        story.life().put("a", "4");
        remove(&story, "b", "");
        let sums = [
            1_958_350_305,
            1_084_519_789,
            2_587_454_935,
            1_827_592_406,
            2_069_675_932,
            1_346_927_904,
            243_047_511,
            1_958_350_305,
        ];
        for (revision, hash) in (0..).zip(sums) {
            story.sum(revision, hash, -1);
        }
        compact(&story, 5);
        for (revision, hash) in [(0, 1_344_541_200), (6, 3_059_177_743), (7, 1_344_541_200)] {
            story.sum(revision, hash, 5);
        }
        remove(&story, "a", "");
        story.sum(0, 3_520_086_925, 5);
        compact(&story, 8);
        story.sum(0, 1_084_519_789, 8);
        story.life().put("z", "9");
        story.sum(0, 1_091_897_852, 8);
    }
}

#[test]
fn leases_and_transactions() {
    for stage in STAGES {
        let mut story = Story::new(stage);
        let grant = LeaseGrantRequest { id: 7, ttl: 1000 };
        let _: LeaseGrantResponse = story.life().must(grant);
        story.life().put("k", "");
        let leased = |key: &str, value: &str| PutRequest {
            lease: 7,
            ..put(key, value)
        };
        let _: PutResponse = story.life().must(leased("l", &"x".repeat(300)));
        let _: PutResponse = story.life().must(leased("k", "v"));
        let _: PutResponse = story.life().must(PutRequest {
            ignore_lease: true,
            ..put("l", "")
        });
        let success = vec![
            op(Request::RequestPut(put("m", "1"))),
            op(Request::RequestDeleteRange(delete("k", ""))),
            op(Request::RequestPut(put("n", "2"))),
        ];
        let txn = TxnRequest {
            success,
            ..TxnRequest::default()
        };
        let _: TxnResponse = story.life().must(txn);
        story.sum(0, 181_345_894, -1);
        let _: LeaseRevokeResponse = story.life().must(LeaseRevokeRequest { id: 7 });
        let sums = [
            (0, 3_048_204_302),
            (3, 3_726_955_276),
            (4, 753_439_528),
            (5, 3_175_479_220),
            (6, 181_345_894),
        ];
        for (revision, hash) in sums {
            story.sum(revision, hash, -1);
        }
        compact(&story, 6);
        story.sum(0, 562_817_871, 6);
        remove(&story, "m", "o");
        story.sum(0, 291_780_779, 6);
        compact(&story, 7);
        story.sum(0, 3_881_566_906, 7);
    }
}

#[test]
fn many_keys_overwritten() {
    for stage in STAGES {
        let mut story = Story::new(stage);
        for i in 0..300 {
            story
                .life()
                .put(&format!("key{:03}", i % 40), &"v".repeat(i % 7));
        }
        remove(&story, "key010", "key020");
        story.sum(0, 2_987_954_858, -1);
        story.sum(150, 2_680_269_776, -1);
        compact(&story, 200);
        story.sum(0, 3_734_862_486, 200);
        story.sum(250, 3_589_731_767, 200);
        let nested = |request| {
            let inner = TxnRequest {
                success: vec![op(request)],
                ..TxnRequest::default()
            };
            op(Request::RequestTxn(inner))
        };
        let success = vec![
            nested(Request::RequestPut(put("q", "1"))),
            nested(Request::RequestDeleteRange(delete("q", ""))),
        ];
        let _: TxnResponse = story.life().must(TxnRequest {
            success,
            ..TxnRequest::default()
        });
        story.sum(0, 4_210_797_268, 200);
        compact(&story, 303);
        story.sum(0, 1_516_767_822, 303);
    }
}
