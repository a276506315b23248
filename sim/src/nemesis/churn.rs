//! Room `sim`, nemesis: members that come and go while all else happens. An operator with a client of his own adds
//! learners and voters on spare nodes, promotes, and removes whom he likes, leaders included.

use super::Record;
use crate::NodeId;
use crate::check::require;
use crate::rng::SimRng;
use crate::world::{CallError, Client, Joins, State, World};
use std::time::Duration;
use tenon_env::sync::watch;

/// Changes members until it is over. `spare` nodes may be added to the founders.
pub(crate) async fn churn(
    world: World,
    record: Record,
    mut rng: SimRng,
    spare: u64,
    over: watch::Receiver<bool>,
) {
    let mut client = world.client(98_000);
    client.patience = Duration::from_secs(3);
    let nodes: Vec<NodeId> = (1..=world.options().founders + spare).map(NodeId).collect();
    loop {
        let pause = Duration::from_millis(rng.between(50, 1_500));
        world.sim().sleep(pause).await;
        if *over.borrow() {
            return;
        }
        let node = *rng.pick(&nodes);
        change(&world, &record, &mut rng, &client, node).await;
    }
}

/// Does with the member of a node what can be done with it.
async fn change(world: &World, record: &Record, rng: &mut SimRng, client: &Client, node: NodeId) {
    let away = !world.nodes().contains(&node) || record.is_retired(node);
    if away && world.state(node) == State::Down {
        let joins = match rng.below(3) {
            0 => Joins::Voter,
            _ => Joins::Learner,
        };
        if world.join(client, node, joins).await.is_ok() {
            record.engage(node);
            record.count(match joins {
                Joins::Voter => "voter added",
                Joins::Learner => "learner added",
            });
            // Some operators are in a hurry.
            if joins == Joins::Learner && rng.chance(600_000) {
                promote(world, record, client, node).await;
            }
        }
        return;
    }
    let learns = is_learner(world, node);
    if learns && rng.chance(800_000) {
        return promote(world, record, client, node).await;
    }
    if away || !rng.chance(500_000) {
        return;
    }
    match world.remove(client, node).await {
        Ok(()) => {
            record.count("member removed");
            record.retire(node);
        }
        Err(CallError::Unknown(_)) => record.retire(node),
        Err(_) => {}
    }
}

/// Whether the leader lists the node's member as a learner.
fn is_learner(world: &World, node: NodeId) -> bool {
    let leader = world.leader().and_then(|leader| world.running(leader));
    let members = leader.map(|r| r.member.services().context.store().members());
    let url = crate::default_url(node);
    let mut members = members.into_iter().flatten();
    members.any(|m| m.is_learner && m.peer_urls.contains(&url))
}

/// Promotes a learner; whoever gets a vote must hold nine tenths of what was committed when it was asked for, as
/// the leader knows.
async fn promote(world: &World, record: &Record, client: &Client, node: NodeId) {
    let view = |world: &World| {
        let leader = world.running(world.leader()?)?;
        let context = leader.member.services().context.clone();
        Some((context.status(), context))
    };
    let before = view(world);
    if world.promote(client, node).await.is_err() {
        return;
    }
    record.count("learner promoted");
    let (Some((before, _)), Some((now, context))) = (before, view(world)) else {
        return;
    };
    let url = crate::default_url(node);
    let members = context.store().members();
    let member = members.iter().find(|m| m.peer_urls.contains(&url));
    // Another leader would know less of it.
    if now.member_id == before.member_id
        && now.term == before.term
        && let Some(member) = member
        && let Some(progress) = context.raft().progress().get(&member.id)
    {
        let (has, all) = (
            progress.matched.map_or(0, |m| m.get()),
            before.committed.get(),
        );
        record.docket().note(require((has + 1) * 10 >= all * 9, || {
            format!("{node} got a vote with {has} of {all} committed entries")
        }));
    }
}
