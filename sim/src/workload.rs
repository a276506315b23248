//! Room `sim`: what clients do to a cluster, and what they keep of it for the checkers. Drawn from a seed, like all
//! else; nothing here judges.
//!
//! - `requests`: puts, deletions, ranges, transactions, compactions, hashes, leases; `callers` make them.
//! - `appends`: lists that clients append to. `locks`: locks with fences, some of whose holders are late. `elections`:
//!   candidates for an office.
//! - `watchers`: one that watches every key, others that watch parts, from the past, from now, from the future, slowly.
//! - `seen`: the timeline and the stretches of watches.
//!
//! Each worker is a task on its own client's node and works through a [`Desk`] until it is told that it is over.

mod appends;
mod callers;
mod elections;
mod locks;
pub(crate) mod requests;
pub(crate) mod seen;
mod through;
mod watchers;

pub use requests::Mix;

pub(crate) use appends::append;
pub(crate) use callers::make_calls;
pub(crate) use elections::stand_for_election;
pub(crate) use locks::lock_and_write;
pub(crate) use watchers::{Manner, watch_all, watch_part};

use crate::NodeId;
use crate::check::modes::{Asked, Behind, Modes};
use crate::history::{CallId, History, Outcome, Reply, Request};
use crate::mask::Mask;
use crate::rng::SimRng;
use crate::world::{CallError, Client, World};
use seen::Seen;
use std::time::Duration;
use tenon_env::sync::watch;
use tenon_proto::error::Error;
use tenon_server::host::Mode;

/// What all workers of a run share.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) world: World,
    pub(crate) history: History,
    pub(crate) seen: Seen,
    /// What hosts answered, where there are hosts.
    pub(crate) modes: Option<Modes>,
    /// Which calls are left out.
    pub(crate) mask: Mask,
    /// No new work is begun once this is true.
    pub(crate) over: watch::Receiver<bool>,
    /// Watchers end once this is true.
    pub(crate) rest: watch::Receiver<bool>,
}

impl Desk {
    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    fn now(&self) -> u64 {
        self.world.sim().now().as_nanos() as u64
    }

    /// Pauses up to `most`.
    async fn think(&self, client: &Client, rng: &mut SimRng, most: Duration) {
        let pause = rng.below(most.as_nanos() as u64 + 1);
        client.env().sleep(Duration::from_nanos(pause)).await;
    }

    /// What a host had answered when it is asked this. Only a server's own local reads may be older after a kill.
    fn asks(&self, target: NodeId, request: &Request) -> Option<Asked> {
        let modes = self.modes.as_ref()?;
        let is_local = match request {
            Request::Range(range) => range.serializable,
            Request::HashKv(_) | Request::KeepAlive(_) => true,
            _ => false,
        };
        let status = self.world.host(target).map(|host| host.status());
        let is_client = status.is_some_and(|s| s.mode == Mode::Client && s.progress.is_none());
        let behind = match is_local && !is_client {
            true => Behind::InThisLife,
            false => Behind::Never,
        };
        Some(modes.ask(target, self.world.life(target), behind))
    }

    /// Makes one call at some member and notes it; what it was told. Waits a little when nobody serves.
    pub(crate) async fn call(
        &self,
        client: &Client,
        number: u64,
        request: impl FnOnce(CallId) -> Request,
    ) -> Outcome {
        let Some(target) = client.target() else {
            client.env().sleep(Duration::from_millis(20)).await;
            return Outcome::Refused(Error::Stopped);
        };
        if !self.mask.allows_next_call(number) {
            drop(request(CallId(0)));
            return Outcome::Refused(Error::Stopped);
        }
        let (id, request) = self.history.begin(number, self.now(), request);
        let asked = self.asks(target, &request);
        let outcome = match client.request_at(target, request).await {
            Ok(reply) => Outcome::Reply(reply),
            Err(CallError::NotSent) => Outcome::Refused(Error::Stopped),
            Err(CallError::Refused(error)) => Outcome::Refused(error),
            Err(CallError::Unknown(_)) => Outcome::Unknown,
        };
        if let (Some(modes), Some(asked), Outcome::Reply(reply)) = (&self.modes, asked, &outcome)
            && let Err(finding) = modes.answered(&asked, reply.header())
        {
            self.seen.fail(finding);
        }
        self.history.end(id, self.now(), outcome.clone());
        outcome
    }
}

/// The reply, if the call was answered.
fn reply(outcome: Outcome) -> Option<Reply> {
    match outcome {
        Outcome::Reply(reply) => Some(reply),
        _ => None,
    }
}
