//! Checker: every revision has exactly one cause, and every acknowledged write stands at its revision.
//!
//! - A revision with puts was caused by the call that its values name; without, by an acknowledged delete or
//!   revocation of that revision, by one of unknown outcome that would have done just this, or by the end of
//!   a lease with just these keys.
//!   Several may have been it: then each such revision gets one of its possible causes, no cause twice, and what was
//!   given to one goes to another when only that works out.
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

/// What may have caused a revision without puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Call(CallId),
    /// This lease ended.
    End(i64),
}

struct Causes<'a> {
    calls: &'a [Call],
    /// Acknowledged calls that may have caused a revision without puts, by the revision of their answer.
    by_revision: BTreeMap<i64, Vec<CallId>>,
    /// Calls that certainly caused a revision.
    used: BTreeSet<CallId>,
    /// Revisions whose cause is not certain: what it may have been.
    doubtful: BTreeMap<i64, Vec<Cause>>,
    /// Which of them each possible cause is taken for.
    taken_for: BTreeMap<Cause, i64>,
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
            causes.is_certain(id)?;
        }
        model.add(revision, events, compaction)?;
    }
    causes.all_stand(&model)?;
    Ok((model, causes.expired()))
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
            doubtful: BTreeMap::new(),
            taken_for: BTreeMap::new(),
        }
    }

    /// The call behind a revision, or `None` when it is not certain.
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
        let fits = |id: &CallId| {
            let call = &self.calls[id.0];
            let effect = || effect(&call.request, model, revision - 1);
            !self.used.contains(id) && call.floor < revision && effect().is_some_and(|e| e == found)
        };
        let revokes = |id: &CallId| matches!(self.calls[id.0].request, Request::Revoke(_));
        let answered = self.by_revision.get(&revision).into_iter().flatten();
        let (revoked, changed): (Vec<CallId>, Vec<CallId>) =
            answered.copied().filter(fits).partition(revokes);
        if let Some(id) = changed.first() {
            return Ok(Some(*id));
        }
        let unknown = (0..self.calls.len())
            .map(CallId)
            .filter(|id| matches!(self.calls[id.0].outcome, Outcome::Unknown) && fits(id));
        let calls = revoked.into_iter().chain(unknown).map(Cause::Call);
        let ended = model.leases_with_keys().into_iter().filter(|lease| {
            let keys = model.keys_of(*lease).into_iter().map(|key| (key, None));
            keys.eq(found.iter().cloned())
        });
        let possible = calls.chain(ended.map(Cause::End)).collect();
        self.doubtful.insert(revision, possible);
        self.settle(revision)
            .map_err(|found_none| Finding(format!("{found_none}: {found:?}")))?;
        Ok(None)
    }

    /// Finds a doubtful revision one of its causes.
    fn settle(&mut self, revision: i64) -> Verdict {
        require(self.find_cause(revision, &mut BTreeSet::new()), || {
            format!("revision {revision} has no cause")
        })
    }

    /// As [`Causes::settle`]: a cause that is free, or one whose revision can do with another (an augmenting path, Kuhn
    /// 1955).
    fn find_cause(&mut self, revision: i64, tried: &mut BTreeSet<Cause>) -> bool {
        let possible = self.doubtful.get(&revision).cloned().unwrap_or_default();
        for cause in possible {
            let certain = matches!(cause, Cause::Call(id) if self.used.contains(&id));
            if certain || !tried.insert(cause) {
                continue;
            }
            let free = match self.taken_for.get(&cause).copied() {
                Some(other) => self.find_cause(other, tried),
                None => true,
            };
            if free {
                self.taken_for.insert(cause, revision);
                return true;
            }
        }
        false
    }

    /// A call that certainly caused another revision caused no doubtful one.
    fn is_certain(&mut self, id: CallId) -> Verdict {
        match self.taken_for.remove(&Cause::Call(id)) {
            Some(revision) => self.settle(revision),
            None => Ok(()),
        }
    }

    /// Leases that ended by themselves, as far as that is how it works out.
    fn expired(&self) -> Expired {
        let taken = self.taken_for.iter();
        let ends = taken.filter_map(|(cause, revision)| match cause {
            Cause::End(lease) => Some((*lease, *revision)),
            Cause::Call(_) => None,
        });
        ends.collect()
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
