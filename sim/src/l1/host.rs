//! Room `sim`, L1: the member under test, as clients find it: up with services, or down.

use crate::NodeId;
use crate::sim::Control;
use std::future::Future;
use std::time::Duration;
use tenon_env::Env;
use tenon_env::sync::{oneshot, watch};
use tenon_server::member::Member;
use tenon_server::member::config::{MemberConfig, Tuning};
use tenon_server::service::Services;

/// The node of the member.
pub(super) const MEMBER: NodeId = NodeId(1);

/// A running member and its life's number.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) life: u64,
    pub(super) env: Env,
    pub(super) member: Member,
}

/// Where clients look for the member.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) sim: Control,
    up: watch::Receiver<Option<Running>>,
}

/// The configuration of a sole member in the simulator.
fn config(tuning: Tuning) -> MemberConfig {
    let urls = vec![crate::default_url(MEMBER)];
    MemberConfig {
        advertise_client_urls: vec!["http://n1:2379".to_owned()],
        cluster_token: "sim".to_owned(),
        snapshot_catchup_entries: 50,
        compaction_batch: 10,
        compaction_pause: Duration::from_millis(5),
        warn_apply: Duration::ZERO,
        tuning,
        ..MemberConfig::sole("m1", "/data/m1.tenon", urls)
    }
}

/// Starts the member in the node's present life. The error says why it did not.
pub(super) async fn start(env: &Env, tuning: Tuning) -> Result<Member, String> {
    let (tx, rx) = oneshot::channel();
    let world = env.clone();
    env.spawn("start", async move {
        let started = Member::start(&world, config(tuning)).await;
        let _ = tx.send(started.map_err(|e| e.to_string()));
    });
    rx.await.unwrap_or_else(|_| Err("the node died".to_owned()))
}

/// Stops the member in order.
pub(super) async fn stop(running: &Running) {
    let member = running.member.clone();
    let task = running
        .env
        .spawn("stop", async move { member.shutdown().await });
    task.ended().await;
}

impl Host {
    pub(super) fn new(sim: Control, up: watch::Receiver<Option<Running>>) -> Host {
        Host { sim, up }
    }

    /// The life in which the member is up, if it is.
    pub(super) fn life(&self) -> Option<u64> {
        self.up.borrow().as_ref().map(|running| running.life)
    }

    /// The member, as soon as it is up.
    pub(super) async fn running(&mut self) -> Option<Running> {
        let up = self.up.wait_for(Option::is_some).await.ok()?;
        up.clone()
    }

    /// Runs a call as a task of the member's node. `None` when the member went down before its answer.
    pub(super) async fn call<T, F>(
        &mut self,
        call: impl FnOnce(Services) -> F + Send + 'static,
    ) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let running = self.running().await?;
        let (tx, rx) = oneshot::channel();
        let services = running.member.services().clone();
        running.env.spawn("call", async move {
            let _ = tx.send(call(services).await);
        });
        rx.await.ok()
    }
}
