//! Room `server/service`: etcd's Maintenance service: status, alarms, hashes, snapshots,
//! defragmentation, hand-over.

use super::context::Context;
use super::snapshot;
use crate::version::{CLUSTER_VERSION, ETCD_VERSION};
use std::time::Duration;
use tenon_env::Lane;
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::AlarmType;
use tenon_proto::etcdserverpb::alarm_request::AlarmAction;
use tenon_proto::etcdserverpb::downgrade_request::DowngradeAction;
use tenon_proto::ids::MemberId;
use tenon_raft::MemberError;

/// Pause before a member that cannot lead yet is tried again.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(100);

/// The Maintenance service.
#[derive(Clone)]
pub struct Maintenance {
    context: Context,
}

impl Maintenance {
    /// The service of a member.
    pub fn new(context: Context) -> Maintenance {
        Maintenance { context }
    }

    /// Runs a step that reads everything where it blocks nobody.
    async fn on_lane<T: Send + 'static>(
        &self,
        step: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let done = self.context.env().blocking(Lane::Snapshot, step).await;
        done.map_err(|_gone| Error::Stopped)?
    }

    /// What this member knows of itself; answered without a leader too.
    pub async fn status(
        &self,
        caller: &Caller,
        _: pb::StatusRequest,
    ) -> Result<pb::StatusResponse, Error> {
        self.context.authorise(caller)?;
        let (store, raft) = (self.context.store(), self.context.status());
        let size = store.size();
        let mut errors = Vec::new();
        if raft.leader.is_none() {
            errors.push(Error::NoLeader.message());
        }
        errors.extend(store.alarms().iter().map(alarm_text));
        Ok(pb::StatusResponse {
            header: Some(self.context.current_header()),
            version: ETCD_VERSION.to_owned(),
            db_size: signed(size.allocated),
            leader: raft.leader.map_or(0, |id| id.get()),
            raft_index: raft.committed.get(),
            raft_term: raft.term.get(),
            raft_applied_index: raft.applied.get(),
            errors,
            db_size_in_use: signed(size.in_use),
            is_learner: self.context.is_learner(),
            storage_version: CLUSTER_VERSION.to_owned(),
            db_size_quota: self.context.config().quota.shown(),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        })
    }

    /// Lists alarms, raises or takes back one.
    pub async fn alarm(
        &self,
        caller: &Caller,
        request: pb::AlarmRequest,
    ) -> Result<pb::AlarmResponse, Error> {
        self.context.authorise(caller)?;
        let get = AlarmAction::try_from(request.action) == Ok(AlarmAction::Get);
        let mut response = if get {
            // A proposal in etcd, and fails like one.
            let read = self.context.read_barrier().await;
            read.map_err(|error| match self.context.has_leader() {
                true => error,
                false => Error::NoLeaderInTime,
            })?;
            let mut alarms = self.context.store().alarms();
            alarms.retain(|row| {
                request.alarm == AlarmType::None as i32 || row.alarm == request.alarm
            });
            pb::AlarmResponse {
                header: None,
                alarms,
            }
        } else {
            pb::AlarmResponse::try_from(self.context.propose(request.into()).await?)?
        };
        response.header = Some(self.context.current_header());
        Ok(response)
    }

    /// Gives free space back. There is nothing to do: the engine reuses what compaction freed, and the quota
    /// counts bytes in use.
    pub async fn defragment(
        &self,
        caller: &Caller,
        _: pb::DefragmentRequest,
    ) -> Result<pb::DefragmentResponse, Error> {
        let began = self.context.env().now();
        self.context.authorise(caller)?;
        let took = self.context.env().now() - began;
        self.context.counters().defragmentations.observe(took);
        Ok(pb::DefragmentResponse { header: None })
    }

    /// A hash over everything this member stores; for tests.
    pub async fn hash(
        &self,
        caller: &Caller,
        _: pb::HashRequest,
    ) -> Result<pb::HashResponse, Error> {
        self.context.authorise(caller)?;
        let store = self.context.store().clone();
        let hash = self.on_lane(move || store.hash()).await?;
        Ok(pb::HashResponse {
            header: Some(self.context.current_header()),
            hash,
        })
    }

    /// A hash over the key space up to a revision, equal on all members and on real etcd.
    pub async fn hash_kv(
        &self,
        caller: &Caller,
        request: pb::HashKvRequest,
    ) -> Result<pb::HashKvResponse, Error> {
        self.context.authorise(caller)?;
        let store = self.context.store().clone();
        let hash = self
            .on_lane(move || store.hash_kv(request.revision.into()))
            .await?;
        Ok(pb::HashKvResponse {
            header: Some(self.context.current_header()),
            hash: hash.hash,
            compact_revision: hash.compact_revision.get(),
            hash_revision: hash.hash_revision.get(),
        })
    }

    /// Sends a snapshot of this member's state to `out`, or the error that ended it.
    pub async fn snapshot(&self, caller: &Caller, _: pb::SnapshotRequest, out: snapshot::Blobs) {
        let sent = match self.context.authorise(caller) {
            Ok(()) => snapshot::send(&self.context, &out).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            let _ = out.send(Err(error)).await;
        }
    }

    /// Hands leadership to another voter.
    pub async fn move_leader(
        &self,
        caller: &Caller,
        request: pb::MoveLeaderRequest,
    ) -> Result<pb::MoveLeaderResponse, Error> {
        self.context.authorise(caller)?;
        let status = self.context.status();
        if !status.is_leader {
            return Err(Error::NotLeader);
        }
        if !status.voters.iter().any(|id| id.get() == request.target_id) {
            return Err(Error::BadLeaderTransferee);
        }
        let target = MemberId(request.target_id);
        let deadline = self.context.env().now() + self.context.config().request_timeout();
        loop {
            match self.context.raft().transfer_leader(target, deadline).await {
                Ok(()) => return Ok(pb::MoveLeaderResponse { header: None }),
                // Behind, or not heard lately: it may come.
                Err(MemberError::NotReady(_)) if self.context.env().now() < deadline => {
                    self.context.env().sleep(HAND_OVER_PAUSE).await;
                }
                Err(error) => {
                    tracing::warn!(%target, %error, "leadership was not handed over");
                    return Err(Error::TimeoutLeaderTransfer);
                }
            }
        }
    }

    /// Checks, starts or cancels a downgrade of the cluster. Starting one is refused: an older etcd cannot
    /// read this data directory.
    pub async fn downgrade(
        &self,
        caller: &Caller,
        request: pb::DowngradeRequest,
    ) -> Result<pb::DowngradeResponse, Error> {
        self.context.authorise(caller)?;
        match DowngradeAction::try_from(request.action) {
            Ok(DowngradeAction::Validate) => check_target(&request.version)?,
            Ok(DowngradeAction::Enable) => {
                check_target(&request.version)?;
                let text = "tenon: an older version cannot read this data directory; \
                            move the data with a snapshot";
                return Err(Error::other(Code::Unimplemented, text));
            }
            Ok(DowngradeAction::Cancel) => {}
            Err(_) => return Err(Error::UnknownMethod),
        }
        self.context.read_barrier().await?;
        let version = CLUSTER_VERSION.trim_end_matches(".0").to_owned();
        Ok(pb::DowngradeResponse {
            header: Some(self.context.current_header()),
            version,
        })
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn alarm_text(row: &pb::AlarmMember) -> String {
    let name = AlarmType::try_from(row.alarm).map_or("UNKNOWN", |a| a.as_str_name());
    format!("memberID:{} alarm:{name}", row.member_id)
}

/// The target must be `X.Y` or `X.Y.Z`, exactly one minor version below the cluster's.
fn check_target(version: &str) -> Result<(), Error> {
    let (major, minor) = major_minor(version).ok_or(Error::WrongDowngradeVersionFormat)?;
    let (own_major, own_minor) = major_minor(CLUSTER_VERSION).expect("our own version");
    if (major, minor + 1) == (own_major, own_minor) {
        Ok(())
    } else {
        Err(Error::InvalidDowngradeTargetVersion)
    }
}

fn major_minor(version: &str) -> Option<(u64, u64)> {
    let parts: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    match parts?.as_slice() {
        [major, minor] | [major, minor, _] => Some((*major, *minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downgrades_go_one_minor_version() {
        let cases = [
            ("3.6", Ok(())),
            ("3.6.9", Ok(())),
            ("3.5", Err(Error::InvalidDowngradeTargetVersion)),
            ("3.7", Err(Error::InvalidDowngradeTargetVersion)),
            ("2.6", Err(Error::InvalidDowngradeTargetVersion)),
            ("", Err(Error::WrongDowngradeVersionFormat)),
            ("3", Err(Error::WrongDowngradeVersionFormat)),
            ("a.b", Err(Error::WrongDowngradeVersionFormat)),
            ("3.6.1.1", Err(Error::WrongDowngradeVersionFormat)),
        ];
        for (version, expected) in cases {
            assert_eq!(check_target(version), expected, "{version}");
        }
    }
}
