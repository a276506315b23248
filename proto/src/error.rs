//! Room proto: THE table of client errors. Every error a client can see stands here once, with its
//! gRPC code and its exact text; server and client both read it, in both directions.
//!
//! Clients match the *text* (etcd's Go client knows nothing else), so texts are part of the interface
//! and unique. Environment errors (disk, network) and bugs are not here: they stop the member.
//! Names no gRPC library; `status.rs` turns an [`Error`] into a `tonic::Status` and back.

use crate::code::Code;
use std::fmt;

/// What the table says about one error.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name, as etcd's client libraries call it (without their prefix); the variant's name.
    pub name: &'static str,
    /// Code that client libraries report after mapping the text.
    pub declared: Code,
    /// Code on the wire. Differs from `declared` for two errors, as in etcd.
    pub wire: Code,
    /// Exact text on the wire.
    pub text: &'static str,
    /// Whether etcd's Go client maps the text to its named error; otherwise it stays a plain status.
    pub mapped: bool,
}

macro_rules! wire {
    ($declared:ident) => {
        Code::$declared
    };
    ($declared:ident $wire:ident) => {
        Code::$wire
    };
}

macro_rules! mapped {
    (mapped) => {
        true
    };
    (plain) => {
        false
    };
}

/// One line per error: `Name: DeclaredCode [as WireCode], "text", mapped|plain;`.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident: $code:ident $(as $wire:ident)?, $text:literal, $map:ident;)*) => {
        /// A client error: typed, deterministic, returned to the caller.
        ///
        /// Two errors are equal when they are the same row, or carry the same code and text.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Error {
            $($(#[$doc])* $name,)*
            /// A message above the server's receive limit, rejected by the gRPC layer.
            MessageTooLarge {
                /// Bytes received.
                size: u64,
                /// Limit in bytes (request limit + 512 KiB).
                max: u64,
            },
            /// Anything the table does not know.
            Other {
                /// Code on the wire.
                code: Code,
                /// Text on the wire.
                message: String,
            },
        }

        impl Error {
            /// Every row of the table; the variants with fields are not rows.
            pub const TABLE: &'static [Error] = &[$(Error::$name),*];

            /// The table's row, or `None` for the variants with fields.
            pub fn row(&self) -> Option<&'static Row> {
                match self {
                    $(Error::$name => Some(&Row {
                        name: stringify!($name),
                        declared: Code::$code,
                        wire: wire!($code $($wire)?),
                        text: $text,
                        mapped: mapped!($map),
                    }),)*
                    Error::MessageTooLarge { .. } | Error::Other { .. } => None,
                }
            }

            /// The error of that name, if the table has it.
            pub fn from_name(name: &str) -> Option<Error> {
                match name {
                    $(stringify!($name) => Some(Error::$name),)*
                    _ => None,
                }
            }

            fn from_text(text: &str) -> Option<Error> {
                match text {
                    $($text => Some(Error::$name),)*
                    _ => None,
                }
            }
        }
    };
}

