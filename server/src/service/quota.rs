//! Room `server/service`: the space limit. A write that would cross it raises the cluster's NOSPACE alarm and
//! is refused; while the alarm stands, every write that could add data is. Unlike etcd's, the alarm ends by
//! itself once deletes and compaction brought use below the low-water mark (`docs/differences.md`).

use super::context::Context;
use crate::member::config::Quota;
use std::time::Duration;
use tenon_proto::command::command::Body;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::alarm_request::AlarmAction;
use tenon_proto::etcdserverpb::{AlarmRequest, AlarmType};
use tenon_storage::quota::cost;

/// Share of the quota, in percent, below which a member takes its own alarm back.
const LOW_WATER_PERCENT: u64 = 90;

/// Refuses a command without room for it, raising the alarm when this member is the first to notice. The
/// refused client finds the alarm in the list.
pub async fn check(context: &Context, body: &Body) -> Result<(), Error> {
    let cost = cost(body);
    let Quota::Bytes(limit) = context.config().quota else {
        return Ok(());
    };
    if cost == 0 {
        return Ok(());
    }
    if has_alarm(context, AlarmType::Nospace) {
        return Err(Error::NoSpace);
    }
    if context.store().size().in_use + cost < limit {
        return Ok(());
    }
    raise(context).await;
    Err(Error::NoSpace)
}

/// Whether any member raised this alarm.
pub fn has_alarm(context: &Context, alarm: AlarmType) -> bool {
    context
        .store()
        .alarms()
        .iter()
        .any(|row| row.alarm == alarm as i32)
}

fn request(context: &Context, action: AlarmAction) -> Body {
    Body::Alarm(AlarmRequest {
        action: action as i32,
        member_id: context.member().get(),
        alarm: AlarmType::Nospace as i32,
    })
}

async fn raise(context: &Context) {
    tracing::warn!(
        quota_bytes = context.config().quota.shown(),
        "storage space is used up; raising the NOSPACE alarm"
    );
    let body = request(context, AlarmAction::Activate);
    if let Err(error) = context.propose(body).await {
        tracing::warn!(%error, "cannot raise the NOSPACE alarm");
    }
}

/// Takes this member's alarm back when there is room again. Called now and then by the member.
pub async fn maybe_disarm(context: &Context) {
    let Quota::Bytes(limit) = context.config().quota else {
        return;
    };
    let own = context.store().alarms().iter().any(|row| {
        row.alarm == AlarmType::Nospace as i32 && row.member_id == context.member().get()
    });
    if !own || context.store().size().in_use > limit / 100 * LOW_WATER_PERCENT {
        return;
    }
    match context
        .propose(request(context, AlarmAction::Deactivate))
        .await
    {
        Ok(_) => tracing::info!("there is room again; took the NOSPACE alarm back"),
        Err(error) => tracing::warn!(%error, "cannot take the NOSPACE alarm back"),
    }
}

/// Watches over the alarm for as long as the member runs.
pub async fn keep_watch(context: Context) {
    loop {
        context.env().sleep(Duration::from_secs(1)).await;
        maybe_disarm(&context).await;
    }
}
