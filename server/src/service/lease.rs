//! Room `server/service`: etcd's Lease service. Grants and revokes go through the log; renewals do not:
//! the leader alone knows when a lease ends (`tenon_storage::lease`). Its duties as leader stand in
//! `lease/duty.rs`, asking the leader from another member in `lease/leader.rs`. No sockets.

mod duty;
mod leader;

pub use duty::Duty;

use super::context::Context;
use super::leadership;
use super::quota;
use super::watch::NeedsLeader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_env::sync::{mpsc, watch};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::Term;
use tenon_raft::RaftStatus;
use tenon_storage::lease::{LEASE_TTL_SECONDS_MAX, Renewal};

/// Renewals of one stream that share one confirmation of the leader.
const RENEWALS_MAX: usize = 256;

/// Counts for metrics, since the start.
#[derive(Debug, Default)]
pub struct LeaseCounters {
    /// Leases granted through this member.
    pub granted: AtomicU64,
    /// Leases revoked through this member.
    pub revoked: AtomicU64,
    /// Renewals answered with a TTL.
    pub renewed: AtomicU64,
    /// Expiries proposed by this member that came to pass.
    pub expired: AtomicU64,
}

/// The Lease service.
#[derive(Clone)]
pub struct Lease {
    context: Context,
    status: watch::Receiver<RaftStatus>,
    counters: Arc<LeaseCounters>,
}

impl Lease {
    /// The service of a member.
    pub fn new(context: Context) -> Lease {
        let status = context.watch_status();
        Lease {
            context,
            status,
            counters: Arc::default(),
        }
    }

    /// The term in which this member leads, as far as it knows.
    fn leading(&self) -> Option<Term> {
        let status = self.status.borrow();
        status.is_leader.then_some(status.term)
    }

    /// Counts of this service.
    pub fn counters(&self) -> &LeaseCounters {
        &self.counters
    }

    /// Grants a lease. Id and TTL are made final here: an id is drawn for 0, and the TTL is raised to
    /// one and a half election timeouts, so that a change of leader ends no lease in use.
    pub async fn grant(
        &self,
        caller: &Caller,
        mut request: pb::LeaseGrantRequest,
    ) -> Result<pb::LeaseGrantResponse, Error> {
        self.context.authorise(caller)?;
        if request.ttl > LEASE_TTL_SECONDS_MAX {
            return Err(Error::LeaseTTLTooLarge);
        }
        request.ttl = request
            .ttl
            .max(ttl_seconds_min(self.context.config().election));
        let drawn = request.id == 0;
        loop {
            if drawn {
                request.id = self.draw_id();
            }
            let body = request.into();
            quota::check(&self.context, &body).await?;
            let result = self.context.propose(body).await?;
            let mut response = match pb::LeaseGrantResponse::try_from(result) {
                Err(Error::LeaseExist) if drawn => continue,
                response => response?,
            };
            self.context.fill(&mut response.header);
            self.counters.granted.fetch_add(1, Ordering::Relaxed);
            return Ok(response);
        }
    }

