//! Checker: every revision has exactly one cause, and every acknowledged write stands at its revision.
//!
//! - A revision with puts was caused by the call that its values name; without, by an acknowledged delete or
//!   revocation of that revision, by one of unknown outcome that would have done just this, or by the end of
//!   a lease with just these keys.
//! - A call causes at most one revision; one that was refused causes none.
//! - A revision is higher than any that anybody had seen when its cause was asked for.

use super::model::{Model, is_put};
use super::timeline::Timeline;
use super::{Finding, Verdict, require};
use crate::history::{Call, CallId, Outcome, Reply, Request, tagged};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tenon_proto::etcdserverpb::{self as pb, request_op};
use tenon_proto::mvccpb::Event;

/// A change that a call should make: key, and value with lease for a put.
type Change = (Bytes, Option<(Bytes, i64)>);

struct Causes<'a> {
    calls: &'a [Call],
    /// Acknowledged calls that may have caused a revision without puts, by the revision of their answer.
    by_revision: BTreeMap<i64, Vec<CallId>>,
    used: BTreeSet<CallId>,
    /// Leases that ended by themselves.
    expired: BTreeMap<i64, i64>,
}

/// Leases that ended by themselves, each with the revision of that.
pub type Expired = BTreeMap<i64, i64>;

/// Checks all writes of a history against the timeline. `compaction` as for [`Model::of`].
pub fn check(
    calls: &[Call],
    timeline: &Timeline,
    compaction: i64,
) -> Result<(Model, Expired), Finding> {
    let mut model = Model::default();
    let mut causes = Causes::new(calls);
    for (revision, events) in timeline.iter() {
        let cause = causes.of(revision, events, &model)?;
        if let Some(id) = cause {
            let call = &calls[id.0];
            require(causes.used.insert(id), || {
                format!("call {id:?} took effect twice, at {revision}")
            })?;
            require(revision > call.floor, || {
                format!(
                    "revision {revision} by {call:?}, which was asked for after {}",
                    call.floor
                )
            })?;
        }
        model.add(revision, events, compaction)?;
    }
    causes.all_stand(&model)?;
    Ok((model, causes.expired))
}

