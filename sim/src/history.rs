//! Room `sim`: what clients asked and were told, in the order in which it happened. Checkers read it after the
//! run; nothing here judges.
//!
//! An answer is a reply, a refusal that is known to have had no effect, or unknown: the call may have been
//! carried out, now or later, or never.

use parking_lot::Mutex;
use std::sync::Arc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;

/// Number of a call; its place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub usize);

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Request {
    /// Writes a key; the value begins with [`tag`] of the call.
    Put(pb::PutRequest),
    /// Deletes keys.
    Delete(pb::DeleteRangeRequest),
    /// Reads keys.
    Range(pb::RangeRequest),
    /// A transaction; values it puts begin with [`tag`].
    Txn(pb::TxnRequest),
    /// Gives up history.
    Compact(i64),
    /// Grants a lease: id and TTL in seconds.
    Grant(i64, i64),
    /// Revokes a lease.
    Revoke(i64),
    /// Renews a lease.
    KeepAlive(i64),
    /// The hash of the history up to a revision.
    HashKv(i64),
}

/// What a client is told.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To [`Request::Put`].
    Put(pb::PutResponse),
    /// To [`Request::Delete`].
    Delete(pb::DeleteRangeResponse),
    /// To [`Request::Range`].
    Range(pb::RangeResponse),
    /// To [`Request::Txn`].
    Txn(pb::TxnResponse),
    /// To [`Request::Compact`].
    Compact(pb::CompactionResponse),
    /// To [`Request::Grant`].
    Grant(pb::LeaseGrantResponse),
    /// To [`Request::Revoke`].
    Revoke(pb::LeaseRevokeResponse),
    /// To [`Request::KeepAlive`].
    KeepAlive(pb::LeaseKeepAliveResponse),
    /// To [`Request::HashKv`].
    HashKv(pb::HashKvResponse),
}

impl Reply {
    /// The revision in the answer's header.
    ///
    /// # Panics
    /// When the header is missing, which no answer may do.
    pub fn revision(&self) -> i64 {
        self.header().revision
    }

    /// The answer's header.
    ///
    /// # Panics
    /// When it is missing, which no answer may do.
    pub fn header(&self) -> &pb::ResponseHeader {
        let header = match self {
            Reply::Put(r) => &r.header,
            Reply::Delete(r) => &r.header,
            Reply::Range(r) => &r.header,
            Reply::Txn(r) => &r.header,
            Reply::Compact(r) => &r.header,
            Reply::Grant(r) => &r.header,
            Reply::Revoke(r) => &r.header,
            Reply::KeepAlive(r) => &r.header,
            Reply::HashKv(r) => &r.header,
        };
        header.as_ref().expect("every answer has a header")
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was carried out.
    Reply(Reply),
    /// It was not, and never will be.
    Refused(Error),
    /// Nobody can tell.
    Unknown,
}

impl Outcome {
    /// The outcome of a service's result. A write's error that may hide an effect is unknown.
    pub fn of(result: Result<Reply, Error>) -> Outcome {
        match result {
            Ok(reply) => Outcome::Reply(reply),
            Err(error) if is_certain(&error) => Outcome::Refused(error),
            Err(_) => Outcome::Unknown,
        }
    }
}

/// Whether an error says that nothing was and will be done: only those that applying itself answers.
pub(crate) fn is_certain(error: &Error) -> bool {
    matches!(
        error,
        Error::Compacted
            | Error::FutureRev
            | Error::KeyNotFound
            | Error::LeaseNotFound
            | Error::LeaseExist
            | Error::DuplicateKey
            | Error::NoSpace
            | Error::NoLeader
            | Error::NotSupportedForLearner
            | Error::RequestTooLarge
            | Error::RequestTooManyRequests
            | Error::MemberExist
            | Error::PeerURLExist
            | Error::MemberNotFound
            | Error::MemberNotLearner
            | Error::LearnerNotReady
            | Error::TooManyLearners
    )
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which client.
    pub client: u64,
    /// What it asked.
    pub request: Request,
    /// When it asked, in nanoseconds of the world.
    pub invoked: u64,
    /// The highest revision that any client had seen then.
    pub floor: i64,
    /// When it learned the outcome; `None` while the call is under way.
    pub returned: Option<u64>,
    /// The outcome; unknown until learned.
    pub outcome: Outcome,
}

impl Call {
    /// The reply, if it got one.
    pub fn reply(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Reply(reply) => Some(reply),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    calls: Vec<Call>,
    seen: i64,
    compaction: i64,
}

/// The history of a run, shared by its clients.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Inner>>);

impl History {
    /// Notes a call; `request` is made from its number.
    pub fn begin(
        &self,
        client: u64,
        now: u64,
        request: impl FnOnce(CallId) -> Request,
    ) -> (CallId, Request) {
        let mut inner = self.0.lock();
        let id = CallId(inner.calls.len());
        let request = request(id);
        if let Request::Compact(revision) = &request {
            inner.compaction = inner.compaction.max(*revision);
        }
        let floor = inner.seen;
        inner.calls.push(Call {
            client,
            request: request.clone(),
            invoked: now,
            floor,
            returned: None,
            outcome: Outcome::Unknown,
        });
        (id, request)
    }

    /// Notes how it ended.
    pub fn end(&self, id: CallId, now: u64, outcome: Outcome) {
        let mut inner = self.0.lock();
        if let Outcome::Reply(reply) = &outcome {
            inner.seen = inner.seen.max(reply.revision());
        }
        let call = &mut inner.calls[id.0];
        call.returned = Some(now);
        call.outcome = outcome;
    }

    /// Notes that somebody saw a revision in another way, such as by a watch.
    pub fn saw(&self, revision: i64) {
        let mut inner = self.0.lock();
        inner.seen = inner.seen.max(revision);
    }

    /// The highest revision that anybody has seen.
    pub fn seen(&self) -> i64 {
        self.0.lock().seen
    }

    /// The highest revision up to which anybody asked to compact.
    pub fn compaction(&self) -> i64 {
        self.0.lock().compaction
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.lock().calls.clone()
    }
}

/// What every value put by a call begins with.
pub fn tag(id: CallId) -> String {
    format!("#{};", id.0)
}

/// The call that put a value.
pub fn tagged(value: &[u8]) -> Option<CallId> {
    let text = value.strip_prefix(b"#")?;
    let end = text.iter().position(|b| *b == b';')?;
    std::str::from_utf8(&text[..end])
        .ok()?
        .parse()
        .ok()
        .map(CallId)
}
