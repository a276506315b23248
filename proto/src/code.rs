//! Room proto: the seventeen gRPC status codes as an enum of our own, so that the error table names no
//! gRPC library.

use std::fmt;

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// No error.
    Ok = 0,
    /// Cancelled, typically by the caller.
    Canceled = 1,
    /// Errors that say nothing better; etcd uses it for errors outside its table.
    Unknown = 2,
    /// The request is wrong whatever the state.
    InvalidArgument = 3,
    /// The caller's deadline passed; the outcome is unknown.
    DeadlineExceeded = 4,
    /// What was asked for does not exist.
    NotFound = 5,
    /// What was to be created exists.
    AlreadyExists = 6,
    /// The caller is known and may not.
    PermissionDenied = 7,
    /// A quota or limit is reached.
    ResourceExhausted = 8,
    /// The state does not allow it.
    FailedPrecondition = 9,
    /// Aborted, typically by a concurrent change.
    Aborted = 10,
    /// A position outside the valid range.
    OutOfRange = 11,
    /// Not offered by this server.
    Unimplemented = 12,
    /// An invariant of the server is broken.
    Internal = 13,
    /// Not now; trying again may help.
    Unavailable = 14,
    /// Data is lost or corrupt.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Code {
    /// Every code, by number.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Canceled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The number on the wire.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The code of that number; a number above 16 is `Unknown`, as gRPC asks.
    pub fn from_number(number: u32) -> Code {
        usize::try_from(number)
            .ok()
            .and_then(|n| Code::ALL.get(n).copied())
            .unwrap_or(Code::Unknown)
    }
}

/// The name as gRPC's Go library prints it (`InvalidArgument`, `OK`).
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Ok => f.write_str("OK"),
            code => fmt::Debug::fmt(code, f),
        }
    }
}
