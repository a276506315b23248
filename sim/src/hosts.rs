//! Room `sim`, hosts: whole hosts that switch between server and client, in one simulated world. A call to a host
//! goes through its door; what a client-mode host asks of members crosses a simulated link of its own, so that peers
//! and clients can be cut off apart. May use everything of `server` but the shell.

mod ports;
mod upstream;

#[cfg(test)]
mod tests;

use crate::disk::CrashMode;
use crate::sim::{Control, Sim};
use crate::{NodeId, default_url};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::Env;
use tenon_env::sync::oneshot;
use tenon_proto::etcdserverpb as pb;
use tenon_server::host::edges::Edges;
use tenon_server::host::{Automatic, ChangeError, ChangeOptions, Host, HostConfig, Mode};
use tenon_server::member::config::MemberConfig;

pub(crate) use ports::{Ports, Way};

/// Where every host keeps its data.
const DATA: &str = "/data/h";

/// The client URL of a node's host.
pub fn client_url(node: u64) -> String {
    format!("http://n{node}:2379")
}

/// Hosts by the number of their node. Clones name the same world.
#[derive(Clone)]
pub struct Hosts {
    sim: Control,
    operator: Env,
    ports: Ports,
    founders: u64,
    edges: Edges,
    automatic: Option<Automatic>,
    /// Nodes that were up at some time.
    ever: Arc<Mutex<BTreeSet<u64>>>,
}

impl Hosts {
    /// A world in which nodes 1 to `founders` found a cluster; further ones begin as clients.
    pub fn new(sim: &Sim, founders: u64, edges: Edges) -> Hosts {
        Hosts {
            sim: (**sim).clone(),
            operator: sim.node(99),
            ports: Ports::new(sim, Way::Own),
            founders,
            edges,
            automatic: None,
            ever: Arc::default(),
        }
    }

    /// The same world with automatic membership: a host is told the addresses of those that were there before it.
    #[must_use]
    pub fn automatic(self, automatic: Automatic) -> Hosts {
        Hosts {
            automatic: Some(automatic),
            ..self
        }
    }

    fn config(&self, node: u64) -> HostConfig {
        let name = |n: u64| format!("h{n}");
        let founder = |n| (name(n), vec![default_url(n)]);
        let mut cluster: BTreeMap<_, _> = (1..=self.founders).map(founder).collect();
        cluster.insert(name(node), vec![default_url(node)]);
        let member = MemberConfig {
            advertise_client_urls: vec![client_url(node)],
            initial_cluster: cluster,
            cluster_token: "sim".to_owned(),
            snapshot_catchup_entries: 50,
            compaction_batch: 10,
            compaction_pause: Duration::from_millis(5),
            warn_apply: Duration::ZERO,
            ..MemberConfig::sole(&name(node), DATA, vec![default_url(node)])
        };
        let known: Vec<u64> = match self.automatic {
            None => (1..=self.founders).collect(),
            Some(_) => self.ever.lock().iter().copied().collect(),
        };
        let endpoints = known.into_iter().filter(|n| *n != node);
        let is_told = self.automatic.is_none() && node > self.founders;
        HostConfig {
            mode: is_told.then_some(Mode::Client),
            endpoints: endpoints.map(client_url).collect(),
            automatic: self.automatic,
            edges: self.edges.clone(),
            ..HostConfig::new(member)
        }
    }

    /// Starts a host, for the first time or again.
    ///
    /// # Errors
    /// Why it does not start.
    pub async fn start(&self, node: u64) -> Result<(), String> {
        let env = match self.sim.is_known(node) {
            true => self.sim.restart(node),
            false => self.sim.node(node),
        };
        let (config, upstream) = (self.config(node), self.ports.links(node));
        let (tx, rx) = oneshot::channel();
        let its = env.clone();
        env.spawn("start", async move {
            let opened = Host::open(&its, config, upstream).await;
            let _ = tx.send(opened.map_err(|e| e.to_string()));
        });
        let opened = self.operator.timeout(Duration::from_secs(60), rx).await;
        let opened = opened.ok_or("the start hangs")?;
        let host = opened.map_err(|_| "the node died")??;
        self.ports.open(node, host);
        self.ever.lock().insert(node);
        Ok(())
    }

    /// Starts several hosts at once.
    ///
    /// # Errors
    /// The first that does not start.
    pub async fn start_all(&self, nodes: impl IntoIterator<Item = u64>) -> Result<(), String> {
        for node in nodes {
            self.start(node).await?;
        }
        Ok(())
    }

    /// Cuts the power of a host.
    pub fn kill(&self, node: u64) {
        self.ports.close(node);
        self.sim.kill(node, CrashMode::Lost);
    }

    /// The host of a node that is up.
    ///
    /// # Errors
    /// A text when it is down.
    pub fn host(&self, node: u64) -> Result<Host, String> {
        let host = self.ports.host(node);
        host.ok_or_else(|| format!("host {node} is down"))
    }

    /// Cuts what one node's host asks of another's clients' port; peers are not touched.
    pub fn cut_clients(&self, from: u64, to: u64) {
        self.ports.cut(from, to);
    }

