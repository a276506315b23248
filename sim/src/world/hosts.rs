//! Room `sim`, world: one life of a host, as the shell leads it, in a world whose nodes switch between server and
//! client. Its member, while it has one, stands in the world like any other.

use super::{Attached, Running, State, Why, World};
use crate::NodeId;
use crate::disk::CrashMode;
use crate::hosts::client_url;
use crate::sim::Control;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::Env;
use tenon_env::sync::watch;
use tenon_server::host::{Ended, Host, HostConfig, Mode};
use tenon_server::member::Member;
use tenon_server::member::config::RunningCluster;
use tenon_server::member::data_dir::is_fresh;
use tenon_server::service::Services;

/// Who answers behind a node.
pub(crate) enum Endpoint {
    Member(Services),
    Host(Host),
}

impl World {
    /// The node's host, in a world of hosts, while it is up.
    pub fn host(&self, node: impl Into<NodeId>) -> Option<Host> {
        let node = node.into();
        let host = self.0.places.lock().get(&node)?.host.clone();
        host.filter(|_| self.0.sim.is_alive(node))
    }

    /// Who answers clients behind a node, and where.
    pub(crate) fn endpoint(&self, node: NodeId) -> Option<(Env, Endpoint)> {
        if self.state(node) != State::Serving {
            return None;
        }
        if let Some(host) = self.host(node) {
            return Some((host.door().env().clone(), Endpoint::Host(host)));
        }
        let running = self.running(node)?;
        let services = running.member.services().clone();
        Some((running.env, Endpoint::Member(services)))
    }

    /// Cuts or mends both ways between two hosts' client ports; their peers are not touched.
    pub(crate) fn cut_ports(&self, a: NodeId, b: NodeId, cut: bool) {
        match cut {
            true => self.0.ports.cut(a.0, b.0),
            false => self.0.ports.mend(a.0, b.0),
        }
    }

    /// Has `look` called with every member that answers another host, before that hears the answer.
    pub(crate) fn on_answer(&self, look: impl Fn(&Services) + Send + Sync + 'static) {
        self.0.ports.on_answer(look);
    }

    /// Takes a part of a dead host's data away, as a broken disk does: all of it, or its member's storage only.
    pub(crate) fn lose(&self, node: NodeId, what: Lost) {
        let env = self.0.sim.restart(node);
        let (dir, sync): (PathBuf, PathBuf) = match what {
            Lost::Storage => (data_dir().join("member"), data_dir()),
            Lost::Everything => (PathBuf::from(super::config::DATA), PathBuf::from("/")),
        };
        let _ = env.disk.remove_dir_all(&dir);
        let _ = env.disk.sync_dir(Path::new(&sync));
        self.0.sim.kill(node, CrashMode::Kept);
        if what == Lost::Everything
            && let Some(place) = self.0.places.lock().get_mut(&node)
        {
            (place.lost, place.id) = (true, None);
        }
    }

    fn host_config(&self, node: NodeId, running: Option<RunningCluster>) -> HostConfig {
        let mut member = self.config(node, false, running);
        let own = (
            super::config::name(node),
            member.advertise_peer_urls.clone(),
        );
        member.initial_cluster.extend([own]);
        let lost = self.0.places.lock().get(&node).is_some_and(|p| p.lost);
        let is_founder = node.0 <= self.options().founders && !lost;
        let others = self.nodes().into_iter().filter(|other| *other != node);
        let mut config = HostConfig {
            mode: (!is_founder).then_some(Mode::Client),
            endpoints: others.map(|other| client_url(other.0)).collect(),
            ..HostConfig::new(member)
        };
        if let Some(options) = &self.options().hosts {
            config.edges = options.edges.clone();
            config.change_within = options.change_within;
        }
        config
    }

    pub(super) async fn live_as_host(
        &self,
        env: &Env,
        node: NodeId,
        life: u64,
        mut stopped: watch::Receiver<bool>,
    ) -> Why {
        let mut config = self.host_config(node, None);
        if config.mode != Some(Mode::Client) && is_fresh(env, &config.member) {
            let running = self.ask_peers(env, node).await;
            config = self.host_config(node, running);
        }
        let links = self.0.ports.links(node.0);
        let host = match Host::open(env, config, links).await {
            Ok(host) => host,
            Err(error) => return Why::NotStarted(error.to_string()),
        };
        if let Some(place) = self.0.places.lock().get_mut(&node) {
            place.host = Some(host.clone());
        }
        self.0.ports.open(node.0, host.clone());
        let serve = async {
            if let (Mode::Server, Some(member)) = (host.status().mode, host.member()) {
                member.wait_recovered().await;
                if let Err(reason) = member.check_initially().await {
                    return Why::Failed(reason);
                }
            }
            if let Some(place) = self.0.places.lock().get_mut(&node) {
                place.serving = true;
            }
            std::future::pending().await
        };
        let why = tokio::select! {
            biased;
            ended = host.ended() => match ended {
                Ended::Shutdown => return Why::Failed("nobody had told it to stop".to_owned()),
                Ended::Failed(reason) => return Why::Failed(reason),
                Ended::Removed(_) => Why::Removed,
            },
            why = serve => why,
            () = self.follow(&host, env, node, life) => {
                return Why::Failed("the host is gone, and nobody had told it to stop".to_owned());
            }
            _ = stopped.wait_for(|stop| *stop) => Why::Stopped,
        };
        if why == Why::Stopped {
            host.hand_over().await;
        }
        host.shutdown().await;
        why
    }

    /// Has the world know the host's member, whenever it has one. Ends with the host.
    async fn follow(&self, host: &Host, env: &Env, node: NodeId, life: u64) {
        let mut members = host.watch_member();
        loop {
            let member = members.borrow_and_update().clone();
            let old = match self.0.places.lock().get_mut(&node) {
                Some(place) => std::mem::replace(&mut place.member, member.clone()),
                None => None,
            };
            drop(old);
            if let Some(member) = member {
                let id = member.services().context.member();
                if let Some(place) = self.0.places.lock().get_mut(&node) {
                    place.id = Some(id);
                }
                let running = Running {
                    node,
                    life,
                    env: env.clone(),
                    member,
                    attached: Some(host.watch_member()),
                };
                if let Some(look) = &*self.0.on_start.lock() {
                    look(&running);
                }
            }
            if members.changed().await.is_err() {
                return;
            }
        }
    }
}

fn data_dir() -> PathBuf {
    PathBuf::from(super::config::DATA).join(super::config::DIR)
}

/// What stands on a node's disk of who its member is, running or not.
pub(crate) fn storage(sim: &Control, node: NodeId) -> Option<Vec<u8>> {
    let path = data_dir().join("member").join("identity");
    sim.disk(node).read(&path).ok()
}

/// What is lost of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Storage,
    Everything,
}

impl Running {
    /// Completes once the member's host has detached it; never for a member without a host.
    pub(crate) async fn detached(&self) {
        let Some(attached) = self.attached.clone() else {
            return std::future::pending().await;
        };
        until_other(attached, &self.member).await;
    }
}

async fn until_other(mut attached: Attached, own: &Member) {
    let own = own.services_shared();
    let is_other = |member: &Option<Member>| match member {
        Some(member) => !Arc::ptr_eq(&member.services_shared(), &own),
        None => true,
    };
    let _ = attached.wait_for(is_other).await;
}
