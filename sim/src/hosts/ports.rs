//! Room `sim`, hosts: the client ports of all hosts of a world: who is up behind which, and how a call gets there.

use super::client_url;
use super::upstream::Links;
use crate::sim::Control;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tenon_server::host::Host;
use tenon_server::host::door::{Backend, Door};
use tenon_server::host::remote::UpstreamError;
use tenon_server::service::Services;

/// One way between two nodes where links do not say.
const LINK: Duration = Duration::from_millis(1);
/// Nodes a URL is looked for among.
const NODES: u64 = 20;

/// By what clients' calls travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a link of their own, which is up unless cut by [`Ports::cut`].
    Own,
    /// By the links of the peers, and cut where those are, and by [`Ports::cut`].
    Links,
}

#[derive(Default)]
struct State {
    up: BTreeMap<u64, Host>,
    cut: BTreeSet<(u64, u64)>,
    look: Option<Look>,
}

/// Called with whoever answered a host, before the host hears the answer.
type Look = Arc<dyn Fn(&Services) + Send + Sync>;

/// The ports. Clones are the same ones.
#[derive(Clone)]
pub struct Ports {
    sim: Control,
    way: Way,
    state: Arc<Mutex<State>>,
}

impl Ports {
    pub(crate) fn new(sim: &Control, way: Way) -> Ports {
        Ports {
            sim: sim.clone(),
            way,
            state: Arc::default(),
        }
    }

    /// What one node's host reaches members by.
    pub(crate) fn links(&self, from: u64) -> Arc<Links> {
        Arc::new(Links::new(self, from))
    }

    /// The host answers behind its node's port.
    pub(crate) fn open(&self, node: u64, host: Host) {
        let old = self.state.lock().up.insert(node, host);
        drop(old);
    }

    /// Nobody answers there any more.
    pub(crate) fn close(&self, node: u64) {
        let old = self.state.lock().up.remove(&node);
        drop(old);
    }

    /// The host of a node that is up.
    pub(crate) fn host(&self, node: u64) -> Option<Host> {
        let host = self.state.lock().up.get(&node).cloned();
        host.filter(|_| self.sim.is_alive(node))
    }

    /// Cuts what one node's host asks of another's port; peers are not touched.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.state.lock().cut.insert((from, to));
    }

    /// Mends one cut.
    pub(crate) fn mend(&self, from: u64, to: u64) {
        self.state.lock().cut.remove(&(from, to));
    }

    /// Mends every cut of a port.
    pub(crate) fn mend_all(&self) {
        self.state.lock().cut.clear();
    }

    /// Has `look` called with every member that answers another node's host, before the answer is on its way.
    pub(crate) fn on_answer(&self, look: impl Fn(&Services) + Send + Sync + 'static) {
        self.state.lock().look = Some(Arc::new(look));
    }

    pub(super) fn answered(&self, door: &Door) {
        let look = self.state.lock().look.clone();
        if let (Some(look), Backend::Member(services)) = (look, door.backend()) {
            look(&services);
        }
    }

    pub(super) fn sim(&self) -> &Control {
        &self.sim
    }

    /// The node of a client URL.
    pub(super) fn node(&self, url: &str) -> Result<u64, UpstreamError> {
        let found = (1..=NODES).find(|node| client_url(*node) == url);
        found.ok_or_else(|| UpstreamError::NotSent("no such node".to_owned()))
    }

    /// How long a message takes one way; `None` when it does not arrive.
    pub(super) fn passage(&self, from: u64, to: u64) -> Option<Duration> {
        let ends = (from, to);
        let back = (to, from);
        let is_cut = {
            let cut = &self.state.lock().cut;
            cut.contains(&ends) || cut.contains(&back)
        };
        match self.way {
            _ if is_cut => None,
            Way::Own => Some(LINK),
            Way::Links => self.sim.passage(from, to),
        }
    }
}
