//! Room `server/host`: the steps from client to server: the host joins as a learner, copies the data and becomes a
//! voter; and the way back, which leaves nothing of it in the cluster or on the disk.

use super::super::automatic::without;
use super::super::core::{Aim, Core, StepError, StepResult};
use super::super::journal::Removal;
use super::super::orders::NOTHING;
use super::super::standing::judge_joining;
use super::down::{Undone, remove, see_gone};
use crate::member::Member;
use crate::member::config::{BootstrapState, KnownMember, RunningCluster};
use crate::service::method::Method;
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::host::{JoinRequest, JoinResponse};
use tenon_proto::ids::{ClusterId, MemberId};

/// Pause before the cluster is asked again to let this host in: another may be joining.
const QUEUE: Duration = Duration::from_millis(100);
/// Pause between looks at the catch-up.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time the first look at the cluster may take.
const CHECK_WITHIN: Duration = Duration::from_secs(10);

/// Looks for a learner of which this host never heard, after a request to join and after a start: a request under way may
/// come into force late.
pub(in super::super) const ORPHAN_LOOKS: u8 = 3;

/// The members did not answer.
pub(super) fn no_answer(error: &Error) -> StepError {
    StepError::failed(
        format!("the members do not answer: {error}"),
        "check that this host reaches the members' client URLs and that the cluster has a quorum",
    )
}

/// Refuses what the cluster would not survive.
pub(in super::super) async fn check(core: &mut Core, aim: &Aim) -> StepResult {
    if core.config.member.wal_dir.is_some() {
        return Err(StepError::failed(
            "the log would stand outside the data directory (--wal-dir), and storage is attached as a whole",
            "start the host without --wal-dir",
        ));
    }
    let soon = aim.deadline.min(core.env.now() + CHECK_WITHIN);
    let standing = core.standing(soon).await.map_err(|e| no_answer(&e))?;
    let standing = without(&standing, core.replaces);
    let refused = |why| StepError::failed(why, NOTHING);
    let warnings = judge_joining(&standing).map_err(refused)?;
    core.board
        .edit(|status| status.warnings.clone_from(&warnings));
    Ok(())
}

/// This host among the members: by the id in the journal, by the id on the disk, or by its peer URLs.
fn mine(core: &Core, stored: Option<MemberId>, members: &[pb::Member]) -> Option<pb::Member> {
    let ours = &core.config.member.advertise_peer_urls;
    let by_id = |id: MemberId| members.iter().find(|m| m.id == id.get());
    let by_url = || {
        let mut all = members.iter();
        all.find(|m| m.peer_urls.iter().any(|url| ours.contains(url)))
    };
    let known = core.journal.member.or(core.journal.leftover).or(stored);
    known.and_then(by_id).or_else(by_url).cloned()
}

/// Makes this host a learner of the cluster: the one it was before a crash, if its storage is still there, else a
/// new one. Hosts that join at the same time wait for each other here.
pub(super) async fn add_learner(core: &mut Core, aim: &Aim) -> StepResult {
    loop {
        let list = core.members_here_first(aim.deadline).await;
        let list = list.map_err(|e| no_answer(&e))?;
        let stored = core.stored().await?;
        match (mine(core, stored, &list.members), stored) {
            (Some(mine), Some(stored)) if mine.id == stored.get() => {
                return note_member(core, &list, stored).await;
            }
            // Its own of an earlier life, which goes when it joins.
            (Some(mine), _) if core.replaces == Some(MemberId(mine.id)) => {}
            (Some(mine), _) => remove_stale(core, &mine, aim.deadline).await?,
            (None, _) => {}
        }
        // Storage of a member that is none: nobody may vote by it again.
        core.detach().await?;
        core.delete().await?;
        core.orphan_looks = ORPHAN_LOOKS;
        let error = match join(core, aim.deadline).await {
            Ok(joined) => {
                core.orphan_looks = 0;
                let id = joined.member.map_or(0, |m| m.id);
                return note_member(core, &list, MemberId(id)).await;
            }
            Err(error) => error,
        };
        let passing = matches!(error, Error::TooManyLearners | Error::Unhealthy)
            || error.code() == Code::Unavailable;
        if !passing || core.env.now() + QUEUE >= aim.deadline {
            return Err(StepError::failed(
                format!("the cluster does not let this host in: {error}"),
                match error {
                    Error::TooManyLearners => {
                        "another learner takes the place: wait for its promotion, or remove it with \
                         `etcdctl member remove ID` if it is gone"
                    }
                    _ => "look at the members' health (`etcdctl endpoint health --cluster`)",
                },
            ));
        }
        core.env.sleep(QUEUE).await;
    }
}

