//! Room `raft`: openraft's messages to those of `proto::peer` and back. Entries travel as the bytes the WAL
//! keeps. A message that makes no sense is refused with what is wrong about it.

use crate::error::{MemberError, ProposeError, Reason};
use crate::flight::{Applied, Outcome};
use crate::types::{Config, Entry, LogId, Vote, from_log_id, from_vote, to_log_id, to_vote};
use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tenon_proto::command::CommandResult;
use tenon_proto::ids::MemberId;
use tenon_proto::peer;

/// A message that makes no sense.
pub(crate) type Nonsense = String;

fn vote(vote: Option<&tenon_proto::log::Vote>) -> Result<Vote, Nonsense> {
    vote.map(to_vote)
        .ok_or_else(|| "a message without a vote".to_owned())
}

fn id(id: Option<&tenon_proto::log::LogId>) -> Option<LogId> {
    id.map(to_log_id)
}

pub(crate) fn append(mut rpc: AppendEntriesRequest<Config>, session: u64) -> peer::Append {
    peer::Append {
        vote: Some(from_vote(&rpc.vote)),
        prev: rpc.prev_log_id.map(from_log_id),
        commit: rpc.leader_commit.map(from_log_id),
        entries: rpc.entries.iter_mut().map(Entry::seal).collect(),
        session,
    }
}

pub(crate) fn read_append(append: peer::Append) -> Result<AppendEntriesRequest<Config>, Nonsense> {
    let entries: Vec<Entry> = append
        .entries
        .into_iter()
        .map(Entry::decode)
        .collect::<Result<_, _>>()?;
    let prev_log_id = id(append.prev.as_ref());
    let begin = prev_log_id.map_or(0, |id| id.index + 1);
    for (place, entry) in (begin..).zip(&entries) {
        if entry.id().index != place {
            return Err(format!("entry {} where {place} should stand", entry.id()));
        }
    }
    Ok(AppendEntriesRequest {
        vote: vote(append.vote.as_ref())?,
        prev_log_id,
        entries,
        leader_commit: id(append.commit.as_ref()),
    })
}

pub(crate) fn append_reply(result: &StreamAppendResult<Config>) -> peer::AppendReply {
    use peer::append_reply::Outcome;
    let outcome = match result {
        Ok(last) => Outcome::Durable(peer::Position {
            id: last.map(from_log_id),
        }),
        Err(StreamAppendError::Conflict(at)) => Outcome::Conflict(from_log_id(*at)),
        Err(StreamAppendError::HigherVote(vote)) => Outcome::Higher(from_vote(vote)),
    };
    peer::AppendReply {
        outcome: Some(outcome),
    }
}

pub(crate) fn read_append_reply(
    reply: &peer::AppendReply,
) -> Result<StreamAppendResult<Config>, Nonsense> {
    use peer::append_reply::Outcome;
    match &reply.outcome {
        Some(Outcome::Durable(position)) => Ok(Ok(id(position.id.as_ref()))),
        Some(Outcome::Conflict(at)) => Ok(Err(StreamAppendError::Conflict(to_log_id(at)))),
        Some(Outcome::Higher(vote)) => Ok(Err(StreamAppendError::HigherVote(to_vote(vote)))),
        None => Err("an append's reply without an outcome".to_owned()),
    }
}

pub(crate) fn vote_request(rpc: &VoteRequest<Config>) -> peer::VoteRequest {
    peer::VoteRequest {
        vote: Some(from_vote(&rpc.vote)),
        last: rpc.last_log_id.map(from_log_id),
        transfer: rpc.leadership_transfer,
    }
}

pub(crate) fn read_vote_request(
    request: &peer::VoteRequest,
) -> Result<VoteRequest<Config>, Nonsense> {
    let mut rpc = VoteRequest::new(vote(request.vote.as_ref())?, id(request.last.as_ref()));
    rpc.leadership_transfer = request.transfer;
    Ok(rpc)
}

