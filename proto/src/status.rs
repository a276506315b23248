//! Room proto: the error table to and from `tonic::Status`. The only file here that names tonic by
//! hand.

use crate::code::Code;
use crate::error::Error;
use tonic::Status;

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(error.code().into(), error.message())
    }
}

impl From<&Status> for Error {
    fn from(status: &Status) -> Error {
        Error::from_status(status.code().into(), status.message())
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::from(&status)
    }
}

impl From<Code> for tonic::Code {
    fn from(code: Code) -> tonic::Code {
        tonic::Code::from_i32(i32::from(code as u8))
    }
}

impl From<tonic::Code> for Code {
    fn from(code: tonic::Code) -> Code {
        Code::from_number(u32::try_from(i32::from(code)).unwrap_or(Code::Unknown.number()))
    }
}
