//! Room `server/service`: what the services of other members ask of this one's. Members trust each other: the
//! end caller was judged where it asked.

use super::context::reason_error;
use super::{Context, Services};
use std::time::Duration;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::MemberId;
use tenon_proto::peer::{ask::Ask, ask_reply::Reply};

/// Answers one question.
pub async fn answer(services: &Services, ask: Ask) -> Reply {
    match ask {
        Ask::Renew(renew) => services.lease.renew_for_peer(&renew.ids).await,
        Ask::TimeToLive(request) => match services.lease.time_to_live_here(request).await {
            Ok(response) => Reply::TimeToLive(response),
            Err(error) => failed(error),
        },
        Ask::HashKv(request) => {
            let caller = Caller::default();
            match services.maintenance.hash_kv(&caller, request).await {
                Ok(response) => Reply::HashKv(response),
                Err(error) => failed(error),
            }
        }
        // Raft answers these itself.
        Ask::HeardWithinMs(_) | Ask::Removed(_) => failed(Error::UnknownMethod),
    }
}

/// The hash of another member's keys at a revision.
pub async fn other_hash(
    context: &Context,
    member: MemberId,
    revision: i64,
    within: Duration,
) -> Result<pb::HashKvResponse, Error> {
    let ask = Ask::HashKv(pb::HashKvRequest { revision });
    match context.raft().ask(member, ask, within).await {
        Ok(Reply::HashKv(response)) => Ok(response),
        Ok(Reply::Failure(failure)) => Err(failure.into()),
        Ok(_) => Err(Error::UnknownMethod),
        Err(reason) => Err(reason_error(reason)),
    }
}

fn failed(error: Error) -> Reply {
    Reply::Failure(error.into())
}
