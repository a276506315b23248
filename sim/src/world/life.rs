//! Room `sim`, world: one life of a member, as the shell leads it: ask the peers when there is no data, start,
//! recover, let clients in, and end by itself when the member failed or was removed.

use super::{Running, Why, World};
use crate::NodeId;
use crate::disk::CrashMode;
use tenon_env::Env;
use tenon_env::sync::watch;
use tenon_server::member::Member;
use tenon_server::member::config::{KnownMember, RunningCluster};
use tenon_server::member::data_dir::is_fresh;

impl World {
    /// Begins the next life of a member that is down. It runs by itself from here; see [`World::state`] and
    /// [`World::until_serving`].
    ///
    /// # Panics
    /// When the node is alive, or has no member.
    pub fn start(&self, node: impl Into<NodeId>) {
        let node = node.into();
        let mut places = self.0.places.lock();
        let place = places.get_mut(&node).expect("a node with a member");
        // A crash of which nobody has told yet.
        let crashed = place.stop.take().map(|_| place.life);
        place.life += 1;
        (place.member, place.host) = (None, None);
        place.serving = false;
        let (stop, stopped) = watch::channel(false);
        place.stop = Some(stop);
        let (life, joins) = (place.life, place.joined);
        drop(places);
        if let Some(life) = crashed {
            let why = Why::Killed;
            self.0.exits.lock().push(super::Exit { node, life, why });
        }
        let env = if life == 1 && !self.0.sim.is_known(node) {
            self.0.sim.node(node)
        } else {
            self.0.sim.restart(node)
        };
        let (world, its) = (self.clone(), env.clone());
        env.spawn("main", async move {
            let why = match world.options().hosts {
                Some(_) => world.live_as_host(&its, node, life, stopped).await,
                None => world.live(&its, node, life, joins, stopped).await,
            };
            // The process ends; what it had written stays in the machine's memory.
            world.0.sim.kill(node, CrashMode::Kept);
            world.ended(node, life, why);
        });
        let world = self.clone();
        self.0.operator.spawn("supervise", async move {
            world.0.sim.died(node).await;
            world.ended(node, life, Why::Killed);
        });
    }

    async fn live(
        &self,
        env: &Env,
        node: NodeId,
        life: u64,
        joins: bool,
        mut stopped: watch::Receiver<bool>,
    ) -> Why {
        let fresh = is_fresh(env, &self.config(node, joins, None));
        let running = match fresh {
            true => self.ask_peers(env, node).await,
            false => None,
        };
        let config = self.config(node, joins, running);
        let member = match Member::start(env, config).await {
            Ok(member) => member,
            Err(error) => return Why::NotStarted(error.to_string()),
        };
        let running = Running {
            node,
            life,
            env: env.clone(),
            member: member.clone(),
            attached: None,
        };
        if let Some(place) = self.0.places.lock().get_mut(&node) {
            place.member = Some(member.clone());
            place.id = Some(member.services().context.member());
        }
        if let Some(look) = &*self.0.on_start.lock() {
            look(&running);
        }
        let serve = async {
            member.wait_recovered().await;
            if let Err(reason) = member.check_initially().await {
                return Why::Failed(reason);
            }
            if let Some(place) = self.0.places.lock().get_mut(&node) {
                place.serving = true;
            }
            std::future::pending().await
        };
        let why = tokio::select! {
            biased;
            reason = member.failed() => return Why::Failed(reason),
            _ = member.removed() => Why::Removed,
            why = serve => why,
            _ = stopped.wait_for(|stop| *stop) => Why::Stopped,
        };
        if why == Why::Stopped {
            member.hand_over().await;
        }
        member.shutdown().await;
        why
    }

    /// What the others tell of a running cluster, when they can be reached: the one that knows this node, or
    /// else the first to answer.
    pub(super) async fn ask_peers(&self, env: &Env, node: NodeId) -> Option<RunningCluster> {
        let mut answers = Vec::new();
        for other in self.nodes().into_iter().filter(|other| *other != node) {
            let (there, back) = (
                self.0.sim.passage(node, other),
                self.0.sim.passage(other, node),
            );
            let (Some(there), Some(back)) = (there, back) else {
                continue;
            };
            env.sleep(there + back).await;
            if let Some(running) = self.running(other) {
                answers.push(list(&running));
            }
        }
        let own = [crate::default_url(node)];
        let knows = |running: &RunningCluster| running.members.iter().any(|m| m.peer_urls == own);
        let at = answers.iter().position(knows).unwrap_or(0);
        (at < answers.len()).then(|| answers.swap_remove(at))
    }

    /// Asks a member to stop in order, leadership handed over first; completes once it is down.
    pub async fn stop(&self, node: impl Into<NodeId>) {
        let node = node.into();
        if let Some(place) = self.0.places.lock().get(&node)
            && let Some(stop) = &place.stop
        {
            stop.send_replace(true);
        }
        if self.0.sim.is_alive(node) {
            self.0.sim.died(node).await;
        }
    }

    /// Waits until clients are let in at the node, by its member or its host; for ever if that never comes.
    pub async fn until_up(&self, node: impl Into<NodeId>) {
        let node = node.into();
        while self.state(node) != super::State::Serving {
            self.0.sim.sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Waits until the node's member lets clients in; for ever if it never does.
    pub async fn until_serving(&self, node: impl Into<NodeId>) -> Running {
        let node = node.into();
        loop {
            if let Some(running) = self.serving(node) {
                return running;
            }
            self.0.sim.sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// What a member tells of its cluster.
fn list(running: &Running) -> RunningCluster {
    let services = running.member.services();
    let known = services.cluster.members().into_iter().map(|m| KnownMember {
        id: m.id.into(),
        name: m.name,
        peer_urls: m.peer_urls,
        client_urls: m.client_urls,
        is_learner: m.is_learner,
    });
    RunningCluster {
        id: services.context.cluster(),
        members: known.collect(),
    }
}
