//! Checker: an answer shows the state at its revision, and its revision is no lower than any that anybody had
//! seen when it was asked for. With one member that holds for serializable reads and for what a member tells of
//! itself too; in a cluster a member may be behind with those.

use super::model::Model;
use super::{Verdict, require};
use crate::history::{Call, Outcome, Reply, Request};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{self as pb, request_op, response_op};
use tenon_proto::mvccpb::KeyValue;

/// Where the calls were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// By one member only.
    ByOne,
    /// By any of several.
    ByAny,
}

/// Whether the answer has to show everything that anybody had seen when it was asked for.
fn is_linearizable(call: &Call, answered: Answered) -> bool {
    let local = match &call.request {
        Request::Range(range) => range.serializable,
        Request::HashKv(_) | Request::KeepAlive(_) => true,
        _ => false,
    };
    answered == Answered::ByOne || !local
}

/// Checks all answers of a history against the model. `compaction` is the highest revision up to which
/// anybody asked to compact, `last` the newest revision.
pub fn check(
    calls: &[Call],
    model: &Model,
    compaction: i64,
    last: i64,
    answered: Answered,
) -> Verdict {
    for call in calls {
        let linearizable = is_linearizable(call, answered);
        match &call.outcome {
            Outcome::Reply(reply) => {
                let revision = reply.revision();
                require(revision >= call.floor || !linearizable, || {
                    format!("{call:?} went back behind {}", call.floor)
                })?;
                require(revision <= last, || format!("{call:?} saw beyond {last}"))?;
                reply_is_right(call, reply, model)?;
            }
            Outcome::Refused(error) => {
                refusal_is_right(call, error, compaction, linearizable)?;
            }
            Outcome::Unknown => {}
        }
    }
    Ok(())
}

fn refusal_is_right(call: &Call, error: &Error, compaction: i64, linearizable: bool) -> Verdict {
    let revision = match &call.request {
        Request::Range(range) => range.revision,
        Request::HashKv(revision) => *revision,
        _ => return Ok(()),
    };
    let excused = match error {
        Error::Compacted => revision < compaction,
        Error::FutureRev => revision > call.floor || !linearizable,
        _ => true,
    };
    require(excused, || format!("refused without reason: {call:?}"))
}

fn reply_is_right(call: &Call, reply: &Reply, model: &Model) -> Verdict {
    let revision = reply.revision();
    match (&call.request, reply) {
        (Request::Range(request), Reply::Range(response)) => {
            let at = if request.revision > 0 {
                request.revision
            } else {
                revision
            };
            range_is_right(call, request, response, model, at)
        }
        (Request::Put(request), Reply::Put(response)) if request.prev_kv => {
            let before = model.at(&request.key, revision - 1);
            require(response.prev_kv.as_ref() == before, || {
                format!("{call:?}, not {before:?}")
            })
        }
        (Request::Delete(request), Reply::Delete(response)) => {
            let at = if response.deleted > 0 {
                revision - 1
            } else {
                revision
            };
            let gone = model.range(&request.key, &request.range_end, at);
            let told = !request.prev_kv || response.prev_kvs.iter().eq(gone.iter().copied());
            require(told && response.deleted == gone.len() as i64, || {
                format!("{call:?} should have deleted {gone:?}")
            })
        }
        (Request::Txn(request), Reply::Txn(response)) => {
            txn_is_right(call, request, response, model)
        }
        _ => Ok(()),
    }
}

fn range_is_right(
    call: &Call,
    request: &pb::RangeRequest,
    response: &pb::RangeResponse,
    model: &Model,
    at: i64,
) -> Verdict {
    let all = model.range(&request.key, &request.range_end, at);
    let limit = if request.limit > 0 {
        request.limit as usize
    } else {
        usize::MAX
    };
    let mut shown: Vec<KeyValue> = all.iter().take(limit).map(|kv| (*kv).clone()).collect();
    if request.keys_only {
        // As in etcd 3.7, the lease goes with the value.
        for kv in &mut shown {
            kv.value.clear();
            kv.lease = 0;
        }
    }
    if request.count_only {
        shown.clear();
    }
    let more = !request.count_only && all.len() > limit;
    let right =
        response.kvs == shown && response.count == all.len() as i64 && response.more == more;
    require(right, || {
        format!(
            "{call:?} should show {shown:?}, count {}, more {more}",
            all.len()
        )
    })
}

/// The conditions were judged on the state before, and the reads inside see the state after. Transactions of
/// the workloads read no key that they change.
fn txn_is_right(
    call: &Call,
    request: &pb::TxnRequest,
    response: &pb::TxnResponse,
    model: &Model,
) -> Verdict {
    let revision = response.header.as_ref().map_or(0, |h| h.revision);
    let branch = if response.succeeded {
        &request.success
    } else {
        &request.failure
    };
    let wrote = response.responses.iter().any(|r| match &r.response {
        Some(response_op::Response::ResponsePut(_)) => true,
        Some(response_op::Response::ResponseDeleteRange(r)) => r.deleted > 0,
        _ => false,
    });
    let judged_at = if wrote { revision - 1 } else { revision };
    require(
        model.holds(&request.compare, judged_at) == response.succeeded,
        || format!("conditions misjudged at {judged_at}: {call:?}"),
    )?;
    require(branch.len() == response.responses.len(), || {
        format!("answers are missing: {call:?}")
    })?;
    for (op, answer) in branch.iter().zip(&response.responses) {
        if let (
            Some(request_op::Request::RequestRange(request)),
            Some(response_op::Response::ResponseRange(response)),
        ) = (&op.request, &answer.response)
        {
            range_is_right(call, request, response, model, revision)?;
        }
    }
    Ok(())
}
