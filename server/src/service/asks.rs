//! Room `server/service`: what the services of other members ask of this one's. Members trust each other: the
//! end caller was judged where it asked.

use super::Services;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
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
        Ask::HeardWithinMs(_) => failed(Error::UnknownMethod),
    }
}

fn failed(error: Error) -> Reply {
    Reply::Failure(error.into())
}
