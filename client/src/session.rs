//! Room `client`: a session: a lease kept alive, for locks and elections.

use crate::call::Client;
use crate::lease::KeepAlive;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::LeaseId;

/// A lease of its own, renewed in the background. What is held under it is lost when the session is: after
/// [`Session::close`], after its TTL when dropped, or when no server could renew it.
#[derive(Debug)]
pub struct Session {
    client: Client,
    keep_alive: KeepAlive,
}

impl Session {
    /// Grants a lease of `ttl_seconds` and keeps it alive. A short TTL lets others in sooner after a crash, a
    /// long one bears longer outages.
    ///
    /// # Errors
    /// Those of [`Client::grant`] and [`Client::keep_alive`].
    pub async fn open(client: &Client, ttl_seconds: i64) -> Result<Session, Error> {
        let lease = client.grant(ttl_seconds).await?;
        Session::over(client, lease).await
    }

    /// A session over a lease that exists.
    ///
    /// # Errors
    /// Those of [`Client::keep_alive`].
    pub async fn over(client: &Client, lease: LeaseId) -> Result<Session, Error> {
        Ok(Session {
            client: client.clone(),
            keep_alive: client.keep_alive(lease).await?,
        })
    }

    /// The client it was opened with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The lease.
    pub fn lease(&self) -> LeaseId {
        self.keep_alive.lease()
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        self.keep_alive.is_lost()
    }

    /// Waits until it is lost and says why; as [`KeepAlive::lost`].
    pub async fn lost(&self) -> Error {
        self.keep_alive.lost().await
    }

    /// Ends it at once, with everything held under it.
    ///
    /// # Errors
    /// Those of [`Client::lease_revoke`]; a lease already gone is none.
    pub async fn close(self) -> Result<(), Error> {
        let request = pb::LeaseRevokeRequest {
            id: self.lease().get(),
        };
        match self.client.lease_revoke(request).await {
            Ok(_) | Err(Error::LeaseNotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
