//! Room `raft`: what openraft's type parameters stand for. An entry travels with its encoded bytes, so that
//! the WAL, peers and the state machine share one encoding and one decoding.

mod convert;
mod entry;
mod responder;

use crate::runtime::NodeRuntime;
use std::fmt;
use tenon_proto::command::CommandResult;
use tenon_proto::log;

pub(crate) use convert::{
    from_log_id, from_membership, from_vote, stored_membership, to_log_id, to_membership, to_vote,
};
pub(crate) use entry::{Batching, Body, Entry, Payload, Proposal};
pub(crate) use responder::OnComplete;

/// The one configuration of openraft in this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Config;

impl openraft::RaftTypeConfig for Config {
    type D = Proposal;
    type R = Results;
    type NodeId = u64;
    type Node = Birth;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = NodeRuntime;
    type Responder<T>
        = OnComplete<T>
    where
        T: Send + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type LogId = openraft::type_config::alias::LogIdOf<Config>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<Config>;
pub(crate) type Membership = openraft::Membership<u64, Birth>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<Config>;

/// Results of one entry's commands, in order; empty for entries without commands.
pub(crate) type Results = Vec<CommandResult>;

/// What is fixed about a member when it is added: openraft refuses a changed node, so addresses that may
/// change live in the members table instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Birth(pub(crate) log::Node);

impl fmt::Display for Birth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.0.peer_urls.join(","), self.0.birth)
    }
}
