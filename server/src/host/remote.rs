//! Room `server/host`: client mode: every registered service answered by the members of the cluster. Knows no
//! transport: the shell's [`Upstream`] has real channels, the simulator's its own.
//!
//! - Which member is asked: `targets.rs`. A member is looked at once before it gets its first request: it must be of
//!   this host's cluster, have a vote and know a leader.
//! - What became of a request and whether it is sent again: `forward.rs`.
//! - Who the members are and who leads: `discover.rs`.
//!
//! An answer behind the host's floor is not given: the member is asked again or another one is.

mod discover;
mod forward;
mod stream;
mod targets;

use super::floor::SharedFloor;
use crate::service::method::{Method, Repeat};
use crate::service::watch::NeedsLeader;
use bytes::Bytes;
use discover::Members;
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use targets::Targets;
use tenon_env::sync::{Notify, mpsc, watch};
use tenon_env::{BoxFuture, Env, Instant};
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;

/// Doors a call may pass before it is taken for one that goes in a circle.
pub const HOPS_MAX: u8 = 4;

/// What a call asks of whoever answers it, beside its request.
#[derive(Clone, PartialEq, Eq)]
pub struct CallInfo {
    /// The end caller's token. A secret: `Debug` hides it.
    pub token: Option<String>,
    /// Whether the member must know a leader.
    pub needs_leader: NeedsLeader,
    /// Doors it has passed.
    pub hops: u8,
}

impl Default for CallInfo {
    fn default() -> CallInfo {
        CallInfo {
            token: None,
            needs_leader: NeedsLeader::No,
            hops: 0,
        }
    }
}

impl std::fmt::Debug for CallInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallInfo")
            .field("token", &self.token.as_ref().map(|_| "<hidden>"))
            .field("needs_leader", &self.needs_leader)
            .field("hops", &self.hops)
            .finish()
    }
}

impl CallInfo {
    /// As forwarded for `caller`: one door further.
    pub(super) fn of(&self, caller: &Caller) -> CallInfo {
        CallInfo {
            token: caller.token.clone(),
            needs_leader: self.needs_leader,
            hops: self.hops.saturating_add(1),
        }
    }
}

/// Why an upstream call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// The member said so.
    Status(Error),
    /// It certainly did not reach the member.
    NotSent(String),
    /// The connection broke while it was under way: nobody knows.
    Broken(String),
}

/// Answers of a stream; ends after the first error, or in order without one.
pub type Answers = mpsc::Receiver<Result<Bytes, UpstreamError>>;

/// How members are reached. Messages are encoded; what stands in them is not looked at.
pub trait Upstream: Send + Sync + 'static {
    /// One request to the member at that client URL, one answer. Dropping the future gives the call up.
    fn unary(
        &self,
        target: &str,
        method: Method,
        call: CallInfo,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, UpstreamError>>;

    /// A stream to the member at that client URL. Completes when the member has taken the stream or refused it;
    /// it may take its first request for that. The end of `requests` ends the sending side; dropping the answers
    /// gives the stream up.
    fn stream(
        &self,
        target: &str,
        method: Method,
        call: CallInfo,
        requests: mpsc::Receiver<Bytes>,
    ) -> BoxFuture<'static, Result<Answers, UpstreamError>>;
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    /// What the caller is told.
    pub(super) error: Error,
    /// Whether it may be sent elsewhere without fear: it was not carried out, or may be twice.
    pub(super) not_done: bool,
}

/// A host's client mode. Runs until [`Remote::shutdown`] or until its last holder is gone.
pub struct Remote {
    env: Env,
    upstream: Arc<dyn Upstream>,
    floor: SharedFloor,
    targets: Mutex<Targets>,
    members: Mutex<Members>,
    endpoints: watch::Sender<Vec<String>>,
    stopping: watch::Sender<bool>,
    /// Somebody wants the members looked up again.
    lookup: Arc<Notify>,
}

impl Remote {
    /// Answers through the members behind `endpoints`, client URLs, and those it learns of from them.
    pub fn new(
        env: &Env,
        upstream: Arc<dyn Upstream>,
        endpoints: Vec<String>,
        floor: SharedFloor,
    ) -> Arc<Remote> {
        let remote = Arc::new(Remote {
            env: env.clone(),
            upstream,
            floor,
            targets: Mutex::new(Targets::new(&endpoints)),
            members: Mutex::default(),
            endpoints: watch::Sender::new(endpoints),
            stopping: watch::Sender::new(false),
            lookup: Arc::new(Notify::new()),
        });
        env.spawn(
            "discover",
            discover::run(
                Arc::downgrade(&remote),
                env.clone(),
                remote.stopping.subscribe(),
                remote.lookup.clone(),
            ),
        );
        remote
    }

    /// Never forwards to these client URLs: the host's own, where a call would come back to itself.
    pub fn avoid(&self, urls: &[String]) {
        self.targets.lock().avoid(urls);
    }

    /// The members' client URLs as last learnt; those given at first until then.
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.borrow().clone()
    }

    /// Follows [`Remote::endpoints`].
    pub fn watch_endpoints(&self) -> watch::Receiver<Vec<String>> {
        self.endpoints.subscribe()
    }

    /// Completes once some member can answer for this host: it is of the right cluster, has a vote, knows a leader
    /// and is not behind the floor.
    ///
    /// # Errors
    /// `Unavailable` at the deadline; names every member asked and what it lacked.
    pub async fn ready(&self, deadline: Instant) -> Result<(), Error> {
        self.pick(deadline, None, 1).await.map(|_| ())
    }

    /// One request of the host itself, answered by a member.
    ///
    /// # Errors
    /// The member's; `Unavailable` when there was no answer before the deadline, or the connection broke and nobody
    /// knows what became of it.
    pub async fn call<Req, Resp>(
        &self,
        method: Method,
        caller: &Caller,
        request: &Req,
        deadline: Instant,
    ) -> Result<Resp, Error>
    where
        Req: Message + 'static,
        Resp: Message + Default,
    {
        let info = CallInfo::default().of(caller);
        let repeat = super::door::repeat(method, request);
        let bytes = request.encode_to_vec().into();
        let answer = self
            .forward_until(method, info, bytes, repeat, deadline)
            .await;
        read(&answer.map_err(|missed| missed.error)?)
    }

    /// Ends what is under way and answers nothing from now on.
    pub fn shutdown(&self) {
        self.stopping.send_replace(true);
    }

    /// One client's request.
    pub(super) async fn forward(
        &self,
        method: Method,
        call: CallInfo,
        request: Bytes,
        repeat: Repeat,
    ) -> Result<Bytes, Missed> {
        let deadline = self.env.now() + forward::REQUEST_TIME;
        self.forward_until(method, call, request, repeat, deadline)
            .await
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Waits for a value and holds nothing of the channel afterwards. In a `select!` the value that `wait_for` gives locks
/// the channel while the other branches are dropped; when they hold the last of a [`Remote`], its end would wait for
/// that lock for ever.
pub(super) async fn until<T>(channel: &mut watch::Receiver<T>, wanted: impl FnMut(&T) -> bool) {
    let _ = channel.wait_for(wanted).await;
}

/// An answer's message.
///
/// # Errors
/// `Internal` when a member sent what is none.
pub(super) fn read<R: Message + Default>(bytes: &Bytes) -> Result<R, Error> {
    R::decode(bytes.clone()).map_err(|error| {
        let text = format!("tenon: a member's answer cannot be read: {error}");
        Error::other(Code::Internal, text)
    })
}