async fn join(core: &Core, deadline: Instant) -> Result<JoinResponse, Error> {
    let request = JoinRequest {
        name: core.config.member.name.clone(),
        peer_urls: core.config.member.advertise_peer_urls.clone(),
        voters_target: core.config.automatic.map_or(0, |a| a.target()),
        replaces: core.replaces.map_or(0, MemberId::get),
    };
    core.ask(Method::MembersJoin, &request, deadline).await
}

async fn note_member(core: &mut Core, list: &pb::MemberListResponse, id: MemberId) -> StepResult {
    let cluster = list.header.as_ref().map_or(0, |h| h.cluster_id);
    core.save(|journal| {
        if ![journal.member, journal.leftover].contains(&Some(id)) {
            // Of this one nobody asked the removal yet.
            journal.removal = Removal::NotAsked;
        }
        journal.member = Some(id);
        journal.leftover = None;
        journal.cluster = ClusterId(cluster);
    })
    .await
}

/// A learner that never started and has exactly this host's URLs: what a request to join left of which no answer came.
pub(in super::super) async fn orphan(
    core: &Core,
    deadline: Instant,
) -> Result<Option<MemberId>, Error> {
    let list = core.members(deadline).await?;
    let mut members = list.members.iter();
    Ok(members
        .find(|m| never_started(core, m))
        .map(|m| MemberId(m.id)))
}

/// Whether a member never ran and can only be this host.
fn never_started(core: &Core, member: &pb::Member) -> bool {
    let mut theirs = member.peer_urls.clone();
    let mut ours = core.config.member.advertise_peer_urls.clone();
    theirs.sort();
    ours.sort();
    member.name.is_empty() && member.is_learner && theirs == ours
}

/// Removes a member that stands where this host should, if it is this host's own: the journal knows it, or it never
/// started and has exactly this host's URLs.
async fn remove_stale(core: &mut Core, stale: &pb::Member, deadline: Instant) -> StepResult {
    let id = MemberId(stale.id);
    let known = [core.journal.member, core.journal.leftover].contains(&Some(id));
    if !known && !never_started(core, stale) {
        return Err(StepError::failed(
            format!(
                "member {} ({id}) has this host's peer URL {}",
                stale.name,
                stale.peer_urls.join(",")
            ),
            "if it is gone for good, remove it with `etcdctl member remove ID`; else give this host \
             peer URLs of its own",
        ));
    }
    tracing::info!(member = %id, "removing what an earlier attempt left in the cluster");
    remove(core, id, deadline).await?;
    see_gone(core, id, deadline).await
}

/// Starts the member on storage of its own.
pub(super) async fn attach(core: &mut Core, aim: &Aim) -> StepResult {
    if core.member.is_some() {
        return Ok(());
    }
    let list = core.members(aim.deadline).await;
    let list = list.map_err(|e| no_answer(&e))?;
    let mut config = core.config.member.clone();
    config.initial_state = BootstrapState::Existing;
    config.cluster.joins_as = core.journal.member;
    config.cluster.running = Some(running(list));
    match Member::start(&core.env, config).await {
        Ok(member) => {
            core.attach(Some(member));
            Ok(())
        }
        Err(error) => Err(StepError::failed(
            format!("the member does not start: {error}"),
            "look at the data directory and the host's log",
        )),
    }
}

