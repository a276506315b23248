//! Room `sim`, world: a client: it calls members' services over the simulated links, each call a task of the
//! member's node, so that a crash, a cut or a pause leaves it without an answer.

use super::World;
use crate::NodeId;
use crate::history::{Reply, Request, is_certain};
use crate::rng::SimRng;
use crate::workload::requests::carry_out;
use parking_lot::Mutex;
use std::future::Future;
use std::time::Duration;
use tenon_env::Env;
use tenon_env::sync::oneshot;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_server::service::Services;

/// A call without a result.
#[derive(Clone, Debug, PartialEq)]
pub enum CallError {
    /// It reached nobody: nothing was done and nothing will be.
    NotSent,
    /// It was refused: nothing was done and nothing will be.
    Refused(Error),
    /// Nobody can tell whether it was or will be done: the error that came, or none when no answer did.
    Unknown(Option<Error>),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::NotSent => f.write_str("no member could be asked"),
            CallError::Refused(error) => write!(f, "refused: {error}"),
            CallError::Unknown(Some(error)) => write!(f, "outcome unknown: {error}"),
            CallError::Unknown(None) => f.write_str("outcome unknown: no answer"),
        }
    }
}

impl std::error::Error for CallError {}

/// A client on a node of its own. It has one call under way at a time per task that uses it.
pub struct Client {
    world: World,
    node: NodeId,
    env: Env,
    rng: Mutex<SimRng>,
    /// How long it waits for an answer before it counts the outcome as unknown.
    pub patience: Duration,
    /// The only member it asks; any that serves when `None`.
    pub pinned: Option<NodeId>,
}

impl World {
    /// Client number `n` (below 100 000), on node 1000 + `n`. It asks any serving member and waits ten seconds.
    pub fn client(&self, n: u64) -> Client {
        let node = NodeId(1_000 + n);
        Client {
            world: self.clone(),
            node,
            env: self.0.sim.node(node),
            rng: Mutex::new(SimRng::fork(self.0.sim.seed(), "world client", n)),
            patience: Duration::from_secs(10),
            pinned: None,
        }
    }
}

impl Client {
    /// The client's node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The client's own world: clock, tasks.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The member to ask next: the pinned one, or one of those that serve, drawn; `None` when none serves.
    pub fn target(&self) -> Option<NodeId> {
        let serving = self.world.all_serving();
        match self.pinned {
            Some(node) => serving.contains(&node).then_some(node),
            None if serving.is_empty() => None,
            None => Some(*self.rng.lock().pick(&serving)),
        }
    }

    /// Calls a member; which, see [`Client::target`].
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call<T, F>(
        &self,
        call: impl FnOnce(Services) -> F + Send + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let target = self.target().ok_or(CallError::NotSent)?;
        self.call_at(target, call).await
    }

    /// Calls the member of `node`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_at<T, F>(
        &self,
        node: NodeId,
        call: impl FnOnce(Services) -> F + Send + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let world = self.world.clone();
        self.outcome(node, move || {
            let running = world.serving(node)?;
            let services = running.member.services().clone();
            Some((running.env.clone(), call(services)))
        })
        .await
    }

    /// Makes a request at whoever answers behind `node`: its member, or its host.
    ///
    /// # Errors
    /// [`CallError`].
    pub(crate) async fn request_at(
        &self,
        node: NodeId,
        request: Request,
    ) -> Result<Reply, CallError> {
        let world = self.world.clone();
        self.outcome(node, move || {
            let (env, endpoint) = world.endpoint(node)?;
            Some((env, carry_out(endpoint, request)))
        })
        .await
    }

    async fn outcome<T, F>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> Option<(Env, F)>,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = self.env.timeout(self.patience, self.ask(node, work)).await;
        match answer.unwrap_or(Ok(None))? {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) if is_certain(&error) => Err(CallError::Refused(error)),
            Some(Err(error)) => Err(CallError::Unknown(Some(error))),
            None => Err(CallError::Unknown(None)),
        }
    }

    /// There and back. `None` when the member went down, or the answer was lost.
    async fn ask<T, F>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> Option<(Env, F)>,
    ) -> Result<Option<T>, CallError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let sim = self.world.sim();
        let Some(there) = sim.passage(self.node, node) else {
            // A dial into the dark: it may be carried out once packets arrive after all. None does here.
            return std::future::pending().await;
        };
        sim.sleep(there).await;
        let (env, work) = work().ok_or(CallError::NotSent)?;
        let (tx, rx) = oneshot::channel();
        env.spawn("call", async move {
            let _ = tx.send(work.await);
        });
        let Ok(answer) = rx.await else {
            return Ok(None);
        };
        match sim.passage(node, self.node) {
            Some(back) => sim.sleep(back).await,
            None => return std::future::pending().await,
        }
        Ok(Some(answer))
    }

    /// Puts a value; the revision.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<i64, CallError> {
        let request = pb::PutRequest {
            key: key.as_ref().to_vec().into(),
            value: value.as_ref().to_vec().into(),
            ..Default::default()
        };
        let put =
            self.call(|services| async move { services.kv.put(&Caller::default(), request).await });
        let response = put.await?;
        Ok(response.header.map_or(0, |h| h.revision))
    }

    /// A linearizable read of one key.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, CallError> {
        let request = pb::RangeRequest {
            key: key.as_ref().to_vec().into(),
            ..Default::default()
        };
        let get = self
            .call(|services| async move { services.kv.range(&Caller::default(), request).await });
        let response = get.await?;
        Ok(response.kvs.first().map(|kv| kv.value.to_vec()))
    }
}
