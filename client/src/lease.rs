//! Room `client`: leases: the calls, and renewal in the background.

use crate::auth::rpcs;
use crate::call::Client;
use crate::retry::Repeat;
use std::time::Duration;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::lease_client::LeaseClient;
use tenon_proto::ids::LeaseId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::{Response, Status};

/// Pause after a renewal that failed while the lease may still live.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// TTLs reach 285 years; sums with the clock must not overflow.
const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

rpcs! { LeaseClient;
    /// Makes a lease. Not repeated once sent: a lease that nobody knows of expires by itself.
    lease_grant(LeaseGrantRequest) -> LeaseGrantResponse, Unsafe;
    /// Ends a lease and deletes its keys. Not repeated once sent.
    lease_revoke(LeaseRevokeRequest) -> LeaseRevokeResponse, Unsafe;
    /// Time left of a lease; TTL -1 when there is none.
    lease_time_to_live(LeaseTimeToLiveRequest) -> LeaseTimeToLiveResponse, Harmless;
    /// Ids of all leases.
    lease_leases(LeaseLeasesRequest) -> LeaseLeasesResponse, Harmless;
}

impl Client {
    /// Makes a lease of at least `ttl_seconds`; the server may give more.
    ///
    /// # Errors
    /// Those of [`Client::lease_grant`].
    pub async fn grant(&self, ttl_seconds: i64) -> Result<LeaseId, Error> {
        let request = pb::LeaseGrantRequest {
            ttl: ttl_seconds,
            id: 0,
        };
        Ok(LeaseId(self.lease_grant(request).await?.id))
    }

    /// Renews a lease once; the answer's TTL is in seconds.
    ///
    /// # Errors
    /// `LeaseNotFound` when it has expired or never was; what any call may meet.
    pub async fn keep_alive_once(
        &self,
        lease: LeaseId,
    ) -> Result<pb::LeaseKeepAliveResponse, Error> {
        let request = pb::LeaseKeepAliveRequest { id: lease.get() };
        let answer = self.call(Repeat::Harmless, request, |channel, request| async move {
            let mut client = LeaseClient::new(channel);
            let stream = client.lease_keep_alive(request.map(tokio_stream::once));
            let mut stream = stream.await?.into_inner();
            let answer = stream.message().await?;
            let ended = || Status::unavailable("tenon: the stream ended without an answer");
            answer.map(Response::new).ok_or_else(ended)
        });
        let answer: pb::LeaseKeepAliveResponse = answer.await?;
        if answer.ttl <= 0 {
            return Err(Error::LeaseNotFound);
        }
        Ok(answer)
    }

    /// Renews a lease now and, in the background, three times per TTL, until the handle is dropped.
    ///
    /// # Errors
    /// Those of [`Client::keep_alive_once`], for the first renewal.
    pub async fn keep_alive(&self, lease: LeaseId) -> Result<KeepAlive, Error> {
        let asked = Instant::now();
        let ttl = ttl_of(&self.keep_alive_once(lease).await?);
        let (report, lost) = watch::channel(None);
        let client = self.clone();
        let task = tokio::spawn(async move {
            let why = renew_until_lost(&client, lease, asked + ttl, ttl).await;
            report.send_replace(Some(why));
        });
        Ok(KeepAlive { lease, lost, task })
    }
}

fn ttl_of(answer: &pb::LeaseKeepAliveResponse) -> Duration {
    Duration::from_secs(answer.ttl.unsigned_abs()).min(TTL_MAX)
}

/// Renews until the lease is gone. It counts as gone, too, when no server confirmed it for a whole TTL since
/// the last renewal was *asked* for: from then on others may hold what it protects.
async fn renew_until_lost(
    client: &Client,
    lease: LeaseId,
    mut expires: Instant,
    mut ttl: Duration,
) -> Error {
    loop {
        tokio::time::sleep(ttl / 3).await;
        loop {
            let asked = Instant::now();
            let left = expires.saturating_duration_since(asked);
            // Half the time left, so that a server that hangs does not take it all.
            let limit = (left / 2).max(RETRY_PAUSE).min(client.timeout());
            match client.with_timeout(limit).keep_alive_once(lease).await {
                Ok(answer) => {
                    ttl = ttl_of(&answer);
                    expires = asked + ttl;
                    break;
                }
                Err(Error::LeaseNotFound) => return Error::LeaseNotFound,
                Err(error) if Instant::now() >= expires => return error,
                Err(error) => {
                    tracing::debug!(%lease, %error, "a lease could not be renewed yet");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

/// Renews a lease while it lives. Dropping it stops renewing; the lease then ends by its TTL.
#[derive(Debug)]
pub struct KeepAlive {
    lease: LeaseId,
    lost: watch::Receiver<Option<Error>>,
    task: JoinHandle<()>,
}

impl KeepAlive {
    /// The lease.
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Whether the lease is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// Waits until the lease is lost and says why: `LeaseNotFound` when a server said so, else the error of
    /// the last renewal before its time ran out.
    pub async fn lost(&self) -> Error {
        let mut lost = self.lost.clone();
        let result = lost.wait_for(Option::is_some).await;
        let why = result.ok().and_then(|why| why.clone());
        why.unwrap_or(Error::LeaseNotFound)
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}
