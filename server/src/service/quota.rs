//! Room `server/service`: the space limit. A write that would cross it raises the cluster's NOSPACE alarm and
//! is refused; while the alarm stands, every write that could add data is. Unlike etcd's, the alarm ends by
//! itself once deletes and compaction brought use below the low-water mark (`docs/differences.md`).

use super::context::Context;
use crate::member::config::Quota;
use std::sync::atomic::Ordering;
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
    context.raised_nospace().store(true, Ordering::Relaxed);
    let body = request(context, AlarmAction::Activate);
    if let Err(error) = context.propose(body).await {
        tracing::warn!(%error, "cannot raise the NOSPACE alarm");
    }
}

/// Whether this member's alarm stands.
fn own_alarm(context: &Context) -> bool {
    let is_own = |member: u64, alarm: i32| {
        alarm == AlarmType::Nospace as i32 && member == context.member().get()
    };
    let alarms = context.store().alarms();
    alarms.iter().any(|row| is_own(row.member_id, row.alarm))
}

/// Takes this member's alarm back when there is room again; one that an operator raised is the operator's.
async fn maybe_disarm(context: &Context) {
    let Quota::Bytes(limit) = context.config().quota else {
        return;
    };
    let raised = context.raised_nospace().load(Ordering::Relaxed);
    let is_short = context.store().size().in_use > limit / 100 * LOW_WATER_PERCENT;
    if !raised || is_short || !own_alarm(context) {
        return;
    }
    let body = request(context, AlarmAction::Deactivate);
    match context.propose(body).await {
        Ok(_) => {
            context.raised_nospace().store(false, Ordering::Relaxed);
            tracing::info!("there is room again; took the NOSPACE alarm back");
        }
        Err(error) => tracing::warn!(%error, "cannot take the NOSPACE alarm back"),
    }
}

/// Watches over the alarm for as long as the member runs.
pub async fn keep_watch(context: Context) {
    // Who raised an alarm that stands at the start is not known; it is taken for this member's own.
    let stands = own_alarm(&context);
    context.raised_nospace().store(stands, Ordering::Relaxed);
    loop {
        context.env().sleep(Duration::from_secs(1)).await;
        maybe_disarm(&context).await;
    }
}
