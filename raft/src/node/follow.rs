//! Room `raft`: what a member learns by watching: who leads, who belongs, and when something gave up.

use super::Node;
use crate::status::RaftStatus;
use crate::types::Config;
use futures_util::future::{Either, select};
use openraft::async_runtime::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use tenon_env::sync::watch;
use tenon_proto::ids::LogIndex;

impl Node {
    /// Follows openraft's view of leader and membership for as long as it runs. A leader that has not been
    /// heard for a longest election timeout, or that has not heard its quorum, is none.
    pub(crate) async fn follow_status(self) {
        let mut server = self.0.raft.server_metrics();
        loop {
            let seen = server.borrow_and_update().clone();
            for (id, birth) in seen.membership_config.membership().nodes() {
                self.0.links.learn(*id, &birth.0);
            }
            self.publish_status(&seen);
            let alone = self.0.sole.alone();
            let changed = server.changed();
            let ended = if alone {
                changed.await.is_err()
            } else {
                let step = self.config().heartbeat;
                self.env()
                    .timeout(step, changed)
                    .await
                    .is_some_and(|c| c.is_err())
            };
            if ended {
                return;
            }
        }
    }

    fn publish_status(&self, seen: &RaftServerMetrics<Config>) {
        let reachable = self.leader_reachable(seen);
        self.0.status.send_if_modified(|status| {
            let before = status.clone();
            status.observe(seen);
            if !reachable {
                status.leader = None;
                status.is_leader = false;
            }
            let changed = RaftStatus {
                applied: status.applied,
                ..before
            } != *status;
            status.applied = LogIndex(self.applied().unwrap_or(0));
            changed
        });
    }

    fn leader_reachable(&self, seen: &RaftServerMetrics<Config>) -> bool {
        let patience = self.config().election * 2;
        match seen.current_leader {
            None => false,
            Some(leader) if leader == self.member().0 => {
                let mut voters = seen.membership_config.membership().voter_ids();
                if voters.all(|voter| voter == leader) {
                    return true;
                }
                let metrics = self.0.raft.data_metrics();
                let acknowledged = metrics.borrow_watched().last_quorum_acked;
                // Before the first acknowledgement a leader is as good as elected: its quorum voted.
                acknowledged.is_none_or(|at| self.env().now() - at.into_inner().0 < patience)
            }
            Some(_) => self.env().now() - self.last_heard() < patience,
        }
    }

    /// Reports it when openraft, the WAL or the store gave up.
    pub(crate) async fn follow_failures(self) {
        let mut metrics = self.0.raft.metrics();
        let raft = async {
            loop {
                if let Err(fatal) = &metrics.borrow_and_update().running_state {
                    return fatal.to_string();
                }
                if metrics.changed().await.is_err() {
                    return "raft ended".to_owned();
                }
            }
        };
        let (mut wal, mut store) = (self.0.wal.fatal(), self.0.store.watch_fatal());
        let wal = async {
            wait_some(&mut wal)
                .await
                .unwrap_or_else(|| "the log ended".to_owned())
        };
        let store = async {
            wait_some(&mut store)
                .await
                .map_or_else(|| "the store ended".to_owned(), |f| f.to_string())
        };
        let (raft, wal, store) = (
            std::pin::pin!(raft),
            std::pin::pin!(wal),
            std::pin::pin!(store),
        );
        // The disk's own words come first: openraft ends because of them.
        let reason = match select(select(wal, store), raft).await {
            Either::Left((disk, _)) => disk.factor_first().0,
            Either::Right((raft, _)) => raft,
        };
        self.fail(reason);
    }
}

async fn wait_some<T: Clone>(receiver: &mut watch::Receiver<Option<T>>) -> Option<T> {
    receiver
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|held| held.clone())
}
