//! Room `client`: the calls of the host service, which the host behind the endpoint answers itself, in every mode.

use crate::call::Client;
use crate::retry::Repeat;
use crate::stream::Parts;
use tenon_proto::error::Error;
use tenon_proto::host as pb;
use tenon_proto::host::host_client::HostClient;

impl Client {
    /// What the host is doing.
    ///
    /// # Errors
    /// What any call may meet.
    pub async fn host_status(&self) -> Result<pb::StatusResponse, Error> {
        let request = pb::StatusRequest {};
        self.call(Repeat::Harmless, request, |channel, request| async move {
            HostClient::new(channel).status(request).await
        })
        .await
    }

    /// Takes the host's switch under way back, while that is possible. Completes when the host is what it was.
    ///
    /// # Errors
    /// When there is none, or it cannot be taken back any more.
    pub async fn host_abort(&self) -> Result<pb::AbortResponse, Error> {
        let request = pb::AbortRequest {};
        self.call(Repeat::Unsafe, request, |channel, request| async move {
            HostClient::new(channel).abort(request).await
        })
        .await
    }

    /// The same, now and at every change.
    ///
    /// # Errors
    /// What the host says at the opening; later errors come from [`Parts::next`].
    pub async fn host_watch(&self) -> Result<Parts<pb::StatusResponse>, Error> {
        let request = pb::StatusRequest {};
        let stream = self.open(request, |channel, request| async move {
            HostClient::new(channel).watch(request).await
        });
        Ok(Parts::new(stream.await?))
    }

    /// Switches the host, or says what a switch would do. The answers are its progress; the last has `done` set.
    /// Dropping them does not stop a switch.
    ///
    /// # Errors
    /// What the host says at the opening: another switch is under way, or there is no such switch.
    pub async fn host_change_mode(
        &self,
        request: pb::ChangeModeRequest,
    ) -> Result<Parts<pb::ChangeModeResponse>, Error> {
        let stream = self.open(request, |channel, request| async move {
            HostClient::new(channel).change_mode(request).await
        });
        Ok(Parts::new(stream.await?))
    }
}
