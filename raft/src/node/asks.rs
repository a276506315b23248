//! Room `raft`: questions between the services of members. This room carries them; the services answer, but for
//! the one question that raft knows best: who is heard by the leader.

use super::Node;
use crate::error::Reason;
use crate::network::Lost;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_proto::ids::MemberId;
use tenon_proto::peer::{self, ask, ask_reply, request, response};

/// Answers what services of other members ask.
pub(crate) type Answerer =
    Arc<dyn Fn(ask::Ask) -> BoxFuture<'static, ask_reply::Reply> + Send + Sync>;

/// Where the answerer stands once the services are there.
#[derive(Default)]
pub(crate) struct Desk(Mutex<Option<Answerer>>);

impl Node {
    pub(crate) fn answer_asks_by(&self, answerer: Answerer) {
        *self.0.asks.0.lock() = Some(answerer);
    }

    /// Asks the services of another member.
    pub(crate) async fn ask_services(
        &self,
        member: MemberId,
        ask: ask::Ask,
        within: Duration,
    ) -> Result<ask_reply::Reply, Reason> {
        let body = request::Body::Ask(peer::Ask { ask: Some(ask) });
        match self.0.links.to(member.0).call(body, within).await {
            Ok(response::Body::Ask(peer::AskReply { reply: Some(reply) })) => Ok(reply),
            Err(Lost::NotSent(_)) => Err(Reason::NoLeader),
            Ok(_) | Err(Lost::Unknown(_)) => Err(Reason::StreamBroken),
        }
    }

    /// A question that a peer brings.
    pub(crate) async fn take_ask(&self, asked: peer::Ask) -> Result<peer::AskReply, String> {
        let reply = match asked.ask {
            None => return Err("a question that this version does not know".to_owned()),
            Some(ask::Ask::HeardWithinMs(ms)) => {
                let heard = self.heard_within(Duration::from_millis(ms));
                ask_reply::Reply::Heard(peer::Heard {
                    members: heard.keys().map(|id| id.0).collect(),
                    behind: heard.into_values().collect(),
                })
            }
            Some(ask::Ask::Removed(_)) => {
                let text = format!("another member says that {} was removed", self.member());
                self.0.removed.send_replace(Some(text));
                ask_reply::Reply::Heard(peer::Heard::default())
            }
            Some(ask) => {
                let answerer = self.0.asks.0.lock().clone();
                let answerer = answerer.ok_or("the services of this member do not run")?;
                answerer(ask).await
            }
        };
        Ok(peer::AskReply { reply: Some(reply) })
    }

    /// Members that acknowledged a heartbeat of this leader within the time, itself among them, and how many
    /// entries each lacks. Of a member that does not lead, only itself.
    pub(crate) fn heard_within(&self, within: Duration) -> BTreeMap<MemberId, u64> {
        let now = self.env().now();
        let heard: Vec<u64> = {
            let metrics = self.0.raft.data_metrics();
            let metrics = metrics.borrow_watched();
            let peers = metrics.heartbeat.iter().flatten();
            let lately = peers.filter(|(_, at)| {
                at.as_ref()
                    .is_some_and(|at| now - at.into_inner().0 <= within)
            });
            lately.map(|(id, _)| *id).collect()
        };
        // Not under the look above: a second one would wait for a writer that waits for the first.
        let behind = |id: u64| {
            let (matched, last) = self.progress(id);
            (MemberId(id), last - matched.unwrap_or(0).min(last))
        };
        let mut standing: BTreeMap<MemberId, u64> = heard.into_iter().map(behind).collect();
        standing.insert(self.member(), 0);
        standing
    }

    /// As [`Node::heard_within`], of the leader.
    pub(crate) async fn heard_by_leader(
        &self,
        within: Duration,
        patience: Duration,
    ) -> Result<BTreeMap<MemberId, u64>, Reason> {
        let leader = self.leader().ok_or(Reason::NoLeader)?;
        if leader == self.member() {
            return Ok(self.heard_within(within));
        }
        let ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        match self
            .ask_services(leader, ask::Ask::HeardWithinMs(ms), patience)
            .await?
        {
            ask_reply::Reply::Heard(heard) => {
                let behind = heard.behind.into_iter().chain(std::iter::repeat(0));
                Ok(heard
                    .members
                    .into_iter()
                    .map(MemberId)
                    .zip(behind)
                    .collect())
            }
            _ => Err(Reason::StreamBroken),
        }
    }
}
