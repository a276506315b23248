//! Room `client`: the calls of the Maintenance service. Those that mean one member go to whichever endpoint
//! is in use; [`Client::only`] chooses.

use crate::auth::rpcs;
use crate::call::Client;
use crate::stream::{MESSAGE_MAX, Parts};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::alarm_request::AlarmAction;
use tenon_proto::etcdserverpb::maintenance_client::MaintenanceClient;

rpcs! { MaintenanceClient;
    /// Lists, raises or clears alarms.
    alarm(AlarmRequest) -> AlarmResponse, Harmless;
    /// State of the answering member.
    status(StatusRequest) -> StatusResponse, Harmless;
    /// Gives unused space of the answering member back.
    defragment(DefragmentRequest) -> DefragmentResponse, Unsafe;
    /// Checksum of the answering member's whole store; for tests of servers.
    hash(HashRequest) -> HashResponse, Harmless;
    /// Checksum of the key space at a revision; equal on all members.
    hash_kv(HashKvRequest) -> HashKvResponse, Harmless;
    /// Hands leadership to another member; only the leader accepts it.
    move_leader(MoveLeaderRequest) -> MoveLeaderResponse, Unsafe;
    /// Checks, begins or cancels a downgrade.
    downgrade(DowngradeRequest) -> DowngradeResponse, Unsafe;
}

impl Client {
    /// Every active alarm.
    ///
    /// # Errors
    /// Those of [`Client::alarm`].
    pub async fn alarms(&self) -> Result<Vec<pb::AlarmMember>, Error> {
        let every = pb::AlarmRequest::default();
        Ok(self.alarm(every).await?.alarms)
    }

    /// Clears every active alarm and returns those cleared.
    ///
    /// # Errors
    /// Those of [`Client::alarm`]; some alarms may be cleared then.
    pub async fn disarm(&self) -> Result<Vec<pb::AlarmMember>, Error> {
        let mut cleared = Vec::new();
        for alarm in self.alarms().await? {
            let request = pb::AlarmRequest {
                action: AlarmAction::Deactivate.into(),
                member_id: alarm.member_id,
                alarm: alarm.alarm,
            };
            cleared.extend(self.alarm(request).await?.alarms);
        }
        Ok(cleared)
    }

    /// A copy of the answering member's store, in parts. The last part is the SHA-256 of all before it.
    ///
    /// # Errors
    /// What the server says at the opening; later errors come from [`Parts::next`].
    pub async fn snapshot(&self) -> Result<Parts<pb::SnapshotResponse>, Error> {
        let request = pb::SnapshotRequest {};
        let stream = self.open(request, |channel, request| async move {
            let mut client = MaintenanceClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
            client.snapshot(request).await
        });
        Ok(Parts::new(stream.await?))
    }
}
