//! Room `server/member`: one running member. It opens the data directory, starts store, log and raft in
//! their order, publishes name and client URLs, runs the member's own tasks, and stops all of it in reverse.
//! Uses `Env` only, no sockets and no process, so that the simulator runs the same code; the shell, or the
//! simulator, puts clients in front of [`Member::services`].

pub mod compactor;
pub mod config;
mod corruption;
pub mod data_dir;
pub mod join;
mod leave;
mod log_place;
pub mod restore;
pub(crate) mod sealed;

use crate::service::cluster::{Cluster, Readiness};
use crate::service::lease::Duty;
use crate::service::{Context, Services, asks, quota};
use config::MemberConfig;
use data_dir::{DataDir, Identity, StartError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenon_env::{Env, Lane, Task, sync::watch};
use tenon_proto::command::MemberPublish;
use tenon_proto::error::Error;
use tenon_proto::peer::ask_reply::Reply;
use tenon_raft::{RaftConfig, RaftHandle};
use tenon_storage::Store;
use tenon_storage::wal::Wal;

/// Pause between attempts to publish this member.
const PUBLISH_PAUSE: Duration = Duration::from_millis(500);
/// How often a leader looks for learners to promote.
const PROMOTE_PAUSE: Duration = Duration::from_millis(100);

/// A running member. Clones name the same; it runs until [`Member::shutdown`] or its node's end.
#[derive(Clone)]
pub struct Member {
    env: Env,
    services: Arc<Services>,
    raft: RaftHandle,
    store: Store,
    wal: Wal,
    stopping: Arc<watch::Sender<bool>>,
    published: watch::Receiver<bool>,
    tasks: Arc<Mutex<Vec<Task>>>,
    data_dir: Arc<Mutex<Option<DataDir>>>,
}

impl Member {
    /// Opens the data directory and starts the member. It answers as soon as this returns; see
    /// [`Member::wait_ready`].
    pub async fn start(env: &Env, config: MemberConfig) -> Result<Member, StartError> {
        let data_dir = DataDir::open(env, &config)?;
        let Identity {
            member,
            cluster,
            first,
            known,
        } = data_dir.identity().clone();
        tracing::info!(
            local_member_id = %member,
            cluster_id = %cluster,
            data_dir = %config.data_dir.display(),
            "starting local member"
        );
        let (store, wal, recovery) = open(env, &config, &data_dir).await?;
        store.start(env);
        env.net.identify(cluster.get(), member.get());
        let raft_config = RaftConfig {
            heartbeat: config.heartbeat,
            election: config.election,
            snapshot_catchup_entries: config.snapshot_catchup_entries,
            purge_entries_min: config.tuning.purge_entries_min,
            wal_bytes_max: config.tuning.wal_bytes_max,
            initial: first,
            known_peers: known,
            ..RaftConfig::new(member, cluster)
        };
        let raft = RaftHandle::start(env, raft_config, store.clone(), (wal.clone(), recovery))
            .await
            .map_err(|e| StartError::Storage(e.to_string()))?;
        let (stopping, stop) = watch::channel(false);
        let context = Context::new(
            env.clone(),
            raft.clone(),
            wal.clone(),
            config,
            member,
            cluster,
            stop,
        );
        let (published_tx, published) = watch::channel(false);
        let running = Member {
            env: env.clone(),
            services: Arc::new(Services::new(context.clone())),
            raft,
            store,
            wal,
            stopping: Arc::new(stopping),
            published,
            tasks: Arc::default(),
            data_dir: Arc::new(Mutex::new(Some(data_dir))),
        };
        running.answer_peers();
        running.spawn("publish", publish(context.clone(), published_tx));
        running.spawn("count-leaders", count_leaders(context.clone()));
        running.spawn("promote-learners", promote_learners(context.clone()));
        running.spawn("corruption", running.compare_hashes());
        running.spawn("quota", quota::keep_watch(context.clone()));
        running.spawn("leases", Duty::new(running.services.lease.clone()).run());
        running.spawn("compactor", compactor::run(context));
        Ok(running)
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().push(self.env.spawn(name, task));
    }

    /// Answers what other members ask, for as long as somebody holds this member.
    fn answer_peers(&self) {
        let services = Arc::downgrade(&self.services);
        self.raft.answer_asks_by(move |ask| {
            let services = services.upgrade();
            Box::pin(async move {
                match services {
                    Some(services) => asks::answer(&services, ask).await,
                    None => Reply::Failure(Error::Stopped.into()),
                }
            })
        });
    }

    /// What clients are answered by.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// The same, to be put behind a host's door.
    pub fn services_shared(&self) -> Arc<Services> {
        self.services.clone()
    }

    /// The log, for its metrics.
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Waits until what was applied before the last stop is applied again, at most for a request's time.
    /// Until then a serializable read might go back behind an answer given earlier.
    pub async fn wait_recovered(&self) {
        let deadline = self.env.now() + self.services.context.config().request_timeout();
        if !self.raft.wait_recovered(deadline).await {
            tracing::warn!("no quorum yet; local reads may be older than before the restart");
        }
    }

    /// Waits until the cluster knows this member's name and client URLs, which needs a quorum.
    pub async fn wait_ready(&self) {
        let mut published = self.published.clone();
        let _ = published.wait_for(|done| *done).await;
    }

    /// Completes with the reason once the member cannot go on: disk, log or a bug. Nothing is acknowledged
    /// from then on.
    pub async fn failed(&self) -> String {
        tokio::select! {
            biased;
            reason = first_reason(self.wal.fatal()) => reason,
            reason = first_reason(self.store.watch_fatal()) => reason,
            reason = first_reason(self.raft.fatal()) => reason,
        }
    }

    /// Completes once this member was removed from the cluster, with what there is to say of it.
    pub async fn removed(&self) -> String {
        leave::removed(&self.services.context).await
    }

    /// Compares this member's keys with the other members', when it is configured to do so before serving.
    /// The error says that they differ; the member must not serve then.
    pub async fn check_initially(&self) -> Result<(), String> {
        let options = &self.services.context.config().cluster;
        if !options.initial_corrupt_check {
            return Ok(());
        }
        corruption::check_initially(&self.services).await
    }

    fn compare_hashes(&self) -> impl Future<Output = ()> + Send + 'static {
        let period = self.services.context.config().cluster.corrupt_check;
        corruption::check_now_and_then(Services::clone(&self.services), period)
    }

    /// Hands leadership to another voter, if this member has it; for a bounded time.
    pub async fn hand_over(&self) {
        leave::hand_over(&self.services.context).await;
    }

    /// Tells streams to end. Calls under way go on.
    pub fn begin_shutdown(&self) {
        self.stopping.send_replace(true);
    }

    /// Stops the member: its own tasks, raft, then the store, then the log. Data is safe at any moment; an
    /// orderly end makes the next start faster.
    pub async fn shutdown(&self) {
        self.begin_shutdown();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(Task::abort);
        self.raft.shutdown().await;
        self.store.shutdown().await;
        self.wal.close().await;
        self.data_dir.lock().take();
    }
}

