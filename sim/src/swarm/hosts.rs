//! Room `sim`, swarm: what runs of hosts have beside the others: operators that switch them, and at the end every host
//! in one working mode: its switches over, nothing left of them, the cluster's list and the host of one mind, and its
//! endpoint answering.

use super::rest::{PATIENCE, list};
use super::run::Scene;
use crate::NodeId;
use crate::check::{Finding, Verdict};
use crate::history::{Outcome, Request, tag};
use crate::nemesis::{self, Operator};
use bytes::Bytes;
use std::time::Duration;
use tenon_env::Task;
use tenon_proto::etcdserverpb as pb;
use tenon_server::host::Mode;

impl Scene {
    pub(super) fn start_operators(&self) -> Vec<Task> {
        let (Some(plan), Some(modes)) = (&self.plan.switching, &self.modes) else {
            return Vec::new();
        };
        let operator = |purpose: &str| Operator {
            world: self.world.clone(),
            record: self.record.clone(),
            modes: modes.clone(),
            rng: self.world.sim().rng(purpose),
            plan: plan.clone(),
            over: self.over.subscribe(),
        };
        let at = self.world.operator();
        let mut tasks = vec![at.spawn("operator", operator("switches").order())];
        if plan.loses_disk {
            let lose = nemesis::lose_a_disk(operator("lost disk"));
            tasks.push(at.spawn("lost disk", lose));
        }
        tasks
    }

    /// What stands in the way of rest at one host; `None` once it is what it should be.
    fn unsettled(&self, node: NodeId, servers: &[NodeId]) -> Option<String> {
        let Some(host) = self.world.host(node) else {
            return Some(format!("{node} is down"));
        };
        let status = host.status();
        let listed = servers.contains(&node);
        let agree = listed == (status.mode == Mode::Server);
        let settled = nemesis::is_settled(&self.world, node);
        let text = || {
            let (mode, at) = (status.mode, status.progress.as_ref().map(|p| p.step));
            let (error, left) = (&status.error, status.leftover);
            format!("{node} is a {mode}, listed {listed}, at {at:?}, left {left:?}, said {error:?}")
        };
        (!settled || !agree).then(text)
    }

    pub(super) async fn settle_hosts(&self) -> Verdict {
        let mut why = Vec::new();
        let settled = async {
            loop {
                self.world.sim().sleep(Duration::from_millis(50)).await;
                let Some(listed) = self.world.leader().and_then(|at| list(&self.world, at)) else {
                    why = vec!["nobody leads".to_owned()];
                    continue;
                };
                let servers: Vec<NodeId> = listed.into_iter().map(|(node, _)| node).collect();
                let nodes = self.world.nodes().into_iter();
                why = nodes
                    .filter_map(|node| self.unsettled(node, &servers))
                    .collect();
                if why.is_empty() && !self.record.is_closed() {
                    return;
                }
            }
        };
        let settled = self.helped(settled);
        let done = self.within(2 * PATIENCE, "all hosts settle", settled).await;
        done.map_err(|found| {
            let exits = self.world.exits();
            let last = exits.iter().rev().take(4).collect::<Vec<_>>();
            Finding(format!("{found}: {}; last ends: {last:?}", why.join("; ")))
        })?;
        for node in self.world.nodes() {
            let mut told = None;
            let works = self.helped(self.works(node, &mut told));
            let done = self.within(PATIENCE, "a host at rest answers", works).await;
            done.map_err(|found| Finding(format!("{node} told {told:?}: {found}")))?;
        }
        Ok(())
    }

    /// Whoever is down is started: a stop in order that was ordered before the end takes its time (seed 14). Nobody goes
    /// down by itself unnoticed: `exits_are_excused` judges why.
    async fn helped(&self, work: impl Future<Output = ()>) {
        let help = self.help_the_lost(None);
        let (work, help) = (std::pin::pin!(work), std::pin::pin!(help));
        let _ = futures_util::future::select(work, help).await;
    }

    /// A host's endpoint takes a write.
    async fn works(&self, node: NodeId, told: &mut Option<Outcome>) {
        let mut client = self.world.client(410 + node.0);
        client.pinned = Some(node);
        let desk = self.desk();
        let put = |id| {
            Request::Put(pb::PutRequest {
                key: Bytes::from_static(b"k00"),
                value: Bytes::from(tag(id)),
                ..Default::default()
            })
        };
        loop {
            let outcome = desk.call(&client, 410, put).await;
            if matches!(outcome, Outcome::Reply(_)) {
                return;
            }
            *told = Some(outcome);
            self.world.sim().sleep(Duration::from_millis(50)).await;
        }
    }
}