    /// A positive id that no lease has.
    fn draw_id(&self) -> i64 {
        let leases = self.context.store().leases();
        loop {
            let id = (self.context.env().rng.next_u64() >> 1).cast_signed();
            if id != 0 && !leases.exists(id) {
                return id;
            }
        }
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke(
        &self,
        caller: &Caller,
        request: pb::LeaseRevokeRequest,
    ) -> Result<pb::LeaseRevokeResponse, Error> {
        self.context.authorise(caller)?;
        let result = self.context.propose(request.into()).await?;
        let mut response = pb::LeaseRevokeResponse::try_from(result)?;
        self.context.fill(&mut response.header);
        self.counters.revoked.fetch_add(1, Ordering::Relaxed);
        Ok(response)
    }

    /// The time a lease has left; TTL -1 for an unknown one.
    pub async fn time_to_live(
        &self,
        caller: &Caller,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveResponse, Error> {
        self.context.authorise(caller)?;
        let mut response = self.time_to_live_anywhere(request).await?;
        response.header = Some(self.context.current_header());
        Ok(response)
    }

    /// Every lease this member knows, the one to end first in front.
    pub async fn leases(
        &self,
        caller: &Caller,
        _: pb::LeaseLeasesRequest,
    ) -> Result<pb::LeaseLeasesResponse, Error> {
        self.context.authorise(caller)?;
        let ids = self.context.store().leases().list();
        Ok(pb::LeaseLeasesResponse {
            header: Some(self.context.current_header()),
            leases: ids.into_iter().map(|id| pb::LeaseStatus { id }).collect(),
        })
    }

    /// Serves one client's stream of renewals: one answer for each request, in order; TTL 0 for a
    /// lease that is unknown, ended or about to be. Ends with `requests`, when the receiver of `out`
    /// is gone, or with a last `Err` that says why.
    pub async fn keep_alive(
        &self,
        caller: &Caller,
        needs_leader: NeedsLeader,
        mut requests: mpsc::Receiver<pb::LeaseKeepAliveRequest>,
        out: mpsc::Sender<Result<pb::LeaseKeepAliveResponse, Error>>,
    ) {
        let end = tokio::select! {
            biased;
            () = out.closed() => Ok(()),
            error = self.cut(needs_leader) => Err(error),
            end = self.renewals(caller, &mut requests, &out) => end,
        };
        if let Err(error) = end {
            let _ = self
                .context
                .env()
                .timeout(Duration::from_secs(1), out.send(Err(error)))
                .await;
        }
    }

    async fn cut(&self, needs_leader: NeedsLeader) -> Error {
        let context = &self.context;
        if context.is_learner() {
            return Error::NotSupportedForLearner;
        }
        let lost: BoxFuture<'static, ()> = match needs_leader {
            NeedsLeader::Yes if !context.has_leader() => return Error::NoLeader,
            NeedsLeader::Yes => {
                let (env, status) = (context.env().clone(), context.watch_status());
                Box::pin(leadership::lost(env, status, context.config().election))
            }
            NeedsLeader::No => Box::pin(std::future::pending()),
        };
        leadership::cut(context.stopping(), lost).await
    }

    async fn renewals(
        &self,
        caller: &Caller,
        requests: &mut mpsc::Receiver<pb::LeaseKeepAliveRequest>,
        out: &mpsc::Sender<Result<pb::LeaseKeepAliveResponse, Error>>,
    ) -> Result<(), Error> {
        let mut batch = Vec::new();
        while requests.recv_many(&mut batch, RENEWALS_MAX).await > 0 {
            self.context.authorise(caller)?;
            let ids: Vec<i64> = batch.drain(..).map(|request| request.id).collect();
            let ttls = self.renew_anywhere(&ids).await?;
            let header = Some(self.context.current_header());
            for (id, ttl) in ids.into_iter().zip(ttls) {
                let response = pb::LeaseKeepAliveResponse { header, id, ttl };
                if out.send(Ok(response)).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Renews one lease; leadership was just confirmed. The TTL in seconds.
    async fn renew(&self, id: i64) -> Result<i64, Error> {
        let leases = self.context.store().leases();
        match leases.renew(id, self.context.env().now()) {
            Renewal::Gone => Ok(0),
            // Lost since it was confirmed.
            Renewal::NotLeader => Err(Error::LeaderChanged),
            Renewal::Renewed {
                ttl_seconds,
                clear_checkpoint,
            } => {
                if clear_checkpoint {
                    self.clear_checkpoint(id).await?;
                }
                self.counters.renewed.fetch_add(1, Ordering::Relaxed);
                Ok(ttl_seconds)
            }
        }
    }

    /// Has the cluster forget a checkpointed remainder, before the client is told of the whole TTL: a
    /// next leader would give the lease only the remainder.
    async fn clear_checkpoint(&self, id: i64) -> Result<(), Error> {
        let checkpoint = pb::LeaseCheckpoint {
            id,
            remaining_ttl: 0,
        };
        let request = pb::LeaseCheckpointRequest {
            checkpoints: vec![checkpoint],
        };
        let result = self.context.propose(request.into()).await?;
        pb::LeaseCheckpointResponse::try_from(result).map(|_| ())
    }
}

/// Shortest TTL: one and a half election timeouts, in whole seconds, rounded up.
fn ttl_seconds_min(election: Duration) -> i64 {
    let millis = u64::try_from(election.as_millis()).unwrap_or(u64::MAX);
    let seconds = millis.saturating_mul(3).div_ceil(2000);
    i64::try_from(seconds).unwrap_or(LEASE_TTL_SECONDS_MAX)
}

#[cfg(test)]
mod tests;
