//! Room `server/member`: how a member leaves: it hands leadership over before it stops, and it notices that it
//! was removed from the cluster.

use crate::service::Context;
use std::time::Duration;
use tenon_proto::peer::ask::Ask;
use tenon_raft::MemberError;

/// How often a member looks whether it was removed.
const LOOK: Duration = Duration::from_millis(500);
/// Election timeouts without a leader after which a member asks the others whether it still belongs to them.
const LONELY: u32 = 3;
/// Pause before the voters are gone through once more.
const AGAIN: Duration = Duration::from_millis(100);

/// Hands leadership to another voter, when this member has it and somebody can take it. Bounded: two election
/// timeouts, after which the others elect one themselves.
pub(super) async fn hand_over(context: &Context) {
    let (env, me) = (context.env(), context.member());
    let deadline = env.now() + 2 * context.config().election;
    while env.now() < deadline {
        let status = context.status();
        let others: Vec<_> = status
            .voters
            .iter()
            .copied()
            .filter(|id| *id != me)
            .collect();
        if !status.is_leader || others.is_empty() {
            return;
        }
        for to in others {
            match context.raft().transfer_leader(to, deadline).await {
                Ok(()) => return tracing::info!(%to, "handed leadership over"),
                Err(MemberError::NotLeader(_)) => return,
                Err(error) => tracing::debug!(%to, %error, "cannot hand leadership over"),
            }
        }
        env.sleep(AGAIN).await;
    }
    tracing::warn!("no other member took leadership over");
}

/// Completes once this member is removed from the cluster: it applied that itself, or a peer said so.
///
/// Nobody calls on a removed member, and one whose log ends with its own removal has no vote to ask for: cut off
/// before that was committed it would wait for ever. So whoever is without a leader asks around; peers refuse a
/// member that was removed and say why.
pub(super) async fn removed(context: &Context) -> String {
    let mut told = context.raft().removed();
    let mut lonely = Duration::ZERO;
    loop {
        if let Some(text) = told.borrow_and_update().clone() {
            return text;
        }
        if context
            .store()
            .removed_members()
            .contains(&context.member())
        {
            // The others must hear of it too, from a leader that removed itself.
            context.env().sleep(LOOK).await;
            return format!("member {} was removed", context.member());
        }
        let changed = context.env().timeout(LOOK, told.changed());
        if changed.await.is_some_and(|changed| changed.is_err()) {
            std::future::pending::<()>().await;
        }
        lonely = match context.has_leader() {
            true => Duration::ZERO,
            false => lonely + LOOK,
        };
        if lonely > LONELY * context.config().election {
            lonely = Duration::ZERO;
            ask_around(context);
        }
    }
}

/// Asks every other member something of no consequence: the refusal is the answer.
fn ask_around(context: &Context) {
    let (raft, me) = (context.raft().clone(), context.member());
    let mut others = raft.acquaintances();
    others.extend(context.store().members().into_iter().map(|m| m.id));
    others.remove(&me);
    context.env().spawn("ask-around", async move {
        for id in others {
            let heard = Ask::HeardWithinMs(LOOK.as_millis() as u64);
            let _ = raft.ask(id, heard, LOOK).await;
        }
    });
}