/// The cluster as its members tell.
fn running(list: pb::MemberListResponse) -> RunningCluster {
    let member = |m: pb::Member| KnownMember {
        id: MemberId(m.id),
        name: m.name,
        peer_urls: m.peer_urls,
        client_urls: m.client_urls,
        is_learner: m.is_learner,
    };
    RunningCluster {
        id: ClusterId(list.header.map_or(0, |h| h.cluster_id)),
        members: list.members.into_iter().map(member).collect(),
    }
}

/// Waits until the leader made this member a voter.
pub(super) async fn catch_up(core: &mut Core, aim: &Aim) -> StepResult {
    let Some(member) = core.member.clone() else {
        return Err(StepError::failed("no member is attached", "try again"));
    };
    loop {
        let status = member.services().context.status();
        core.board
            .caught_up(status.applied.get(), status.committed.get());
        if status.is_member && !status.is_learner && status.leader.is_some() {
            return Ok(());
        }
        if core.env.now() + LOOK >= aim.deadline {
            return Err(StepError::failed(
                format!(
                    "the leader did not make this host a voter in time (applied {} of {} entries)",
                    status.applied.get(),
                    status.committed.get()
                ),
                "give it more time (--timeout), or look at the connection to the leader's peer URL",
            ));
        }
        let end = std::pin::pin!(async {
            tokio::select! {
                biased;
                why = member.failed() => why,
                why = member.removed() => why,
            }
        });
        if let Some(why) = core.env.timeout(LOOK, end).await {
            return Err(StepError::failed(
                format!("the learner ended: {why}"),
                "look at the host's log and try again",
            ));
        }
    }
}

/// Back to a client: the learner leaves the cluster, then its storage goes. When the cluster cannot be asked, the
/// member keeps running, because by now it may be a voter whose vote is needed to remove it. Once it has a vote there is
/// no way back: the others may have left the cluster to it.
pub(in super::super) async fn undo(core: &mut Core, aim: &Aim) -> Result<Undone, StepError> {
    if core.has_vote() {
        return Ok(Undone::GoOn);
    }
    if let Some(remote) = core.remote.clone() {
        core.go_to(super::super::door::Backend::Remote(remote), aim)
            .await?;
    }
    let own = core.journal.member.or(core.journal.leftover);
    let removed = match own {
        None => Ok(()),
        Some(id) => clean(core, id, aim.deadline).await,
    };
    let leftover = removed.is_err().then_some(own).flatten();
    leave(core, leftover).await?;
    match removed {
        Err(StepError::Fatal(why)) => Err(StepError::Fatal(why)),
        _ => Ok(Undone::Back),
    }
}

/// The switch is over without success; this member is still to be removed, or to be made the host's own.
pub(in super::super) async fn leave(core: &mut Core, leftover: Option<MemberId>) -> StepResult {
    core.save(|journal| {
        journal.switching = None;
        journal.member = None;
        journal.leftover = leftover;
    })
    .await
}

/// Removes the host's former learner from the cluster, and then its storage. The journal keeps in mind that the removal
/// was asked for: it may come into force late, when a crash made the host go on and it is a server after all (seed 437
/// of hosts).
pub(in super::super) async fn clean(
    core: &mut Core,
    id: MemberId,
    deadline: Instant,
) -> StepResult {
    core.save(|journal| journal.removal = Removal::Asked)
        .await?;
    let env = core.env.clone();
    let left = deadline - env.now();
    let removed = env.timeout(left, async {
        remove(core, id, deadline).await?;
        see_gone(core, id, deadline).await
    });
    let late = || StepError::failed("there was no time left to clean up", "");
    removed.await.unwrap_or_else(|| Err(late()))?;
    core.detach().await?;
    core.delete().await
}