table! {
    /// Range/Put/DeleteRange/compare with zero-length key.
    EmptyKey: InvalidArgument, "etcdserver: key is not provided", mapped;
    /// Put with ignore_value/ignore_lease on an absent key; also a Txn op with no request set.
    KeyNotFound: InvalidArgument, "etcdserver: key not found", mapped;
    /// Put has ignore_value and a non-empty value.
    ValueProvided: InvalidArgument, "etcdserver: value is provided", mapped;
    /// Put has ignore_lease and a non-zero lease.
    LeaseProvided: InvalidArgument, "etcdserver: lease is provided", mapped;
    /// Compares, success or failure list longer than max-txn-ops (nested lists share the budget).
    TooManyOps: InvalidArgument, "etcdserver: too many operations in txn request", mapped;
    /// Same key put twice, or put inside a deleted interval, in one branch (nested included).
    DuplicateKey: InvalidArgument, "etcdserver: duplicate key given in txn request", mapped;
    /// `client-api-version` metadata is not valid UTF-8.
    InvalidClientAPIVersion: InvalidArgument, "etcdserver: invalid client api version", plain;
    /// Sort_order or sort_target number unknown.
    InvalidSortOption: InvalidArgument, "etcdserver: invalid sort option", mapped;
    /// Revision below the compaction revision (Range, Txn range, HashKV); Compact at or below it.
    Compacted: OutOfRange, "etcdserver: mvcc: required revision has been compacted", mapped;
    /// Revision above the current one (Range, Txn range, Compact, HashKV).
    FutureRev: OutOfRange, "etcdserver: mvcc: required revision is a future revision", mapped;
    /// Put, Txn with puts, LeaseGrant over quota or while NOSPACE alarm is active.
    NoSpace: ResourceExhausted, "etcdserver: mvcc: database space exceeded", mapped;
    /// Put or Revoke with unknown lease (KeepAlive and TimeToLive answer TTL 0 / -1 instead).
    LeaseNotFound: NotFound, "etcdserver: requested lease not found", mapped;
    /// Grant with an ID in use.
    LeaseExist: FailedPrecondition, "etcdserver: lease already exists", mapped;
    /// Grant with TTL > 9,000,000,000.
    LeaseTTLTooLarge: OutOfRange, "etcdserver: too large lease TTL", mapped;
    /// Watch stream ended because its context was cancelled.
    WatchCanceled: Canceled, "etcdserver: watch canceled", plain;
    /// MemberAdd computed an ID that is already a member (same URLs within the same second).
    MemberExist: FailedPrecondition, "etcdserver: member ID already exist", mapped;
    /// MemberAdd/MemberUpdate with a peer URL of another member.
    PeerURLExist: FailedPrecondition, "etcdserver: Peer URLs already exists", mapped;
    /// Strict reconfig check: too few started voters for add/remove/promote.
    MemberNotEnoughStarted: FailedPrecondition as Unknown,
        "etcdserver: re-configuration failed due to not enough started members", mapped;
    /// MemberAdd with empty or unparsable peer URLs.
    MemberBadURLs: InvalidArgument, "etcdserver: given member URLs are invalid", mapped;
    /// Unknown or already removed member ID.
    MemberNotFound: NotFound, "etcdserver: member not found", mapped;
    /// Promote of a voting member.
    MemberNotLearner: FailedPrecondition, "etcdserver: can only promote a learner member", mapped;
    /// Promote while learner has < 90 % of the leader's log.
    LearnerNotReady: FailedPrecondition,
        "etcdserver: can only promote a learner member which is in sync with leader", mapped;
    /// Learner count would exceed max-learners.
    TooManyLearners: FailedPrecondition, "etcdserver: too many learner members in cluster", mapped;
    /// Kept for clients; raised on peer traffic, not by client RPCs.
    ClusterIDMismatch: FailedPrecondition, "etcdserver: cluster ID mismatch", mapped;
    /// Encoded request larger than max-request-bytes.
    RequestTooLarge: InvalidArgument, "etcdserver: request is too large", mapped;
    /// > 5000 committed-but-unapplied entries.
    RequestTooManyRequests: ResourceExhausted as Unknown, "etcdserver: too many requests", mapped;
    /// AuthEnable without user root.
    RootUserNotExist: FailedPrecondition, "etcdserver: root user does not exist", mapped;
    /// AuthEnable while user root lacks role root.
    RootRoleNotExist: FailedPrecondition, "etcdserver: root user does not have root role", mapped;
    /// UserAdd duplicate.
    UserAlreadyExist: FailedPrecondition, "etcdserver: user name already exists", mapped;
    /// UserAdd with empty name; also every call without token while auth is on.
    UserEmpty: InvalidArgument, "etcdserver: user name is empty", mapped;
    /// User unknown (UserGet/Delete/ChangePassword/Grant/Revoke; admin check of a deleted user).
    UserNotFound: FailedPrecondition, "etcdserver: user name not found", mapped;
    /// RoleAdd duplicate.
    RoleAlreadyExist: FailedPrecondition, "etcdserver: role name already exists", mapped;
    /// Role unknown.
    RoleNotFound: FailedPrecondition, "etcdserver: role name not found", mapped;
    /// RoleAdd with empty name.
    RoleEmpty: InvalidArgument, "etcdserver: role name is empty", mapped;
    /// Authenticate: wrong user or password.
    AuthFailed: InvalidArgument,
        "etcdserver: authentication failed, invalid user ID or password", mapped;
    /// RoleGrantPermission without perm.
    PermissionNotGiven: InvalidArgument, "etcdserver: permission not given", plain;
    /// Caller lacks the needed key permission or the root role.
    PermissionDenied: PermissionDenied, "etcdserver: permission denied", mapped;
    /// UserRevokeRole of a role the user does not hold.
    RoleNotGranted: FailedPrecondition, "etcdserver: role is not granted to the user", mapped;
    /// RoleRevokePermission of an interval not granted (must match key and range_end exactly).
    PermissionNotGranted: FailedPrecondition,
        "etcdserver: permission is not granted to the role", mapped;
    /// Authenticate while auth is off.
    AuthNotEnabled: FailedPrecondition, "etcdserver: authentication is not enabled", mapped;
    /// Token unknown, expired, malformed, or signature wrong.
    InvalidAuthToken: Unauthenticated, "etcdserver: invalid auth token", mapped;
    /// Deleting root user/role or revoking root from root while auth is on; grant with empty key
    /// or end ≤ key.
    InvalidAuthMgmt: InvalidArgument, "etcdserver: invalid auth management", mapped;
    /// Auth store changed since the token/request revision; client should re-authenticate and
    /// retry.
    AuthOldRevision: InvalidArgument, "etcdserver: revision of auth store is old", mapped;
    /// Metadata `hasleader: true` sent and member knows no leader; leader not found in time for
    /// forwarded lease calls.
    NoLeader: Unavailable, "etcdserver: no leader", mapped;
    /// MoveLeader sent to a non-leader.
    NotLeader: FailedPrecondition, "etcdserver: not leader", mapped;
    /// Leader changed during a linearizable read or lease query.
    LeaderChanged: Unavailable, "etcdserver: leader changed", mapped;
    /// V3 API not yet enabled (cluster version undecided).
    NotCapable: FailedPrecondition, "etcdserver: not capable", mapped;
    /// Server shutting down.
    Stopped: Unavailable, "etcdserver: server stopped", mapped;
    /// Proposal or read index not finished within 5 s + 2×election timeout (7 s by default).
    Timeout: Unavailable, "etcdserver: request timed out", mapped;
    /// Same, and the old leader was lost about then.
    TimeoutDueToLeaderFail: Unavailable,
        "etcdserver: request timed out, possibly due to previous leader failure", mapped;
    /// Same, and quorum/leader connection was lost.
    TimeoutDueToConnectionLost: Unavailable,
        "etcdserver: request timed out, possibly due to connection lost", mapped;
    /// Lease renew/TTL: local apply lag > 1 s.
    TimeoutWaitAppliedIndex: Unavailable,
        "etcdserver: request timed out, waiting for the applied index took too long", plain;
    /// Strict reconfig check: local member not connected to quorum (add) or to enough voters
    /// (remove).
    Unhealthy: Unavailable, "etcdserver: unhealthy cluster", mapped;
    /// Write-like request while CORRUPT alarm is active.
    Corrupt: DataLoss, "etcdserver: corrupt cluster", mapped;
    /// Any unary call on a learner except Status and serializable Range; any stream except
    /// Snapshot.
    NotSupportedForLearner: FailedPrecondition, "etcdserver: rpc not supported for learner", mapped;
    /// MoveLeader target unknown or a learner.
    BadLeaderTransferee: FailedPrecondition, "etcdserver: bad leader transferee", mapped;
    /// Downgrade version empty or not `X.Y[.Z]`.
    WrongDowngradeVersionFormat: InvalidArgument,
        "etcdserver: wrong downgrade target version format", mapped;
    /// Target is not exactly one minor below the cluster version.
    InvalidDowngradeTargetVersion: InvalidArgument,
        "etcdserver: invalid downgrade target version", mapped;
    /// Cluster version undecided.
    ClusterVersionUnavailable: FailedPrecondition,
        "etcdserver: cluster version not found during downgrade", mapped;
    /// A downgrade is already enabled.
    DowngradeInProcess: FailedPrecondition,
        "etcdserver: cluster has a downgrade job in progress", mapped;
    /// Internal only: cancel without a job still answers OK.
    NoInflightDowngrade: FailedPrecondition, "etcdserver: no inflight downgrade job", mapped;
    /// Server-side cancellation while a proposal waited.
    Canceled: Canceled, "etcdserver: request canceled", plain;
    /// Server-side deadline.
    DeadlineExceeded: DeadlineExceeded, "etcdserver: context deadline exceeded", plain;

    // Texts outside etcd's own table that a client can meet; all but the last three arrive as Unknown.
    /// Authenticate for a user that was added without a password.
    NoPasswordUser: Unknown,
        "auth: authentication failed, password was given for no password user", plain;
    /// Authenticate while JWT tokens are configured with only a public key.
    VerifyOnlyKey: Unknown, "auth: token signing attempted with verify-only key", plain;
    /// A write that waited for a leader until its time was up; it is in no log.
    NoLeaderInTime: DeadlineExceeded, "context deadline exceeded", plain;
    /// Keep-alive at a leader that lost its leadership.
    NotPrimaryLessor: Unknown, "not a primary lessor", plain;
    /// Downgrade with an action number nobody knows.
    UnknownMethod: Unknown, "etcdserver: unknown method", plain;
    /// MoveLeader: the new leader did not appear in time.
    TimeoutLeaderTransfer: Unknown,
        "etcdserver: request timed out, leader transfer took too long", plain;
    /// Election.Leader and Proclaim while nobody leads.
    ElectionNoLeader: Unknown, "election: no leader", plain;
    /// Proclaim after the leadership was lost.
    ElectionNotLeader: Unknown, "election: not leader", plain;
    /// Proclaim and Resign without the `leader` field.
    ElectionLeaderMissing: Unknown, "\"leader\" field must be provided", plain;
    /// Lock whose lease ended while it waited.
    SessionExpired: Unknown, "mutex: session is expired", plain;
    /// Cancel reason of a watch created with an id in use on its stream.
    WatchIdDuplicate: Unknown, "mvcc: duplicate watch ID provided on the WatchStream", plain;
    /// Cancel reason of a watch whose end is not above its key.
    WatchRangeEmpty: Unknown, "mvcc: watcher range is empty", plain;
    /// RangeStream with a sort option, at etcd; Tenon serves it.
    RangeStreamSort: Unimplemented, "RangeStream does not support custom sort orders", plain;
    /// RangeStream with a revision filter, at etcd; Tenon serves it.
    RangeStreamFilter: Unimplemented, "RangeStream does not support revision filters", plain;
    /// RangeStream at a server before 3.7.
    RangeStreamUnknown: Unimplemented,
        "unknown method RangeStream for service etcdserverpb.KV", plain;
}

