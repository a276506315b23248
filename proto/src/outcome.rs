//! Room proto: ergonomics of the replicated command: requests into bodies, responses into results and
//! back, client errors into [`Failure`] and back.

use crate::code::Code;
use crate::command::command::Body;
use crate::command::command_result::Outcome;
use crate::command::{
    ClusterVersionSet, CommandResult, Done, Failure, LeaseExpire, MemberBirth, MemberPublish,
};
use crate::error::Error;
use crate::etcdserverpb as pb;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            name: error.name().to_owned(),
            code: error.code().number(),
            message: error.message(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::from_name(&failure.name)
            .unwrap_or_else(|| Error::from_status(Code::from_number(failure.code), failure.message))
    }
}

impl<T: Into<Outcome>> From<Result<T, Error>> for CommandResult {
    fn from(result: Result<T, Error>) -> CommandResult {
        let outcome = match result {
            Ok(response) => response.into(),
            Err(error) => Outcome::Error(error.into()),
        };
        CommandResult {
            outcome: Some(outcome),
        }
    }
}

impl CommandResult {
    /// The answer, or the client error that apply decided on.
    ///
    /// # Errors
    /// The failure itself; `Unknown` when a newer peer sent an outcome this version cannot read.
    pub fn into_result(self) -> Result<Outcome, Error> {
        match self.outcome {
            Some(Outcome::Error(failure)) => Err(failure.into()),
            Some(outcome) => Ok(outcome),
            None => Err(Error::other(
                Code::Unknown,
                "tenon: the result is of a newer version",
            )),
        }
    }
}

macro_rules! bodies {
    ($($variant:ident($request:ty);)*) => {
        $(impl From<$request> for Body {
            fn from(request: $request) -> Body {
                Body::$variant(request)
            }
        })*
    };
}

bodies! {
    Put(pb::PutRequest);
    DeleteRange(pb::DeleteRangeRequest);
    Txn(pb::TxnRequest);
    Compact(pb::CompactionRequest);
    LeaseGrant(pb::LeaseGrantRequest);
    LeaseRevoke(pb::LeaseRevokeRequest);
    LeaseExpire(LeaseExpire);
    LeaseCheckpoint(pb::LeaseCheckpointRequest);
    Alarm(pb::AlarmRequest);
    Publish(MemberPublish);
    MemberUpdate(pb::MemberUpdateRequest);
    ClusterVersion(ClusterVersionSet);
    MemberBirth(MemberBirth);
}

macro_rules! outcomes {
    ($($variant:ident($response:ty);)*) => {
        $(
            impl From<$response> for Outcome {
                fn from(response: $response) -> Outcome {
                    Outcome::$variant(response)
                }
            }

            /// The typed answer; the client error that apply decided on; `Internal` when the outcome
            /// belongs to another kind of command.
            impl TryFrom<CommandResult> for $response {
                type Error = Error;

                fn try_from(result: CommandResult) -> Result<$response, Error> {
                    match result.into_result()? {
                        Outcome::$variant(response) => Ok(response),
                        _ => Err(Error::other(
                            Code::Internal,
                            concat!("tenon: the result is not of kind ", stringify!($variant)),
                        )),
                    }
                }
            }
        )*
    };
}

outcomes! {
    Put(pb::PutResponse);
    DeleteRange(pb::DeleteRangeResponse);
    Txn(pb::TxnResponse);
    Compact(pb::CompactionResponse);
    LeaseGrant(pb::LeaseGrantResponse);
    LeaseRevoke(pb::LeaseRevokeResponse);
    LeaseCheckpoint(pb::LeaseCheckpointResponse);
    Alarm(pb::AlarmResponse);
    Done(Done);
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn a_result_crosses_the_wire_as_what_it_was() {
        let response = pb::DeleteRangeResponse {
            deleted: 3,
            ..Default::default()
        };
        let sent = CommandResult::from(Ok::<_, Error>(response.clone()));
        let got = CommandResult::decode(sent.encode_to_vec().as_slice()).expect("own bytes");
        assert_eq!(pb::DeleteRangeResponse::try_from(got.clone()), Ok(response));
        let wrong = pb::PutResponse::try_from(got).expect_err("another kind");
        assert_eq!(wrong.code(), Code::Internal);

        let sent = CommandResult::from(Err::<Done, _>(Error::LeaseNotFound));
        let got = CommandResult::decode(sent.encode_to_vec().as_slice()).expect("own bytes");
        assert_eq!(Done::try_from(got), Err(Error::LeaseNotFound));
    }

    #[test]
    fn an_outcome_of_a_newer_version_is_an_error_not_a_panic() {
        // Field 99, empty message: what this version does not know decodes as no outcome at all.
        let got = CommandResult::decode([0x9a_u8, 0x06, 0x00].as_slice()).expect("unknown field");
        assert_eq!(
            got.into_result().expect_err("unknown outcome").code(),
            Code::Unknown
        );
    }
}