impl<'a> Causes<'a> {
    fn new(calls: &'a [Call]) -> Causes<'a> {
        let mut by_revision: BTreeMap<i64, Vec<CallId>> = BTreeMap::new();
        for (number, call) in calls.iter().enumerate() {
            if let Some(reply) = call.reply().filter(|reply| may_have_changed(reply)) {
                by_revision
                    .entry(reply.revision())
                    .or_default()
                    .push(CallId(number));
            }
        }
        Causes {
            calls,
            by_revision,
            used: BTreeSet::new(),
            expired: BTreeMap::new(),
        }
    }

    /// The call behind a revision, or `None` when a lease ended.
    fn of(
        &mut self,
        revision: i64,
        events: &[Event],
        model: &Model,
    ) -> Result<Option<CallId>, Finding> {
        let found: Vec<Change> = events.iter().map(change).collect();
        if let Some(put) = events.iter().find(|e| is_put(e)) {
            let value = put
                .kv
                .as_ref()
                .map(|kv| kv.value.clone())
                .unwrap_or_default();
            let Some(id) = tagged(&value).filter(|id| id.0 < self.calls.len()) else {
                return Err(Finding(format!(
                    "revision {revision} puts {value:?}, which nobody sent"
                )));
            };
            self.is_cause(id, revision, &found, model)?;
            return Ok(Some(id));
        }
        let acknowledged = self.by_revision.get(&revision).cloned().unwrap_or_default();
        let fits = |id: &CallId| {
            !self.used.contains(id)
                && effect(&self.calls[id.0].request, model, revision - 1)
                    .is_some_and(|e| e == found)
        };
        if let Some(id) = acknowledged.into_iter().find(fits) {
            return Ok(Some(id));
        }
        let ended = model.leases_with_keys().into_iter().find(|lease| {
            let keys = model.keys_of(*lease).into_iter().map(|key| (key, None));
            keys.eq(found.iter().cloned()) && !self.expired.contains_key(lease)
        });
        let unknown = (0..self.calls.len()).map(CallId).find(|id| {
            let call = &self.calls[id.0];
            matches!(call.outcome, Outcome::Unknown) && call.floor < revision && fits(id)
        });
        match (unknown, ended) {
            (Some(id), _) => Ok(Some(id)),
            (None, Some(lease)) => {
                self.expired.insert(lease, revision);
                Ok(None)
            }
            (None, None) => Err(Finding(format!(
                "revision {revision} has no cause: {found:?}"
            ))),
        }
    }

    fn is_cause(&self, id: CallId, revision: i64, found: &[Change], model: &Model) -> Verdict {
        let call = &self.calls[id.0];
        match &call.outcome {
            Outcome::Refused(error) => {
                return Err(Finding(format!(
                    "{call:?}, refused with {error:?}, caused {revision}"
                )));
            }
            Outcome::Reply(reply) if reply.revision() != revision => {
                let told = reply.revision();
                return Err(Finding(format!(
                    "{call:?} was told {told} and stands at {revision}"
                )));
            }
            Outcome::Reply(_) | Outcome::Unknown => {}
        }
        let expected = effect(&call.request, model, revision - 1);
        require(expected.as_deref() == Some(found), || {
            format!("revision {revision} is {found:?}, but {call:?} should give {expected:?}")
        })
    }

    /// Every acknowledged write that had an effect was found at its revision.
    fn all_stand(&self, model: &Model) -> Verdict {
        for (number, call) in self.calls.iter().enumerate() {
            let Some(reply) = call.reply() else { continue };
            if self.used.contains(&CallId(number)) {
                continue;
            }
            let had_effect = match (&call.request, reply) {
                (Request::Put(_), _) => true,
                (Request::Delete(_), Reply::Delete(r)) => r.deleted > 0,
                (Request::Txn(request), Reply::Txn(r)) => {
                    let at = reply.revision();
                    let branch = if r.succeeded {
                        &request.success
                    } else {
                        &request.failure
                    };
                    !changes(branch, model, at).is_empty()
                }
                _ => false,
            };
            require(!had_effect, || format!("acknowledged and lost: {call:?}"))?;
        }
        Ok(())
    }
}

/// Whether a call with this reply may have caused a revision without puts.
fn may_have_changed(reply: &Reply) -> bool {
    match reply {
        Reply::Delete(r) => r.deleted > 0,
        Reply::Txn(r) => r.succeeded,
        Reply::Revoke(_) => true,
        _ => false,
    }
}

fn change(event: &Event) -> Change {
    let kv = event.kv.clone().unwrap_or_default();
    let put = is_put(event).then_some((kv.value, kv.lease));
    (kv.key, put)
}

/// What a request changes when it is applied after `revision`; `None` when it is no write.
fn effect(request: &Request, model: &Model, revision: i64) -> Option<Vec<Change>> {
    match request {
        Request::Put(put) => Some(vec![(
            put.key.clone(),
            Some((put.value.clone(), put.lease)),
        )]),
        Request::Delete(delete) => Some(deletion(delete, model, revision)),
        Request::Txn(txn) => {
            let holds = model.holds(&txn.compare, revision);
            Some(changes(
                if holds { &txn.success } else { &txn.failure },
                model,
                revision,
            ))
        }
        Request::Revoke(lease) => Some(
            model
                .keys_of(*lease)
                .into_iter()
                .map(|key| (key, None))
                .collect(),
        ),
        _ => None,
    }
}

fn deletion(delete: &pb::DeleteRangeRequest, model: &Model, revision: i64) -> Vec<Change> {
    let gone = model.range(&delete.key, &delete.range_end, revision);
    gone.into_iter().map(|kv| (kv.key.clone(), None)).collect()
}

fn changes(branch: &[pb::RequestOp], model: &Model, revision: i64) -> Vec<Change> {
    let mut all = Vec::new();
    for op in branch {
        match &op.request {
            Some(request_op::Request::RequestPut(put)) => {
                all.push((put.key.clone(), Some((put.value.clone(), put.lease))));
            }
            Some(request_op::Request::RequestDeleteRange(delete)) => {
                all.extend(deletion(delete, model, revision));
            }
            _ => {}
        }
    }
    all
}
