//! Room `sim`: what a run leaves for people besides its verdict: its chronicle and its history, as a page.

use crate::NodeId;
use crate::check::Finding;
use crate::chronicle::Chronicle;
use crate::executor::run::panic_text;
use crate::history::{Call, Outcome, Reply, Request};
use crate::html::{Ended, Page, Shown};
use crate::mask::Item;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tenon_proto::etcdserverpb::{self as pb, request_op};
use tenon_proto::mvccpb::KeyValue;

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// Lives, faults, roles.
    pub chronicle: Chronicle,
    /// What clients asked and were told.
    pub calls: Vec<Call>,
    /// The nodes with members.
    pub members: Vec<NodeId>,
    /// When it ended, in nanoseconds.
    pub end: u64,
    /// The items that a mask could have left out.
    pub(crate) done: BTreeSet<Item>,
    /// Which node a member id stands for.
    pub(crate) names: BTreeMap<u64, NodeId>,
}

/// A run's verdict; a panic is one too.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, Finding>) -> Result<T, Finding> {
    let ran = catch_unwind(AssertUnwindSafe(run));
    ran.unwrap_or_else(|panic| Err(Finding(format!("panicked: {}", panic_text(&*panic)))))
}

impl Story {
    /// The story as a page. `violation` is what broke.
    pub fn page(
        self,
        seed: u64,
        replay: String,
        facts: Vec<(String, String)>,
        violation: Option<String>,
    ) -> Page {
        let calls = self.calls.iter().enumerate();
        Page {
            seed,
            replay,
            facts,
            members: self.members,
            chronicle: self.chronicle,
            calls: calls
                .map(|(number, call)| shown(number, call, &self.names))
                .collect(),
            end: self.end,
            violation,
        }
    }
}

fn shown(number: usize, call: &Call, names: &BTreeMap<u64, NodeId>) -> Shown {
    let how = match &call.outcome {
        Outcome::Reply(reply) => Ended::Answered(answer(reply, names)),
        Outcome::Refused(error) => Ended::Refused(error.to_string()),
        Outcome::Unknown if call.returned.is_some() => Ended::Unknown("no answer".to_owned()),
        Outcome::Unknown => Ended::Unknown("under way".to_owned()),
    };
    Shown {
        name: format!("CallId({number})"),
        client: format!("client {}", call.client),
        what: asked(&call.request),
        begun: call.invoked,
        ended: call.returned,
        how,
    }
}

/// Text of bytes, cut short.
fn text(bytes: &Bytes) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}

fn interval(key: &Bytes, range_end: &Bytes) -> String {
    match (key.as_ref(), range_end.as_ref()) {
        ([0], [0]) => "all keys".to_owned(),
        (_, []) => text(key),
        (_, [0]) => format!("{}..", text(key)),
        _ => format!("{}..{}", text(key), text(range_end)),
    }
}

fn asked(request: &Request) -> String {
    match request {
        Request::Put(put) => show_put(put),
        Request::Delete(d) => format!("delete {}", interval(&d.key, &d.range_end)),
        Request::Range(range) => show_range(range),
        Request::Txn(txn) => {
            let compares = txn.compare.iter().map(|c| text(&c.key));
            format!(
                "if {} then {} else {}",
                compares.collect::<Vec<_>>().join(", "),
                operations(&txn.success),
                operations(&txn.failure)
            )
        }
        Request::Compact(revision) => format!("compact to {revision}"),
        Request::Grant(id, ttl) => format!("grant lease {id} for {ttl} s"),
        Request::Revoke(id) => format!("revoke lease {id}"),
        Request::KeepAlive(id) => format!("keep lease {id} alive"),
        Request::HashKv(revision) => format!("hash up to {revision}"),
    }
}

fn show_put(put: &pb::PutRequest) -> String {
    let lease = match put.lease {
        0 => String::new(),
        lease => format!(" on lease {lease}"),
    };
    format!("put {} = {}{lease}", text(&put.key), text(&put.value))
}

fn show_range(range: &pb::RangeRequest) -> String {
    let at = match range.revision {
        0 => String::new(),
        revision => format!(" at revision {revision}"),
    };
    let how = if range.serializable {
        " (serializable)"
    } else {
        ""
    };
    format!("get {}{at}{how}", interval(&range.key, &range.range_end))
}