    /// Ends [`Hosts::cut_clients`].
    pub fn mend_clients(&self, from: u64, to: u64) {
        self.ports.mend(from, to);
    }

    /// Runs work as a task of a node; an error when the node died over it or it took more than a minute.
    async fn at<T, F>(&self, node: u64, work: impl FnOnce(Host) -> F) -> Result<T, String>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let host = self.host(node)?;
        let (env, work) = (host.door().env().clone(), work(host));
        let (tx, rx) = oneshot::channel();
        env.spawn("work", async move {
            let _ = tx.send(work.await);
        });
        let done = self.operator.timeout(Duration::from_secs(90), rx).await;
        let done = done.ok_or_else(|| format!("work at host {node} does not end"))?;
        done.map_err(|_| format!("host {node} died"))
    }

    /// Switches a host and waits for the outcome.
    ///
    /// # Errors
    /// What the host says, or that it is down.
    pub async fn change(&self, node: u64, to: Mode, within: Duration) -> Result<(), String> {
        let options = ChangeOptions {
            within: Some(within),
            ..ChangeOptions::default()
        };
        let changed: Result<(), ChangeError> = self
            .at(node, move |host| async move {
                host.change_mode(to, options).await?.await
            })
            .await?;
        changed.map_err(|error| error.to_string())
    }

    /// Writes through a host's endpoint.
    ///
    /// # Errors
    /// What the endpoint says.
    pub async fn put(&self, node: u64, key: &str, value: &str) -> Result<(), String> {
        let request = pb::PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..pb::PutRequest::default()
        };
        let put = |host: Host| async move { host.client().put(request).await };
        let put = self.at(node, put).await?;
        put.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Reads through a host's endpoint, linearizable.
    ///
    /// # Errors
    /// What the endpoint says.
    pub async fn get(&self, node: u64, key: &str) -> Result<Option<Vec<u8>>, String> {
        let request = pb::RangeRequest {
            key: key.to_owned().into(),
            ..pb::RangeRequest::default()
        };
        let get = |host: Host| async move { host.client().range(request).await };
        let got = self.at(node, get).await?;
        let kv = got.map_err(|error| error.to_string())?.kvs.pop();
        Ok(kv.map(|kv| kv.value.to_vec()))
    }

    /// The members, by a quorum, as a host's endpoint tells.
    ///
    /// # Errors
    /// What the endpoint says.
    pub async fn members(&self, node: u64) -> Result<Vec<pb::Member>, String> {
        let request = pb::MemberListRequest { linearizable: true };
        let list = |host: Host| async move { host.client().member_list(request).await };
        let list = self.at(node, list).await?;
        list.map(|list| list.members).map_err(|e| e.to_string())
    }

    /// Repeats until it succeeds, at most for this long.
    ///
    /// # Errors
    /// The last one.
    pub async fn soon<T, F>(
        &self,
        within: Duration,
        mut work: impl FnMut() -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<T, String>>,
    {
        let deadline = self.operator.now() + within;
        loop {
            match work().await {
                Ok(done) => return Ok(done),
                Err(why) if self.operator.now() >= deadline => return Err(why),
                Err(_) => self.operator.sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// The simulated world.
    pub fn sim(&self) -> &Control {
        &self.sim
    }

    /// Deletes a folder of a host that is down, for good.
    pub fn empty(&self, node: u64, folder: &str) {
        let env = self.sim.restart(node);
        let path = PathBuf::from(folder);
        env.disk.remove_dir_all(&path).expect("the folder is there");
        let parent = path.parent().expect("not the root");
        env.disk.sync_dir(parent).expect("the disk works");
        self.sim.kill(node, CrashMode::Kept);
    }

    /// Removes a host's member by hand, as an operator does.
    ///
    /// # Errors
    /// What the endpoint of the host asked says.
    pub async fn remove(&self, asked: u64, node: u64) -> Result<(), String> {
        let members = self.members(asked).await?;
        let found = members.iter().find(|m| m.name == format!("h{node}"));
        let id = found.ok_or("no such member")?.id;
        let request = pb::MemberRemoveRequest { id };
        let remove = |host: Host| async move { host.client().member_remove(request).await };
        let removed = self.at(asked, remove).await?;
        removed.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The term that a host's member knows.
    ///
    /// # Errors
    /// A text when the host is down or has no member.
    pub fn term(&self, node: u64) -> Result<u64, String> {
        let member = self.host(node)?.member().ok_or("it has no member")?;
        Ok(member.services().context.status().term.get())
    }

    /// The cluster a host belongs to.
    ///
    /// # Errors
    /// A text when the host is down.
    pub fn cluster(&self, node: u64) -> Result<u64, String> {
        Ok(self.host(node)?.status().cluster.get())
    }

    /// The storage of a host stands on its disk.
    pub fn has_storage(&self, node: u64) -> bool {
        let path = PathBuf::from(DATA).join("member").join("identity");
        self.sim.disk(NodeId(node)).read(&path).is_ok()
    }
}
