//! Room `server/service`: what a leader does about leases: it takes them over, proposes the end of those
//! whose time is up, and logs from time to time how long the others have left. One task of the member; it
//! decides nothing itself, `tenon_storage::lease` does.

use super::Lease;
use crate::service::context::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenon_proto::command::LeaseExpire;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::Term;

/// How often ends are looked for.
const TICK: Duration = Duration::from_millis(500);
/// Ends proposed at one tick at most: 1000 in a second.
const EXPIRIES_MAX: usize = 500;
/// Proposed ends without an outcome at which no more are proposed.
const UNDECIDED_MAX: usize = 2000;
/// Checkpoints in one command at most.
const CHECKPOINTS_MAX: usize = 1000;

/// The leader's duty about leases.
pub struct Duty {
    lease: Lease,
    undecided: Arc<AtomicUsize>,
}

impl Duty {
    /// The duty beside this service.
    pub fn new(lease: Lease) -> Duty {
        Duty {
            lease,
            undecided: Arc::default(),
        }
    }

    /// Does the duty whenever this member leads; ends when the member stops.
    pub async fn run(self) {
        let mut stopping = self.context().stopping();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = self.lead_and_rest() => {}
        }
        self.context().store().leases().demote();
    }

    fn context(&self) -> &Context {
        &self.lease.context
    }

    async fn lead_and_rest(&self) {
        let mut status = self.context().watch_status();
        loop {
            let leading = status.wait_for(|status| status.is_leader).await;
            let Ok(term) = leading.map(|status| status.term) else {
                return;
            };
            let leases = self.context().store().leases();
            leases.promote(self.context().env().now(), self.context().config().election);
            self.tick(term).await;
            leases.demote();
        }
    }

    /// Looks for ends and checkpoints for as long as this member leads in `term`.
    async fn tick(&self, term: Term) {
        let context = self.context();
        loop {
            context.env().sleep(TICK).await;
            if self.lease.leading() != Some(term) {
                return;
            }
            let (now, leases) = (context.env().now(), context.store().leases());
            let open = UNDECIDED_MAX.saturating_sub(self.undecided.load(Ordering::Relaxed));
            for id in leases.expired(now, open.min(EXPIRIES_MAX)) {
                self.propose_end(id, term);
            }
            let due = leases.checkpoints_due(now, CHECKPOINTS_MAX);
            if !due.is_empty() {
                self.propose_checkpoints(due);
            }
        }
    }

    /// Proposes one end in a task of its own: a proposal that hangs must not keep others waiting, nor
    /// make the tick look stalled.
    fn propose_end(&self, id: i64, term: Term) {
        let lease = self.lease.clone();
        let undecided = Undecided::new(&self.undecided);
        self.context().env().spawn("lease-expiry", async move {
            let expire = LeaseExpire {
                id,
                proposer_term: term.get(),
            };
            let result = lease.context.propose(expire.into()).await;
            drop(undecided);
            match result.and_then(tenon_proto::command::CommandResult::into_result) {
                Ok(_) => {
                    lease.counters.expired.fetch_add(1, Ordering::Relaxed);
                }
                // It comes again after a while, if it is still there.
                Err(error) => tracing::debug!(lease = id, %error, "a lease's end was not decided"),
            }
        });
    }

    fn propose_checkpoints(&self, due: Vec<(i64, i64)>) {
        let lease = self.lease.clone();
        let checkpoints = due
            .into_iter()
            .map(|(id, remaining_ttl)| pb::LeaseCheckpoint { id, remaining_ttl });
        let request = pb::LeaseCheckpointRequest {
            checkpoints: checkpoints.collect(),
        };
        self.context().env().spawn("lease-checkpoints", async move {
            if let Err(error) = lease.context.propose(request.into()).await {
                tracing::debug!(%error, "remaining times of leases were not logged");
            }
        });
    }
}

/// Counts a proposed end for as long as its outcome is open.
struct Undecided(Arc<AtomicUsize>);

impl Undecided {
    fn new(count: &Arc<AtomicUsize>) -> Undecided {
        count.fetch_add(1, Ordering::Relaxed);
        Undecided(count.clone())
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
