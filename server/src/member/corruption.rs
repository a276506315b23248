//! Room `server/member`: members compare the hashes of their keys, once before serving and now and then by the
//! leader. Who differs is named by the CORRUPT alarm, under which nothing is written any more.

use crate::service::{Services, asks::other_hash};
use std::collections::BTreeSet;
use std::time::Duration;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::{AlarmType, alarm_request::AlarmAction};
use tenon_proto::ids::MemberId;

/// How long another member may take for its hash.
const WITHIN: Duration = Duration::from_secs(5);

async fn own_hash(services: &Services) -> Result<pb::HashKvResponse, Error> {
    let (caller, request) = (Caller::default(), pb::HashKvRequest { revision: 0 });
    services.maintenance.hash_kv(&caller, request).await
}

/// What the other members answer for this revision. Those that are away, behind or compacted further are left
/// out.
async fn other_hashes(services: &Services, revision: i64) -> Vec<(MemberId, pb::HashKvResponse)> {
    let context = &services.context;
    let mut answers = Vec::new();
    for member in context.store().members() {
        if member.id == context.member() {
            continue;
        }
        match other_hash(context, member.id, revision, WITHIN).await {
            Ok(answer) => answers.push((member.id, answer)),
            Err(error) => tracing::info!(member = %member.id, %error, "no hash to compare with"),
        }
    }
    answers
}

/// Compares once before serving; the error says that this member differs.
pub(super) async fn check_initially(services: &Services) -> Result<(), String> {
    let text = |error: Error| error.message();
    let own = own_hash(services).await.map_err(text)?;
    let others = other_hashes(services, own.hash_revision).await;
    let differs = |other: &pb::HashKvResponse| {
        other.compact_revision == own.compact_revision && other.hash != own.hash
    };
    let odd = others.iter().filter(|(_, other)| differs(other)).count();
    if odd == 0 {
        tracing::info!(compared = others.len(), "initial corruption check passed");
        return Ok(());
    }
    Err(format!(
        "{} found data inconsistency with peers",
        services.context.member()
    ))
}

/// Compares every `period` while this member leads.
pub(super) async fn check_now_and_then(services: Services, period: Duration) {
    if period.is_zero() {
        return;
    }
    loop {
        services.context.env().sleep(period).await;
        if services.context.status().is_leader
            && let Err(error) = check(&services).await
        {
            tracing::warn!(%error, "cannot compare hashes with the other members");
        }
    }
}

async fn check(services: &Services) -> Result<(), Error> {
    let first = own_hash(services).await?;
    let others = other_hashes(services, first.hash_revision).await;
    services.context.read_barrier().await?;
    let second = own_hash(services).await?;
    for member in differing(services.context.member(), &first, &second, &others) {
        tracing::error!(%member, "its keys differ from the leader's; raising the CORRUPT alarm");
        let alarm = pb::AlarmRequest {
            action: AlarmAction::Activate as i32,
            member_id: member.get(),
            alarm: AlarmType::Corrupt as i32,
        };
        services.context.propose(alarm.into()).await?;
    }
    Ok(())
}

/// Members whose keys are not the leader's, which hashed itself before and after it asked.
fn differing(
    own: MemberId,
    first: &pb::HashKvResponse,
    second: &pb::HashKvResponse,
    others: &[(MemberId, pb::HashKvResponse)],
) -> BTreeSet<MemberId> {
    let revision = |hash: &pb::HashKvResponse| hash.header.as_ref().map_or(0, |h| h.revision);
    let mut found = BTreeSet::new();
    let same_state = first.hash_revision == second.hash_revision
        && first.compact_revision == second.compact_revision;
    if same_state && first.hash != second.hash {
        found.insert(own);
    }
    for (member, other) in others {
        let ahead =
            revision(other) > revision(second) || other.compact_revision > second.compact_revision;
        let other_keys =
            other.compact_revision == first.compact_revision && other.hash != first.hash;
        if ahead || other_keys {
            found.insert(*member);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(hash: u32, revision: i64, compact_revision: i64) -> pb::HashKvResponse {
        let header = pb::ResponseHeader {
            revision,
            ..Default::default()
        };
        pb::HashKvResponse {
            header: Some(header),
            hash,
            compact_revision,
            hash_revision: revision,
        }
    }

    #[test]
    fn who_differs_is_named_and_nobody_else() {
        let own = MemberId(1);
        let named = |first, second, other| {
            let found = differing(own, &first, &second, &[(MemberId(2), other)]);
            found.into_iter().map(MemberId::get).collect::<Vec<_>>()
        };
        assert_eq!(
            named(hash(7, 5, -1), hash(7, 5, -1), hash(7, 5, -1)),
            [0_u64; 0]
        );
        assert_eq!(named(hash(7, 5, -1), hash(7, 5, -1), hash(8, 5, -1)), [2]);
        assert_eq!(
            named(hash(7, 5, -1), hash(9, 6, -1), hash(7, 5, -1)),
            [0_u64; 0],
            "writes go on"
        );
        assert_eq!(
            named(hash(7, 5, -1), hash(8, 5, -1), hash(7, 5, -1)),
            [1],
            "it changed alone"
        );
        assert_eq!(
            named(hash(7, 5, 3), hash(7, 5, 3), hash(8, 5, -1)),
            [0_u64; 0],
            "compacts later"
        );
        assert_eq!(
            named(hash(7, 5, -1), hash(7, 5, -1), hash(7, 9, -1)),
            [2],
            "from the future"
        );
        assert_eq!(
            named(hash(7, 5, -1), hash(7, 5, -1), hash(7, 5, 4)),
            [2],
            "compacted alone"
        );
    }
}
