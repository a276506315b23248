//! Room `server/service`: whether this member is healthy, in the terms of etcd's `/health`, `/livez` and
//! `/readyz`. The HTTP side only prints the answers.

use super::context::Context;
use std::collections::BTreeSet;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::AlarmType;

/// One check by its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// No member raised the CORRUPT alarm.
    DataCorruption,
    /// A read of the local state succeeds.
    SerializableRead,
    /// A read confirmed by the quorum succeeds.
    LinearizableRead,
    /// This member is no learner.
    NonLearner,
}

impl Check {
    /// Checks of `/livez`.
    pub const LIVE: &'static [Check] = &[Check::SerializableRead];
    /// Checks of `/readyz`.
    pub const READY: &'static [Check] = &[
        Check::DataCorruption,
        Check::SerializableRead,
        Check::LinearizableRead,
        Check::NonLearner,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Check::DataCorruption => "data_corruption",
            Check::SerializableRead => "serializable_read",
            Check::LinearizableRead => "linearizable_read",
            Check::NonLearner => "non_learner",
        }
    }
}

/// The health checks.
#[derive(Clone)]
pub struct Health {
    context: Context,
}

impl Health {
    /// The checks of a member.
    pub fn new(context: Context) -> Health {
        Health { context }
    }

    /// Runs one check; the error is its reason.
    pub async fn check(&self, check: Check) -> Result<(), String> {
        match check {
            Check::DataCorruption => {
                if self.alarms().contains(&AlarmType::Corrupt) {
                    return Err("alarm activated: CORRUPT".to_owned());
                }
                Ok(())
            }
            Check::SerializableRead => self.read(true).await.map_err(|e| e.message()),
            Check::LinearizableRead => self.read(false).await.map_err(|e| e.message()),
            Check::NonLearner => {
                if self.context.is_learner() {
                    return Err("not supported for learner".to_owned());
                }
                Ok(())
            }
        }
    }

    /// etcd's `/health`: alarms, then a leader, then a read. The first failure is the reason.
    pub async fn overall(
        &self,
        serializable: bool,
        excluded: &BTreeSet<String>,
    ) -> Result<(), String> {
        for alarm in self.alarms() {
            if !excluded.contains(alarm.as_str_name()) {
                return Err(format!("ALARM {}", alarm.as_str_name()));
            }
        }
        if !serializable && !self.context.has_leader() {
            return Err("RAFT NO LEADER".to_owned());
        }
        self.read(serializable)
            .await
            .map_err(|e| format!("RANGE ERROR:{e}"))
    }

    fn alarms(&self) -> BTreeSet<AlarmType> {
        let rows = self.context.store().alarms();
        rows.iter()
            .filter_map(|row| AlarmType::try_from(row.alarm).ok())
            .collect()
    }

    async fn read(&self, serializable: bool) -> Result<(), Error> {
        if !serializable {
            self.context.read_barrier().await?;
        }
        let request = pb::RangeRequest {
            key: bytes::Bytes::from_static(b"a"),
            limit: 1,
            count_only: true,
            ..Default::default()
        };
        self.context.store().range(&request).map(|_| ())
    }
}