const TOO_LARGE_PREFIX: &str = "grpc: received message larger than max (";

impl Error {
    /// An error outside the table. Prefer a row: clients cannot match what they do not know.
    pub fn other(code: Code, message: impl Into<String>) -> Error {
        Error::Other {
            code,
            message: message.into(),
        }
    }

    /// The error a status on the wire stands for. Only the text decides; the code is kept for texts
    /// outside the table, because old servers and etcd's own quirks send known texts with other codes.
    pub fn from_status(code: Code, message: impl Into<String>) -> Error {
        let message = message.into();
        Error::from_text(&message)
            .or_else(|| Error::parse_too_large(&message))
            .unwrap_or(Error::Other { code, message })
    }

    /// Code on the wire.
    pub fn code(&self) -> Code {
        match self {
            Error::MessageTooLarge { .. } => Code::ResourceExhausted,
            Error::Other { code, .. } => *code,
            _ => self.row().map_or(Code::Unknown, |row| row.wire),
        }
    }

    /// Code that client libraries report for this error once they mapped its text.
    pub fn declared_code(&self) -> Code {
        self.row().map_or_else(|| self.code(), |row| row.declared)
    }

    /// Text on the wire.
    pub fn message(&self) -> String {
        self.to_string()
    }

    /// Name in the table; empty outside of it.
    pub fn name(&self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }

    /// Whether etcd's Go client maps the text to its named error.
    pub fn is_mapped(&self) -> bool {
        self.row().is_some_and(|row| row.mapped)
    }

    /// The text a watch response carries as its cancel reason: authentication errors are written as
    /// a printed status, the others plainly, as etcd does.
    pub fn cancel_reason(&self) -> String {
        match self {
            Error::PermissionDenied
            | Error::UserEmpty
            | Error::InvalidAuthToken
            | Error::AuthOldRevision => {
                format!("rpc error: code = {} desc = {self}", self.code())
            }
            _ => self.message(),
        }
    }

    fn parse_too_large(text: &str) -> Option<Error> {
        let numbers = text.strip_prefix(TOO_LARGE_PREFIX)?.strip_suffix(')')?;
        let (size, max) = numbers.split_once(" vs. ")?;
        Some(Error::MessageTooLarge {
            size: size.parse().ok()?,
            max: max.parse().ok()?,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::MessageTooLarge { size, max } => {
                write!(f, "{TOO_LARGE_PREFIX}{size} vs. {max})")
            }
            Error::Other { message, .. } => f.write_str(message),
            _ => f.write_str(self.row().map_or("", |row| row.text)),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
