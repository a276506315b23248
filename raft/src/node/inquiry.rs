//! Room `raft`: a member that starts with an empty disk asks its peers whether it has been here before. Ids
//! are a hash of addresses and token, so a member whose disk was lost comes back under its old id; were it to
//! vote again, a committed entry could be outvoted. Until the peers have answered it takes part in nothing.

use super::Node;
use crate::types::Birth;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenon_proto::log;
use tenon_proto::peer::{Acquaintance, request, response};

/// How long every peer is waited for; afterwards as many as a quorum needs are enough.
const ALL_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two rounds of asking, and the time one answer may take.
const ROUND: Duration = Duration::from_millis(250);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

impl Node {
    /// Whether raft may take part: nobody is left to be asked.
    pub(crate) fn is_admitted(&self) -> bool {
        self.0.admitted.load(Ordering::Acquire)
    }

    pub(crate) fn admit(&self) {
        self.0.admitted.store(true, Ordering::Release);
    }

    /// Asks `peers`, the other members, then lets raft take part and, with a first configuration, begins the log. When this
    /// member turns out to have run before, it must stop.
    pub(crate) async fn inquire(
        self,
        peers: BTreeMap<u64, log::Node>,
        first: Option<BTreeMap<u64, Birth>>,
    ) {
        for (id, node) in &peers {
            self.0.links.learn(*id, node);
        }
        // Of n first members, this one and n/2 others are a quorum: without them nothing could begin. Of a
        // running cluster one member is enough.
        let enough = if first.is_some() {
            peers.len().div_ceil(2)
        } else {
            1
        };
        if let Err(reason) = self.ask_all(peers.into_keys().collect(), enough).await {
            return self.fail(reason);
        }
        self.admit();
        if let Some(first) = first
            && let Err(error) = self.bootstrap(first).await
        {
            self.fail(format!("bootstrap: {error}"));
        }
    }

    async fn ask_all(&self, mut silent: BTreeSet<u64>, enough: usize) -> Result<(), String> {
        let all_by = self.env().now() + ALL_WITHIN;
        let mut answered = 0;
        loop {
            let asked = silent
                .iter()
                .map(|peer| async move { (*peer, self.ask(*peer).await) });
            for (peer, known) in futures_util::future::join_all(asked).await {
                match known {
                    Some(true) => return Err(self.has_run(peer)),
                    Some(false) => {
                        silent.remove(&peer);
                        answered += 1;
                    }
                    None => {}
                }
            }
            if silent.is_empty() || (answered >= enough && self.env().now() >= all_by) {
                return Ok(());
            }
            self.env().sleep(ROUND).await;
        }
    }

    /// Whether the peer knows that this member has run; `None` without an answer.
    async fn ask(&self, peer: u64) -> Option<bool> {
        let body = request::Body::Acquaintance(Acquaintance {
            member: self.member().0,
        });
        match self.0.links.to(peer).call(body, ANSWER_WITHIN).await {
            Ok(response::Body::Acquaintance(reply)) => Some(reply.running && reply.has_run),
            Ok(_) | Err(_) => None,
        }
    }

    fn has_run(&self, peer: u64) -> String {
        let me = self.member();
        format!(
            "member {me} has run in this cluster before, says member {peer:x}, but its data directory is \
             empty. Under its old id it must not vote again: bring the data directory back, or remove the \
             member and add it anew (member remove {me}, member add) and start it with the new id"
        )
    }
}
