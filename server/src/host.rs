//! Room `server/host`: one process or embedded part with one endpoint for life. As a *server* its own member
//! answers; as a *client* the members of the cluster do. It switches between the two by attaching and detaching
//! storage, and whoever uses the endpoint does not notice (DESIGN §7, docs/host-modes.md).
//!
//! - [`edges`]: the one table of switches and their ordered steps; `steps`: what each does.
//! - [`journal`]: what the host remembers; `open`: what follows from it at a start.
//! - `running`: the one task that owns the host; modes are an enum consumed by its loop.
//! - [`automatic`], `standby`: a host that finds its mode by itself (docs/adr/0005).
//! - [`door`]: the endpoint; [`remote`]: client mode; [`floor`]: what was answered already.
//!
//! Invariants: storage is deleted only after a quorum said that the member is gone; the old role serves until the
//! new one answers; the journal says what is intended before anything is done; a host never founds a cluster
//! because its storage is missing.
//!
//! What it does not do: speak to sockets (the shell), judge requests (the services), elect or replicate (raft). It
//! uses `Env` only, so the simulator runs it.

pub mod automatic;
pub mod config;
mod core;
pub mod door;
pub mod edges;
pub mod floor;
mod health;
pub mod journal;
mod keep_alive;
mod link;
pub mod local;
mod open;
mod orders;
pub mod remote;
mod running;
mod standby;
mod standing;
pub mod status;
mod steps;
pub mod streams;
mod switching;
mod watch_move;
mod watch_row;
mod watches;

#[cfg(test)]
mod tests;

pub use automatic::Automatic;
pub use config::{FaultTolerance, HostConfig};
pub use edges::Mode;
pub use orders::{ChangeError, ChangeOptions, Ended, Plan};
pub use status::HostStatus;

use crate::member::Member;
use crate::member::data_dir::StartError;
use door::Door;
use orders::{Order, Outcome};
use parking_lot::Mutex;
use remote::{Remote, Upstream};
use running::Running;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tenon_env::sync::{mpsc, oneshot, watch};
use tenon_env::{Env, FileLock};
use tenon_proto::ids::MemberId;

/// Orders that wait for the host's task. One operator gives few; more wait their turn at the sender.
const ORDERS: usize = 16;

struct Shared {
    env: Env,
    door: Door,
    board: status::Board,
    orders: mpsc::Sender<Order>,
    attached: watch::Receiver<Option<Member>>,
    ended: watch::Receiver<Option<Ended>>,
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

/// A running host. Clones name the same; it runs until [`Host::shutdown`], or until it ends by itself.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

/// A switch under way: a future that completes with its outcome. Dropping it does not stop the switch.
pub struct Change {
    status: watch::Receiver<HostStatus>,
    ended: oneshot::Receiver<Outcome>,
    to: Mode,
}

impl Change {
    /// Follows the host, its progress among it.
    pub fn progress(&self) -> watch::Receiver<HostStatus> {
        self.status.clone()
    }
}

impl Future for Change {
    type Output = Result<(), ChangeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let to = self.to;
        let ended = std::task::ready!(Pin::new(&mut self.ended).poll(cx));
        Poll::Ready(ended.unwrap_or_else(|_| {
            let mode = self.status.borrow().mode;
            Err(gone(to, mode))
        }))
    }
}

fn gone(to: Mode, mode: Mode) -> ChangeError {
    ChangeError {
        to,
        step: None,
        why: "the host is stopping".to_owned(),
        remedy: "the next start goes on with a switch that was begun".to_owned(),
        mode,
    }
}

