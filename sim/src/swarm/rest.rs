//! Room `sim`, swarm: after the troubles: a healed quorum must go on although the rest is dead, and once all is
//! healed everything must come to rest in one state.

use super::run::Scene;
use crate::NodeId;
use crate::check::{Finding, Verdict, require, space};
use crate::disk::CrashMode;
use crate::history::{Outcome, Reply, Request};
use crate::world::{State, Why, World};
use bytes::Bytes;
use std::convert::Infallible;
use std::time::Duration;
use tenon_env::Task;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::MemberId;

/// How long anything may take once nothing disturbs it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl Scene {
    pub(super) async fn come_to_rest(&self, working: Vec<Task>) -> Verdict {
        self.heal();
        if self.plan.churn.is_none() && self.modes.is_none() && !self.plan.is_steady() {
            let core = self.core();
            let written = self.take_writes("a healed quorum takes writes", Some(&core));
            written
                .await
                .map_err(|f| Finding(format!("{f}; alive: {core:?}")))?;
        }
        self.found()?;
        self.heal();
        self.take_writes("the healed cluster takes writes", None)
            .await?;
        match self.modes {
            Some(_) => self.settle_hosts().await?,
            None => self.reconcile().await?,
        }
        for task in working {
            self.within(PATIENCE, "a worker ends", task.ended()).await?;
        }
        self.within(PATIENCE, "leases end", self.leases_end())
            .await?;
        self.agree().await?;
        let last = self.final_read().await?;
        let caught_up = async {
            while self.seen.last() < last && self.seen.finding().is_none() {
                self.world.sim().sleep(Duration::from_millis(10)).await;
            }
        };
        let what = "the watch of all catches up";
        self.within(PATIENCE, what, caught_up).await?;
        // Whoever watches a part has been told by now too, or never will.
        self.world.sim().sleep(Duration::from_millis(1_500)).await;
        self.space()?;
        self.exits_are_excused()?;
        self.found()
    }

    /// What must go on from here on has a network as etcd's guide asks for: a round trip takes no longer than the
    /// interval of heartbeats.
    fn heal(&self) {
        self.world.heal();
        let longest = self.plan.world.heartbeat / 2;
        let mut delay = self.plan.delay;
        delay.max = delay.max.min(longest.as_nanos() as u64);
        self.set_links(delay);
    }

    /// Kills all but a quorum of the founders; who that is.
    fn core(&self) -> Vec<NodeId> {
        let mut rng = self.world.sim().rng("core");
        let mut nodes = self.world.nodes();
        let dead = (nodes.len() - 1) / 2;
        for _ in 0..dead {
            let at = rng.below(nodes.len() as u64) as usize;
            self.world.kill(nodes.swap_remove(at), CrashMode::Torn);
        }
        nodes
    }

    /// As an operator would: whoever is down is started, and so is whoever any member lists as one: an addition
    /// or a removal of unknown outcome may have come into force. With a `core` nobody but its members is.
    pub(super) async fn help_the_lost(&self, core: Option<&[NodeId]>) -> Infallible {
        loop {
            let nodes = core.map_or_else(|| self.world.nodes(), <[NodeId]>::to_vec);
            for node in nodes {
                let exits = self.world.exits();
                let last = exits.into_iter().rev().find(|e| e.node == node);
                let removed = last.is_some_and(|exit| exit.why == Why::Removed);
                if self.world.state(node) == State::Down && !removed {
                    self.world.start(node);
                }
            }
            if core.is_none() {
                self.adopt_the_listed();
            }
            self.world.sim().sleep(Duration::from_millis(500)).await;
        }
    }

    fn adopt_the_listed(&self) {
        for at in self.world.nodes() {
            for (node, id) in list(&self.world, at).unwrap_or_default() {
                if !self.world.nodes().contains(&node) {
                    self.world.adopt(node, id);
                }
            }
        }
    }

    async fn take_writes(&self, what: &str, core: Option<&[NodeId]>) -> Verdict {
        let client = self.world.client(400);
        let desk = self.desk();
        let written = async {
            loop {
                let put = |id| {
                    Request::Put(pb::PutRequest {
                        key: Bytes::from_static(b"k00"),
                        value: Bytes::from(crate::history::tag(id)),
                        ..Default::default()
                    })
                };
                if let Outcome::Reply(_) = desk.call(&client, 400, put).await {
                    return;
                }
                self.world.sim().sleep(Duration::from_millis(50)).await;
            }
        };
        let help = self.help_the_lost(core);
        let (help, written) = (std::pin::pin!(help), std::pin::pin!(written));
        let helped = async {
            match futures_util::future::select(written, help).await {
                futures_util::future::Either::Left(_) => {}
                futures_util::future::Either::Right((never, _)) => match never {},
            }
        };
        self.within(PATIENCE, what, helped).await
    }

    /// Everybody whom the cluster lists is started and serves; everybody else is gone, or hears that he must go.
    async fn reconcile(&self) -> Verdict {
        let settled = async {
            loop {
                if let Some(list) = self.world.leader().and_then(|at| list(&self.world, at))
                    && self.adopt_all(&list)
                {
                    return;
                }
                self.world.sim().sleep(Duration::from_millis(50)).await;
            }
        };
        let done = self.within(PATIENCE, "all members serve", settled).await;
        done.map_err(|finding| {
            let nodes = self.world.nodes().into_iter();
            let states: Vec<_> = nodes.map(|n| (n.0, self.world.state(n))).collect();
            let exits = self.world.exits();
            let last = exits.iter().rev().take(4).collect::<Vec<_>>();
            Finding(format!("{finding}: {states:?}, {last:?}"))
        })
    }

    /// Starts who is listed and down. Whether all who are listed serve and nobody else runs.
    fn adopt_all(&self, list: &[(NodeId, MemberId)]) -> bool {
        let mut settled = true;
        for (node, id) in list {
            self.world.adopt(*node, *id);
            settled &= self.world.state(*node) == State::Serving;
        }
        let strangers = self.world.nodes().into_iter();
        let mut strangers = strangers.filter(|node| list.iter().all(|(n, _)| n != node));
        settled && strangers.all(|node| self.world.state(node) == State::Down)
    }

    async fn leases_end(&self) {
        let left = || {
            let nodes = self.world.all_serving().into_iter();
            let mut stores = nodes.filter_map(|n| self.world.running(n));
            stores.any(|r| {
                !r.member
                    .services()
                    .context
                    .store()
                    .leases()
                    .list()
                    .is_empty()
            })
        };
        while left() {
            self.world.sim().sleep(Duration::from_millis(100)).await;
        }
    }

    /// All members reach one applied position and hold one state there.
    async fn agree(&self) -> Verdict {
        let together = async {
            loop {
                let nodes = self.world.all_serving().into_iter();
                let applied: Vec<u64> = nodes
                    .filter_map(|n| self.world.status(n))
                    .map(|status| status.applied.get())
                    .collect();
                if applied.windows(2).all(|pair| pair[0] == pair[1]) {
                    return;
                }
                self.world.sim().sleep(Duration::from_millis(7)).await;
            }
        };
        self.within(PATIENCE, "all members apply the same", together)
            .await?;
        for node in self.world.all_serving() {
            if let Some(running) = self.world.running(node) {
                self.observer.sum_up(&running)?;
            }
        }
        Ok(())
    }

    /// Reads everything once more; the revision of the answer.
    async fn final_read(&self) -> Result<i64, Finding> {
        let client = self.world.client(401);
        let all = Bytes::from_static(b"\0");
        let desk = self.desk();
        for _ in 0..20 {
            let request = pb::RangeRequest {
                key: all.clone(),
                range_end: all.clone(),
                ..Default::default()
            };
            let told = desk.call(&client, 401, |_| Request::Range(request)).await;
            if let Outcome::Reply(reply @ Reply::Range(_)) = told {
                return Ok(reply.revision());
            }
        }
        Err(Finding("the cluster at rest does not answer".to_owned()))
    }

    fn space(&self) -> Verdict {
        let timeline = self.seen.timeline();
        let records: u64 = timeline
            .iter()
            .flat_map(|(_, events)| events)
            .filter_map(|event| event.kv.as_ref())
            .map(|kv| (kv.key.len() + kv.value.len() + 64) as u64)
            .sum();
        for node in self.world.all_serving() {
            if let Some(running) = self.world.running(node) {
                let log = running.member.wal().size().0;
                let used = self.world.sim().disk(node).used();
                let tuning = &self.plan.world.tuning;
                let held = space::check(&node.to_string(), (used, log), records, tuning);
                require(held.is_ok(), || format!("{held:?}"))?;
            }
        }
        Ok(())
    }
}

/// The members as one of them lists them: node and id.
pub(super) fn list(world: &World, at: NodeId) -> Option<Vec<(NodeId, MemberId)>> {
    let running = world.running(at)?;
    let members = running.member.services().context.store().members();
    let node = |url: &String| {
        let digits: String = url.chars().filter(char::is_ascii_digit).collect();
        // `http://n<id>:2380`
        digits.strip_suffix("2380")?.parse().ok().map(NodeId)
    };
    members
        .iter()
        .map(|m| Some((node(m.peer_urls.first()?)?, m.id)))
        .collect()
}
