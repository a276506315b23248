//! Room `server/host`: whether this host's endpoint is healthy, in the terms of etcd's `/health`, `/livez` and
//! `/readyz`, whoever answers behind it.

use super::door::{Backend, Door};
use super::remote::Remote;
use crate::service::health::Check;
use crate::service::method::Method;
use std::collections::BTreeSet;
use std::time::Duration;
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::AlarmType;

/// Time for one question to a member.
const WITHIN: Duration = Duration::from_secs(5);

impl Door {
    /// Runs one check; the error is its reason.
    ///
    /// # Errors
    /// What is not as it should be.
    pub async fn check(&self, check: Check) -> Result<(), String> {
        match self.enter().backend() {
            Backend::Closed(error) => Err(error.message()),
            Backend::Member(services) => services.health.check(check).await,
            Backend::Remote(remote) => self.check_remote(remote, check).await,
        }
    }

    /// etcd's `/health`: alarms, then a leader, then a read. The first failure is the reason.
    ///
    /// # Errors
    /// What is not as it should be.
    pub async fn overall(
        &self,
        serializable: bool,
        excluded: &BTreeSet<String>,
    ) -> Result<(), String> {
        match self.enter().backend() {
            Backend::Closed(error) => Err(error.message()),
            Backend::Member(services) => services.health.overall(serializable, excluded).await,
            Backend::Remote(remote) => {
                let wanted = |alarm: &AlarmType| !excluded.contains(alarm.as_str_name());
                if let Some(alarm) = self.alarms(remote).await?.into_iter().find(wanted) {
                    return Err(format!("ALARM {}", alarm.as_str_name()));
                }
                let read = self.read(remote, serializable).await;
                read.map_err(|error| format!("RANGE ERROR:{error}"))
            }
        }
    }

    async fn check_remote(&self, remote: &Remote, check: Check) -> Result<(), String> {
        match check {
            Check::DataCorruption => {
                if self.alarms(remote).await?.contains(&AlarmType::Corrupt) {
                    return Err("alarm activated: CORRUPT".to_owned());
                }
                Ok(())
            }
            Check::SerializableRead => self.read(remote, true).await.map_err(|e| e.message()),
            Check::LinearizableRead => self.read(remote, false).await.map_err(|e| e.message()),
            Check::NonLearner => Ok(()),
        }
    }

    async fn alarms(&self, remote: &Remote) -> Result<BTreeSet<AlarmType>, String> {
        let request = pb::AlarmRequest::default();
        let deadline = self.env().now() + WITHIN;
        let method = Method::MaintenanceAlarm;
        let caller = Caller::default();
        match remote.call(method, &caller, &request, deadline).await {
            Ok(pb::AlarmResponse { alarms, .. }) => Ok(alarms
                .iter()
                .filter_map(|row| AlarmType::try_from(row.alarm).ok())
                .collect()),
            Err(error) if error.code() == Code::Unavailable => Err(error.message()),
            Err(_) => Ok(BTreeSet::new()),
        }
    }

    /// A member that refuses the read has answered: this host has no rights of its own in the data.
    async fn read(&self, remote: &Remote, serializable: bool) -> Result<(), Error> {
        let request = pb::RangeRequest {
            key: bytes::Bytes::from_static(b"a"),
            limit: 1,
            count_only: true,
            serializable,
            ..Default::default()
        };
        let deadline = self.env().now() + WITHIN;
        let (method, caller) = (Method::KvRange, Caller::default());
        match remote.call(method, &caller, &request, deadline).await {
            Err(error) if error.code() == Code::Unavailable => Err(error),
            Ok(pb::RangeResponse { .. }) | Err(_) => Ok(()),
        }
    }
}
