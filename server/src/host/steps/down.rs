//! Room `server/host`: the steps from server to client: what must hold before, leadership handed over, the own
//! member removed while it runs, and the way back when that fails.

use super::super::config::FaultTolerance;
use super::super::core::{Aim, Core, StepError, StepResult};
use super::super::door::Backend;
use super::super::journal::Removal;
use super::super::orders::NOTHING;
use super::super::standing::{judge_leaving, tolerates_faults};
use super::up::no_answer;
use crate::service::method::Method;
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::MemberId;

/// Pause between looks.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time the first look at the cluster may take: an operator who asks a cluster without a quorum should
/// hear so soon.
const CHECK_WITHIN: Duration = Duration::from_secs(4);

/// Shortest time for the endpoint to come back to the member.
const HOME_WITHIN: Duration = Duration::from_secs(1);

fn own(core: &Core) -> Result<MemberId, StepError> {
    let attached = core.member.as_ref().map(|m| m.services().context.member());
    attached
        .or(core.journal.member)
        .ok_or_else(|| StepError::failed("this host has no member", "see `tenon host status`"))
}

/// Refuses what the cluster would not survive, before anything is touched.
pub(in super::super) async fn check(core: &mut Core, aim: &Aim) -> StepResult {
    let own = own(core)?;
    if core.config.member.wal_dir.is_some() {
        return Err(StepError::failed(
            "the log stands outside the data directory (--wal-dir), and storage is detached by one rename",
            "start the host without --wal-dir",
        ));
    }
    let soon = aim.deadline.min(core.env.now() + CHECK_WITHIN);
    let standing = core.standing(soon).await.map_err(|error| {
        StepError::failed(
            format!("the cluster has no working quorum now: {error}"),
            "bring its members back first; nothing was changed",
        )
    })?;
    let refused = |why| StepError::failed(why, NOTHING);
    let warnings = judge_leaving(&standing, own).map_err(refused)?;
    core.board
        .edit(|status| status.warnings.clone_from(&warnings));
    if aim.fault_tolerance == FaultTolerance::Require && !tolerates_faults(&warnings) {
        return Err(StepError::failed(
            format!("{} (and --require-fault-tolerance)", warnings.join("; ")),
            "make another host a server first, or do without --require-fault-tolerance; nothing was changed",
        ));
    }
    let others = standing.members.iter().filter(|m| m.id != own.get());
    let (mut live, mut rest) = (Vec::new(), Vec::new());
    for member in others.filter(|m| !m.is_learner) {
        let list = if member.heard { &mut live } else { &mut rest };
        list.extend(member.client_urls.iter().cloned());
    }
    live.append(&mut rest);
    core.planned_endpoints(live);
    Ok(())
}

/// Makes sure that the other members answer this host.
pub(super) async fn reach(core: &mut Core, aim: &Aim) -> StepResult {
    if core.journal.endpoints.is_empty() {
        check(core, aim).await?;
    }
    let remote = core.ask_through(core.journal.endpoints.clone());
    remote.ready(aim.deadline).await.map_err(|error| {
        StepError::failed(
            format!("no other member answers clients: {error}"),
            "check that this host reaches the members' client URLs; nothing was changed",
        )
    })
}

/// Gives leadership away, if this member has it.
pub(super) async fn hand_over(core: &mut Core, aim: &Aim) -> StepResult {
    let Some(member) = core.member.clone() else {
        return Ok(());
    };
    let context = &member.services().context;
    loop {
        let status = context.status();
        if !status.is_leader {
            return Ok(());
        }
        if status.voters.iter().all(|id| *id == context.member()) {
            return Err(StepError::failed(
                "this host became the last voting member of its cluster meanwhile",
                "make another host a server first; nothing was changed",
            ));
        }
        if core.env.now() >= aim.deadline {
            return Err(core_time(core));
        }
        member.hand_over().await;
        // It may return at once, when nobody can be asked.
        core.env.sleep(LOOK).await;
    }
}

fn core_time(_: &Core) -> StepError {
    StepError::failed(
        "no other member took leadership over in time",
        "look at the other members' health; nothing was changed",
    )
}

