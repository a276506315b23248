//! Room storage, state: applying committed commands: memory only, a pure function of (state, log id,
//! command). One file per kind of command below this one.
//!
//! Every command is judged here before it runs: permission ([`permission`]), then alarms. What only the
//! state can tell (an unknown lease, a revision of the future) each kind checks before its first
//! change, so that a refused command leaves nothing behind.

mod alarm;
mod compact;
mod delete_range;
mod lease;
mod member;
mod permission;
mod put;
mod range;
mod txn;
mod writing;

use super::core::{Inner, State};
use super::store::Fatal;
use tenon_proto::command::command::Body;
use tenon_proto::command::command_result::Outcome;
use tenon_proto::command::{Command, CommandBatch, CommandResult};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::ResponseHeader;
use tenon_proto::log::{LogId, Membership};

pub(crate) use range::{check_revision, check_revision_in_txn, compare_all};

/// Why a command did not run.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The client's error, the same on every member.
    Client(Error),
    /// The member has to stop.
    Fatal(Fatal),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Client(error)
    }
}

impl From<Fatal> for Refused {
    fn from(fatal: Fatal) -> Refused {
        Refused::Fatal(fatal)
    }
}

/// A command's answer.
pub(crate) type Answer<T> = Result<T, Refused>;

/// A header with a revision and nothing else; the answering member fills in the rest.
pub(crate) fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

/// Applies the commands of an entry in order.
pub(crate) fn batch(
    inner: &Inner,
    id: LogId,
    batch: &CommandBatch,
) -> Result<Vec<CommandResult>, Fatal> {
    let mut state = inner.state.write();
    check_next(&state, id);
    let mut results = Vec::with_capacity(batch.commands.len());
    let mut began = inner.env.now();
    for command in &batch.commands {
        let (outcome, refused) = match dispatch(inner, &mut state, id, command) {
            Ok(outcome) => (outcome, None),
            Err(Refused::Client(error)) => (Outcome::Error(error.clone().into()), Some(error)),
            Err(Refused::Fatal(reason)) => return Err(inner.give_up(reason)),
        };
        let now = inner.env.now();
        let measures = &inner.measures;
        measures.applied(command.body.as_ref(), refused.as_ref(), now - began);
        began = now;
        results.push(CommandResult {
            outcome: Some(outcome),
        });
    }
    finish(inner, state, id);
    Ok(results)
}

/// Applies an entry that changes nothing but the position.
pub(crate) fn blank(inner: &Inner, id: LogId) {
    let state = inner.state.write();
    check_next(&state, id);
    finish(inner, state, id);
}

/// Applies a membership entry.
pub(crate) fn membership(inner: &Inner, id: LogId, membership: &Membership) {
    let mut state = inner.state.write();
    check_next(&state, id);
    member::on_membership(&mut state, id, membership);
    finish(inner, state, id);
}

/// Entries come one after the other.
fn check_next(state: &State, id: LogId) {
    if let Some(applied) = state.applied {
        assert_eq!(
            id.index,
            applied.index + 1,
            "entries are applied one after the other"
        );
        assert!(id.term >= applied.term, "terms never go back");
    }
}

fn finish(inner: &Inner, mut state: parking_lot::RwLockWriteGuard<'_, State>, id: LogId) {
    state.applied = Some(id);
    let (revision, compacted) = (state.revision, state.compacted);
    state.pending.push_mark(id, revision, compacted);
    let undrained = state.undrained_bytes();
    drop(state);
    inner.wake_flusher(undrained);
}

fn dispatch(inner: &Inner, state: &mut State, id: LogId, command: &Command) -> Answer<Outcome> {
    let Some(body) = &command.body else {
        return Err(Error::other(
            tenon_proto::code::Code::Unimplemented,
            "tenon: this member's \
            version does not know the command",
        )
        .into());
    };
    permission::judge(state, command, body)?;
    state.alarms.judge(body)?;
    Ok(match body {
        Body::Put(request) => put::apply(inner, state, request)?.into(),
        Body::DeleteRange(request) => delete_range::apply(inner, state, request)?.into(),
        Body::Txn(request) => txn::apply(inner, state, request)?.into(),
        Body::Compact(request) => compact::apply(inner, state, id, request)?.into(),
        Body::LeaseGrant(request) => lease::grant(inner, state, request)?.into(),
        Body::LeaseRevoke(request) => lease::revoke(inner, state, request.id)?.into(),
        Body::LeaseExpire(expire) => lease::expire(inner, state, id, expire)?.into(),
        Body::LeaseCheckpoint(request) => lease::checkpoint(inner, state, request).into(),
        Body::Alarm(request) => alarm::apply(state, request).into(),
        Body::Publish(publish) => member::publish(state, publish).into(),
        Body::MemberUpdate(request) => member::update(state, request)?.into(),
        Body::MemberBirth(birth) => member::birth(state, birth).into(),
        Body::ClusterVersion(set) => member::cluster_version(state, set).into(),
    })
}