impl Host {
    /// Opens a host and lets it answer: by its member as soon as that has started, or through `upstream` by the
    /// members. A switch that a crash cut short goes on by itself.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn open(
        env: &Env,
        config: HostConfig,
        upstream: Arc<dyn Upstream>,
    ) -> Result<Host, StartError> {
        let open::Opened { core, lock } = open::open(env, config, upstream).await?;
        let (orders, received) = mpsc::channel(ORDERS);
        let (ended_tx, ended) = watch::channel(None);
        let shared = Shared {
            env: env.clone(),
            door: core.door.clone(),
            board: core.board.clone(),
            orders,
            attached: core.attached.subscribe(),
            ended,
            lock: Mutex::new(Some(lock)),
        };
        let running = Running {
            core,
            orders: received,
            ended: ended_tx,
            vigil: automatic::Vigil::default(),
            rests_until: tenon_env::Instant::default(),
        };
        env.spawn("host", running.run());
        Ok(Host {
            shared: Arc::new(shared),
        })
    }

    /// The endpoint: whoever serves clients of this host asks it.
    pub fn door(&self) -> &Door {
        &self.shared.door
    }

    /// A client within the process, without sockets.
    pub fn client(&self) -> local::LocalClient {
        local::LocalClient::new(self.door().clone(), tenon_proto::caller::Caller::default())
    }

    /// The own member while one runs, in whatever part.
    pub fn member(&self) -> Option<Member> {
        self.shared.attached.borrow().clone()
    }

    /// Follows [`Host::member`].
    pub fn watch_member(&self) -> watch::Receiver<Option<Member>> {
        self.shared.attached.clone()
    }

    /// What the host is doing.
    pub fn status(&self) -> HostStatus {
        self.shared.board.now()
    }

    /// Follows [`Host::status`].
    pub fn watch_status(&self) -> watch::Receiver<HostStatus> {
        self.shared.board.watch()
    }

    /// The member that leads the cluster, as far as this host knows.
    pub fn leader(&self) -> Option<MemberId> {
        self.member()?.services().context.status().leader
    }

    /// The status as the host service tells it.
    pub fn wire_status(&self) -> tenon_proto::host::StatusResponse {
        self.status().wire(self.shared.env.now(), self.leader())
    }

    /// Completes once the cluster knows this host's member, or, for a client, once a member answers. Ends early
    /// when the host does.
    pub async fn initialized(&self) {
        let ready = async {
            match (self.member(), self.remote()) {
                (Some(member), None) => member.wait_ready().await,
                (_, Some(remote)) => {
                    let far = self.shared.env.now() + std::time::Duration::from_secs(1 << 30);
                    let _ = remote.ready(far).await;
                }
                (None, None) => {}
            }
        };
        tokio::select! {
            biased;
            _ = self.ended() => {}
            () = ready => {}
        }
    }

    fn remote(&self) -> Option<Arc<Remote>> {
        match self.shared.door.backend() {
            door::Backend::Remote(remote) => Some(remote),
            _ => None,
        }
    }

    /// Begins a switch. Completes once it is accepted; the [`Change`] completes with its outcome.
    ///
    /// # Errors
    /// When it is not accepted: another one is under way, or there is no such switch.
    pub async fn change_mode(
        &self,
        to: Mode,
        options: ChangeOptions,
    ) -> Result<Change, ChangeError> {
        let (accepted, was_accepted) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        let order = Order::Change {
            to,
            options,
            accepted,
            ended: ended_tx,
        };
        let stopping = |_| gone(to, self.status().mode);
        let sent = self.shared.orders.send(order).await;
        sent.map_err(|_| gone(to, self.status().mode))?;
        was_accepted.await.map_err(stopping)??;
        Ok(Change {
            status: self.watch_status(),
            ended,
            to,
        })
    }

    /// What a switch would do, and what to know before; touches nothing.
    ///
    /// # Errors
    /// Why it would be refused.
    pub async fn plan(&self, to: Mode, options: ChangeOptions) -> Result<Plan, ChangeError> {
        let (answer, answered) = oneshot::channel();
        let order = Order::Plan {
            to,
            options,
            answer,
        };
        let sent = self.shared.orders.send(order).await;
        sent.map_err(|_| gone(to, self.status().mode))?;
        answered
            .await
            .map_err(|_| gone(to, self.status().mode))
            .flatten()
    }

    /// Takes the switch under way back. Completes when the host is what it was before.
    ///
    /// # Errors
    /// When there is none, or it cannot be taken back any more.
    pub async fn abort(&self) -> Result<(), ChangeError> {
        let (answer, answered) = oneshot::channel();
        let mode = || self.status().mode;
        let sent = self.shared.orders.send(Order::Abort(answer)).await;
        sent.map_err(|_| gone(mode(), mode()))?;
        answered.await.map_err(|_| gone(mode(), mode())).flatten()
    }

    /// Completes with the reason once the host has ended.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.shared.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or(Ended::Shutdown),
            Err(_) => Ended::Failed("the host's task ended".to_owned()),
        }
    }

    /// Hands leadership to another member, if the own member has it; for a bounded time.
    pub async fn hand_over(&self) {
        if let Some(member) = self.member() {
            member.hand_over().await;
        }
    }

    /// Tells streams to end. Calls under way go on.
    pub fn begin_shutdown(&self) {
        if let Some(member) = self.member() {
            member.begin_shutdown();
        }
        if let Some(remote) = self.remote() {
            remote.shutdown();
        }
    }

    /// Stops the host: its member and everything it runs. A switch under way goes on at the next start. Afterwards
    /// the data directory may be opened again, in this process too.
    pub async fn shutdown(&self) {
        let (farewell, closed) = oneshot::channel();
        if self
            .shared
            .orders
            .send(Order::Shutdown(farewell))
            .await
            .is_ok()
        {
            let _ = closed.await;
        }
        self.shared.lock.lock().take();
    }
}