/// Removes the own member from the cluster while it runs. Asked of the others: the one that is removed may never
/// hear that it was.
pub(super) async fn remove_self(core: &mut Core, aim: &Aim) -> StepResult {
    let own = own(core)?;
    if core.remote.is_none() {
        core.ask_through(core.journal.endpoints.clone());
    }
    core.save(|journal| journal.removal = Removal::Asked)
        .await?;
    remove(core, own, aim.deadline).await
}

/// Removes a member; done when it is none, whoever removed it.
pub(super) async fn remove(core: &mut Core, id: MemberId, deadline: Instant) -> StepResult {
    loop {
        let request = pb::MemberRemoveRequest { id: id.get() };
        let asked = core.ask::<_, pb::MemberRemoveResponse>(
            Method::ClusterMemberRemove,
            &request,
            deadline,
        );
        let error = match asked.await {
            Ok(_) | Err(Error::MemberNotFound) => return Ok(()),
            Err(error) => error,
        };
        // What is refused for good, and what nobody knows the fate of, differ: only the list tells.
        if let Ok(list) = core.members(deadline).await
            && !list.members.iter().any(|m| m.id == id.get())
        {
            return Ok(());
        }
        let passing = matches!(
            error.code(),
            tenon_proto::code::Code::Unavailable | tenon_proto::code::Code::DeadlineExceeded
        );
        if !passing || core.env.now() >= deadline {
            return Err(StepError::failed(
                format!("the cluster does not remove member {id}: {error}"),
                "look at the members' health (`etcdctl endpoint health --cluster`) and try again",
            ));
        }
        core.env.sleep(LOOK).await;
    }
}

/// Waits until a quorum says that the member is gone.
pub(super) async fn see_removal(core: &mut Core, aim: &Aim) -> StepResult {
    let own = own(core)?;
    let list = core
        .members(aim.deadline)
        .await
        .map_err(|e| no_answer(&e))?;
    let (ours, its) = (
        core.journal.cluster.get(),
        list.header.map_or(0, |h| h.cluster_id),
    );
    if ours != 0 && ours != its {
        // Of course it is not there.
        return Err(StepError::failed(
            format!(
                "the members that answer are of cluster {its:x}, and this host of cluster {ours:x}"
            ),
            "see that the endpoints lead to this host's cluster",
        ));
    }
    see_gone(core, own, aim.deadline).await
}

/// Waits until a quorum says that a member is none any more.
pub(super) async fn see_gone(core: &Core, id: MemberId, deadline: Instant) -> StepResult {
    loop {
        match core.members(deadline).await {
            Ok(list) if !list.members.iter().any(|m| m.id == id.get()) => return Ok(()),
            Ok(_) => {}
            Err(error) if core.env.now() >= deadline => return Err(no_answer(&error)),
            Err(_) => {}
        }
        if core.env.now() >= deadline {
            return Err(StepError::failed(
                format!("member {id} is still in the cluster"),
                "look at `etcdctl member list` and try again",
            ));
        }
        core.env.sleep(LOOK).await;
    }
}

/// What became of a switch that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Undone {
    /// The host is what it was.
    Back,
    /// The removal is committed: the only way is on.
    GoOn,
}

/// Back to a server, unless the removal is committed already.
pub(in super::super) async fn undo(core: &mut Core, aim: &Aim) -> Result<Undone, StepError> {
    if core.journal.removal == Removal::Asked {
        let own = own(core)?;
        if core.member.is_none() || see_gone_once(core, own, aim.deadline).await {
            return Ok(Undone::GoOn);
        }
    }
    if let Some(member) = &core.member {
        let services = member.services_shared();
        // Asking took time; coming home has its own.
        let aim = Aim {
            deadline: aim.deadline.max(core.env.now() + HOME_WITHIN),
            ..aim.clone()
        };
        core.go_to(Backend::Member(services), &aim).await?;
    }
    // A removal that was asked for may still come into force; the journal keeps it in mind.
    core.save(|journal| journal.switching = None).await?;
    if let Some(remote) = core.remote.take() {
        remote.shutdown();
    }
    Ok(Undone::Back)
}

async fn see_gone_once(core: &Core, own: MemberId, deadline: Instant) -> bool {
    let list = core.members_here_first(deadline).await;
    list.is_ok_and(|list| !list.members.iter().any(|m| m.id == own.get()))
}
