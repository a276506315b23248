//! Room `raft`: messages between members over `Env`'s streams. A member dials each peer it has something to
//! say to and answers on the streams it is dialled by; who is who and which protocol is spoken is settled by
//! a greeting. Knows nothing of sockets or certificates: the transport below settles those.

mod bulk;
mod greeting;
mod link;
mod peer;
mod receive;
mod serve;
mod session;
mod traffic;
mod wire;

use link::{Link, Surroundings};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_proto::log;

pub(crate) use greeting::{Identity, Refused};
pub(crate) use link::Lost;
pub(crate) use peer::Factory;
pub(crate) use receive::{Receiving, meta};
pub(crate) use serve::serve;
pub use traffic::{ROUND_TRIP_BOUNDS, Traffic};
pub(crate) use wire::{read_change_error, read_outcome};

/// The links of a member, one to each peer it ever spoke to, and the addresses that peers were born with.
pub(crate) struct Links {
    around: Arc<Surroundings>,
    links: Mutex<BTreeMap<u64, Link>>,
    births: Arc<Mutex<BTreeMap<u64, Vec<String>>>>,
}

impl Links {
    /// `addresses` knows the present addresses of members; where it does not, those of birth are used.
    /// `refused` is told when a peer refuses to talk.
    pub(crate) fn new(
        env: tenon_env::Env,
        me: Identity,
        heartbeat: std::time::Duration,
        addresses: impl Fn(u64) -> Option<Vec<String>> + Send + Sync + 'static,
        refused: impl Fn(&Refused) + Send + Sync + 'static,
    ) -> Links {
        let births: Arc<Mutex<BTreeMap<u64, Vec<String>>>> = Arc::default();
        let known = births.clone();
        let addresses = move |member: u64| {
            let present = addresses(member).filter(|urls| !urls.is_empty());
            present
                .or_else(|| known.lock().get(&member).cloned())
                .unwrap_or_default()
        };
        let (addresses, refused) = (Box::new(addresses), Box::new(refused));
        let around = Arc::new(Surroundings {
            env,
            me,
            addresses,
            heartbeat,
            refused,
        });
        Links {
            around,
            links: Mutex::default(),
            births,
        }
    }

    /// The link to a peer.
    pub(crate) fn to(&self, member: u64) -> Link {
        let mut links = self.links.lock();
        links
            .entry(member)
            .or_insert_with(|| Link::new(self.around.clone(), member))
            .clone()
    }

    /// What was exchanged with each peer that was ever spoken to.
    pub(crate) fn traffic(&self) -> BTreeMap<u64, Traffic> {
        let links: Vec<Link> = self.links.lock().values().cloned().collect();
        links.iter().map(|l| (l.target(), l.traffic())).collect()
    }

    /// Ends all streams; what is asked afterwards fails at once.
    pub(crate) fn close(&self) {
        let links: Vec<Link> = self.links.lock().values().cloned().collect();
        links.iter().for_each(Link::shut);
    }

    /// Remembers the addresses a member was born with.
    pub(crate) fn learn(&self, member: u64, node: &log::Node) {
        let mut births = self.births.lock();
        if births.get(&member) != Some(&node.peer_urls) {
            births.insert(member, node.peer_urls.clone());
        }
    }

    /// The members whose addresses of birth are known.
    pub(crate) fn acquaintances(&self) -> Vec<u64> {
        self.births.lock().keys().copied().collect()
    }

    pub(crate) fn me(&self) -> &Identity {
        &self.around.me
    }
}