pub(crate) fn vote_reply(response: &VoteResponse<Config>) -> peer::VoteReply {
    peer::VoteReply {
        vote: Some(from_vote(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.map(from_log_id),
    }
}

pub(crate) fn read_vote_reply(reply: &peer::VoteReply) -> Result<VoteResponse<Config>, Nonsense> {
    let vote = vote(reply.vote.as_ref())?;
    Ok(VoteResponse::new(
        vote,
        id(reply.last.as_ref()),
        reply.granted,
    ))
}

pub(crate) fn transfer(request: &TransferLeaderRequest<Config>) -> peer::Transfer {
    peer::Transfer {
        from: Some(from_vote(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().copied().map(from_log_id),
    }
}

pub(crate) fn read_transfer(
    transfer: &peer::Transfer,
) -> Result<TransferLeaderRequest<Config>, Nonsense> {
    let from = vote(transfer.from.as_ref())?;
    Ok(TransferLeaderRequest::new(
        from,
        transfer.to,
        id(transfer.last.as_ref()),
    ))
}

pub(crate) fn transfer_reply(response: &TransferLeaderResponse<Config>) -> peer::TransferReply {
    use peer::transfer_reply::Outcome;
    let outcome = match response {
        Ok(()) => Outcome::Accepted(true),
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            Outcome::VoteChanged(from_vote(actual))
        }
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            Outcome::NotFlushed(peer::Position {
                id: actual.map(from_log_id),
            })
        }
    };
    peer::TransferReply {
        outcome: Some(outcome),
    }
}

pub(crate) fn read_transfer_reply(
    request: &TransferLeaderRequest<Config>,
    reply: &peer::TransferReply,
) -> Result<TransferLeaderResponse<Config>, Nonsense> {
    use peer::transfer_reply::Outcome;
    Ok(match &reply.outcome {
        Some(Outcome::Accepted(_)) => Ok(()),
        Some(Outcome::VoteChanged(vote)) => Err(TransferLeaderError::VoteChanged {
            expected: *request.from_leader(),
            actual: to_vote(vote),
        }),
        Some(Outcome::NotFlushed(position)) => Err(TransferLeaderError::LogNotFlushed {
            expected: request.last_log_id().copied(),
            actual: id(position.id.as_ref()),
        }),
        None => return Err("a transfer's reply without an outcome".to_owned()),
    })
}

pub(crate) fn reason(reason: Reason) -> peer::Reason {
    match reason {
        Reason::NoLeader => peer::Reason::NoLeader,
        Reason::Timeout => peer::Reason::Timeout,
        Reason::LeaderChanged => peer::Reason::LeaderChanged,
        Reason::StreamBroken => peer::Reason::StreamBroken,
        Reason::Stopping => peer::Reason::Stopping,
    }
}

/// A reason that this version does not know counts as a broken stream.
pub(crate) fn read_reason(number: i32) -> Reason {
    match peer::Reason::try_from(number) {
        Ok(peer::Reason::NoLeader) => Reason::NoLeader,
        Ok(peer::Reason::Timeout) => Reason::Timeout,
        Ok(peer::Reason::LeaderChanged) => Reason::LeaderChanged,
        Ok(peer::Reason::Stopping) => Reason::Stopping,
        Ok(peer::Reason::StreamBroken | peer::Reason::Unspecified) | Err(_) => Reason::StreamBroken,
    }
}

pub(crate) fn outcome(outcome: Outcome) -> peer::Outcome {
    use peer::outcome::Outcome;
    let outcome = match outcome {
        Ok(Applied {
            index,
            term,
            result,
        }) => Outcome::Applied(peer::Applied {
            index,
            term,
            result: Some(result),
        }),
        Err(ProposeError::NotProposed(why)) => Outcome::NotProposed(reason(why).into()),
        Err(ProposeError::Unknown(why)) => Outcome::Unknown(reason(why).into()),
    };
    peer::Outcome {
        outcome: Some(outcome),
    }
}

pub(crate) fn read_outcome(outcome: peer::Outcome) -> Outcome {
    use peer::outcome::Outcome;
    match outcome.outcome {
        Some(Outcome::Applied(applied)) => Ok(Applied {
            index: applied.index,
            term: applied.term,
            result: applied.result.unwrap_or(CommandResult { outcome: None }),
        }),
        Some(Outcome::NotProposed(why)) => Err(ProposeError::NotProposed(read_reason(why))),
        Some(Outcome::Unknown(why)) => Err(ProposeError::Unknown(read_reason(why))),
        None => Err(ProposeError::Unknown(Reason::StreamBroken)),
    }
}

pub(crate) fn change_error(error: &MemberError) -> peer::ChangeError {
    use peer::change_error::Kind;
    let (kind, member, why) = match error {
        MemberError::NotLeader(leader) => (Kind::NotLeader, leader.map_or(0, |id| id.0), None),
        MemberError::NotFound(id) => (Kind::NotFound, id.0, None),
        MemberError::Exists(id) => (Kind::Exists, id.0, None),
        MemberError::NotLearner(id) => (Kind::NotLearner, id.0, None),
        MemberError::NotVoter(id) => (Kind::NotVoter, id.0, None),
        MemberError::LastVoter => (Kind::LastVoter, 0, None),
        MemberError::NotReady(id) => (Kind::NotReady, id.0, None),
        MemberError::Outdated => (Kind::Outdated, 0, None),
        MemberError::NotChanged(why) => (Kind::NotChanged, 0, Some(*why)),
        MemberError::Unknown(why) => (Kind::Unknown, 0, Some(*why)),
    };
    let why = why.map_or(peer::Reason::Unspecified, reason);
    peer::ChangeError {
        kind: kind.into(),
        member,
        reason: why.into(),
    }
}

pub(crate) fn read_change_error(error: &peer::ChangeError) -> MemberError {
    use peer::change_error::Kind;
    let member = MemberId(error.member);
    let why = read_reason(error.reason);
    match Kind::try_from(error.kind) {
        Ok(Kind::NotLeader) => MemberError::NotLeader((error.member != 0).then_some(member)),
        Ok(Kind::NotFound) => MemberError::NotFound(member),
        Ok(Kind::Exists) => MemberError::Exists(member),
        Ok(Kind::NotLearner) => MemberError::NotLearner(member),
        Ok(Kind::NotVoter) => MemberError::NotVoter(member),
        Ok(Kind::LastVoter) => MemberError::LastVoter,
        Ok(Kind::NotReady) => MemberError::NotReady(member),
        Ok(Kind::Outdated) => MemberError::Outdated,
        Ok(Kind::NotChanged) => MemberError::NotChanged(why),
        Ok(Kind::Unknown | Kind::Unspecified) | Err(_) => MemberError::Unknown(why),
    }
}

/// Reads one whole message.
pub(crate) fn decode<M: prost::Message + Default>(bytes: Bytes) -> Result<M, Nonsense> {
    M::decode(bytes).map_err(|e| format!("not a peer's message: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_and_errors_survive_the_way() {
        let reasons = [
            Reason::NoLeader,
            Reason::Timeout,
            Reason::LeaderChanged,
            Reason::StreamBroken,
            Reason::Stopping,
        ];
        for why in reasons {
            assert_eq!(read_reason(reason(why).into()), why);
            for sent in [ProposeError::NotProposed(why), ProposeError::Unknown(why)] {
                assert_eq!(read_outcome(outcome(Err(sent))), Err(sent));
            }
            for sent in [MemberError::NotChanged(why), MemberError::Unknown(why)] {
                assert_eq!(read_change_error(&change_error(&sent)), sent);
            }
        }
        let id = MemberId(9);
        let errors = [
            MemberError::NotLeader(None),
            MemberError::NotLeader(Some(id)),
            MemberError::NotFound(id),
            MemberError::Exists(id),
            MemberError::NotLearner(id),
            MemberError::NotVoter(id),
            MemberError::LastVoter,
            MemberError::NotReady(id),
            MemberError::Outdated,
        ];
        for sent in errors {
            assert_eq!(read_change_error(&change_error(&sent)), sent);
        }
    }

    #[test]
    fn entries_out_of_place_are_refused() {
        use crate::types::Payload;
        use openraft::entry::{RaftEntry, RaftPayload};
        let entry = |index| Entry::new(LogId::new_term_index(1, index), Payload::blank());
        let rpc = |indexes: &[u64]| AppendEntriesRequest::<Config> {
            vote: Vote::new_committed(1, 1),
            prev_log_id: Some(LogId::new_term_index(1, 4)),
            entries: indexes.iter().map(|i| entry(*i)).collect(),
            leader_commit: None,
        };
        assert!(read_append(append(rpc(&[5, 6]), 1)).is_ok());
        assert!(read_append(append(rpc(&[6]), 1)).is_err());
        assert!(read_append(append(rpc(&[5, 7]), 1)).is_err());
    }
}