fn operations(operations: &[pb::RequestOp]) -> String {
    let one = |op: &pb::RequestOp| match &op.request {
        Some(request_op::Request::RequestPut(put)) => show_put(put),
        Some(request_op::Request::RequestDeleteRange(d)) => {
            format!("delete {}", interval(&d.key, &d.range_end))
        }
        Some(request_op::Request::RequestRange(range)) => show_range(range),
        Some(request_op::Request::RequestTxn(_)) => "a transaction".to_owned(),
        None => "nothing".to_owned(),
    };
    let all: Vec<String> = operations.iter().map(one).collect();
    format!("[{}]", all.join("; "))
}

/// Keys of an answer shown at most.
const KEYS_MAX: usize = 8;

fn answer(reply: &Reply, names: &BTreeMap<u64, NodeId>) -> String {
    let revision = reply.revision();
    let member = names.get(&reply.header().member_id);
    let by = member.map_or(String::new(), |node| format!(" by member {}", node.0));
    let more = match reply {
        Reply::Range(range) => {
            let key = |kv: &KeyValue| {
                format!(
                    "{} = {} (of {})",
                    text(&kv.key),
                    text(&kv.value),
                    kv.mod_revision
                )
            };
            let shown: Vec<String> = range.kvs.iter().take(KEYS_MAX).map(key).collect();
            format!(", {} keys: {}", range.kvs.len(), shown.join(", "))
        }
        Reply::Delete(delete) => format!(", {} deleted", delete.deleted),
        Reply::Txn(txn) if txn.succeeded => ", then".to_owned(),
        Reply::Txn(_) => ", else".to_owned(),
        Reply::Grant(grant) => format!(", lease {} for {} s", grant.id, grant.ttl),
        Reply::KeepAlive(kept) => format!(", lease {} for {} s", kept.id, kept.ttl),
        Reply::HashKv(hash) => format!(", hash {:08x}", hash.hash),
        _ => String::new(),
    };
    format!("revision {revision}{by}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use tenon_proto::error::Error;

    #[test]
    fn calls_are_told_in_words() {
        let history = History::default();
        let key = Bytes::from_static(b"k");
        let put = pb::PutRequest {
            key: key.clone(),
            value: Bytes::from("v".repeat(50)),
            lease: 7,
            ..Default::default()
        };
        let (id, _) = history.begin(3, 10, |_| Request::Put(put.clone()));
        let header = pb::ResponseHeader {
            revision: 9,
            ..Default::default()
        };
        let reply = pb::PutResponse {
            header: Some(header),
            ..Default::default()
        };
        history.end(id, 20, Outcome::Reply(Reply::Put(reply)));
        let op = pb::RequestOp {
            request: Some(request_op::Request::RequestPut(put)),
        };
        let txn = pb::TxnRequest {
            compare: vec![pb::Compare {
                key: key.clone(),
                ..Default::default()
            }],
            success: vec![op],
            failure: Vec::new(),
        };
        let (id, _) = history.begin(4, 15, |_| Request::Txn(txn));
        history.end(id, 25, Outcome::Refused(Error::Compacted));
        let range = pb::RangeRequest {
            key,
            range_end: Bytes::from_static(b"\0"),
            revision: 4,
            serializable: true,
            ..Default::default()
        };
        history.begin(4, 16, |_| Request::Range(range));
        let story = Story {
            calls: history.calls(),
            ..Story::default()
        };
        let page = story.page(1, String::new(), Vec::new(), None);
        let told: Vec<&str> = page.calls.iter().map(|c| c.what.as_str()).collect();
        let value = "v".repeat(40);
        assert_eq!(told[0], format!("put k = {value}… on lease 7"));
        assert_eq!(
            told[1],
            format!("if k then [put k = {value}… on lease 7] else []")
        );
        assert_eq!(told[2], "get k.. at revision 4 (serializable)");
        assert_eq!(page.calls[0].how, Ended::Answered("revision 9".to_owned()));
        assert!(matches!(&page.calls[1].how, Ended::Refused(_)));
        assert_eq!(page.calls[2].how, Ended::Unknown("under way".to_owned()));
        assert_eq!(page.calls[0].name, "CallId(0)");
    }
}