/// Completes with the first reason that is told; never when nobody is left to tell one.
async fn first_reason<T: ToString>(mut told: watch::Receiver<Option<T>>) -> String {
    loop {
        if let Some(reason) = &*told.borrow_and_update() {
            return reason.to_string();
        }
        if told.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Opens state and log, which reads files, on the lane for that.
async fn open(
    env: &Env,
    config: &MemberConfig,
    data_dir: &DataDir,
) -> Result<(Store, Wal, tenon_storage::wal::Recovery), StartError> {
    let (world, member_dir) = (env.clone(), data_dir.member_dir());
    let wal_dir = config
        .wal_dir
        .clone()
        .unwrap_or_else(|| member_dir.join("wal"));
    let (tuning, store_options) = (config.tuning, config.store_options());
    let (member_path, wal_path) = (member_dir.clone(), wal_dir.clone());
    let opened = env.blocking(Lane::Read, move || {
        let store = Store::open(&world, &member_dir, store_options)
            .map_err(|e| StartError::Storage(e.to_string()))?;
        let (wal, recovery) = Wal::open(&world, &wal_dir, tuning.wal)
            .map_err(|e| StartError::Storage(e.to_string()))?;
        Ok((store, wal, recovery))
    });
    let (store, wal, recovery) = opened
        .await
        .map_err(|gone| StartError::Storage(gone.to_string()))??;
    let places = (&*member_path, &*wal_path);
    log_place::settle(env, places, &store, (&wal, &recovery)).await?;
    Ok((store, wal, recovery))
}

/// Tells the cluster this member's name and client URLs, until it knows them.
async fn publish(context: Context, done: watch::Sender<bool>) {
    let id = context.member().get();
    let config = context.config();
    let (name, client_urls) = (config.name.clone(), config.advertise_client_urls.clone());
    loop {
        let body = MemberPublish {
            member_id: id,
            name: name.clone(),
            client_urls: client_urls.clone(),
        };
        match context.propose(body.into()).await {
            Ok(_) => break,
            Err(error) => {
                tracing::warn!(%error, "cannot publish this member yet");
                context.env().sleep(PUBLISH_PAUSE).await;
            }
        }
    }
    tracing::info!(name, client_urls = ?client_urls, "published this member");
    done.send_replace(true);
}

/// While this member leads, learners that need no operator get their vote once they caught up.
async fn promote_learners(context: Context) {
    let (cluster, mut readiness) = (Cluster::new(context.clone()), Readiness::default());
    loop {
        context.env().sleep(PROMOTE_PAUSE).await;
        if context.watch_status().borrow().is_leader {
            cluster.promote_ready(&mut readiness).await;
        }
    }
}

async fn count_leaders(context: Context) {
    let mut status = context.watch_status();
    let mut last = None;
    loop {
        let leader = status.borrow_and_update().leader;
        if leader != last && leader.is_some() {
            context
                .counters()
                .leader_changes
                .fetch_add(1, Ordering::Relaxed);
        }
        last = leader;
        if status.changed().await.is_err() {
            return;
        }
    }
}
