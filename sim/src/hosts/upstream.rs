//! Room `sim`, hosts: how a client-mode host reaches members: a request becomes a task of the other node, which goes
//! through that node's door, and is lost when the node dies or the way is cut.

use super::ports::Ports;
use bytes::Bytes;
use futures_util::StreamExt;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_env::sync::{mpsc, oneshot};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_server::host::Host;
use tenon_server::host::door::{Door, Visit};
use tenon_server::host::remote::{Answers, CallInfo, Upstream, UpstreamError};
use tenon_server::host::streams::Stream;
use tenon_server::service::Services;
use tenon_server::service::method::Method;

/// How long a stream over a way that is cut lives on before both ends know.
const BREAKS: Duration = Duration::from_millis(400);
/// Messages of a stream on their way.
const AHEAD: usize = 16;

/// The links of one node to the client ports of the others.
pub(crate) struct Links {
    ports: Ports,
    from: u64,
}

/// A way to a host, found.
struct Found {
    ports: Ports,
    from: u64,
    to: u64,
    host: Host,
}

/// A message of a stream, or its orderly end.
type Item = Option<Result<Bytes, UpstreamError>>;

fn broken(why: &str) -> UpstreamError {
    UpstreamError::Broken(why.to_owned())
}

impl Links {
    pub(super) fn new(ports: &Ports, from: u64) -> Links {
        let ports = ports.clone();
        Links { ports, from }
    }

    /// Dials: there must be a way and a host that is up.
    async fn dial(ports: Ports, from: u64, target: String) -> Result<Found, UpstreamError> {
        let lost = |why: &str| UpstreamError::NotSent(why.to_owned());
        let to = ports.node(&target)?;
        let Some(there) = ports.passage(from, to) else {
            // Nobody answers the dial; how long one waits is the host's decision.
            return std::future::pending().await;
        };
        ports.sim().sleep(there).await;
        let host = ports.host(to).ok_or_else(|| lost("nobody listens"))?;
        Ok(Found {
            ports,
            from,
            to,
            host,
        })
    }
}

fn encoded<R: Message>(answer: Result<R, Error>) -> Result<Bytes, UpstreamError> {
    let bytes = answer.map(|answer| answer.encode_to_vec().into());
    bytes.map_err(UpstreamError::Status)
}

async fn answer(
    door: &Door,
    method: Method,
    info: CallInfo,
    request: Bytes,
) -> Result<Bytes, UpstreamError> {
    let visit = door.admit(method, Caller::default(), info);
    let visit = visit.map_err(UpstreamError::Status)?;
    macro_rules! call {
        ($service:ident . $name:ident) => {{
            let here = |s: Arc<Services>, caller: Caller, request| async move {
                s.$service.$name(&caller, request).await
            };
            let request = Message::decode(request).map_err(|e| broken(&e.to_string()))?;
            encoded(door.unary(visit, method, request, here).await)
        }};
    }
    match method {
        Method::KvRange => call!(kv.range),
        Method::KvPut => call!(kv.put),
        Method::KvDeleteRange => call!(kv.delete_range),
        Method::KvTxn => call!(kv.txn),
        Method::KvCompact => call!(kv.compact),
        Method::LeaseLeaseGrant => call!(lease.grant),
        Method::LeaseLeaseRevoke => call!(lease.revoke),
        Method::LeaseLeaseTimeToLive => call!(lease.time_to_live),
        Method::ClusterMemberAdd => call!(cluster.member_add),
        Method::ClusterMemberList => call!(cluster.member_list),
        Method::ClusterMemberRemove => call!(cluster.member_remove),
        Method::MaintenanceStatus => call!(maintenance.status),
        Method::MaintenanceHashKv => call!(maintenance.hash_kv),
        Method::MembersJoin => call!(cluster.join),
        Method::MembersStanding => call!(cluster.standing),
        _ => Err(UpstreamError::Status(Error::UnknownMethod)),
    }
}

impl Found {
    /// One message back; an error when the way is cut by now.
    async fn pass(&self, from: u64, to: u64) -> Result<(), UpstreamError> {
        match self.ports.passage(from, to) {
            Some(takes) => self.ports.sim().sleep(takes).await,
            None => {
                self.ports.sim().sleep(BREAKS).await;
                return Err(broken("the way was cut"));
            }
        }
        Ok(())
    }

    /// Serves one stream on the other node.
    async fn serve<Q, R>(
        self,
        mut requests: mpsc::Receiver<Bytes>,
        out: mpsc::Sender<Item>,
        open: impl FnOnce(&Door, Visit, mpsc::Receiver<Q>) -> Stream<R>,
        (method, info): (Method, CallInfo),
    ) where
        Q: Message + Default,
        R: Message,
    {
        let door = self.host.door().clone();
        let visit = match door.admit(method, Caller::default(), info) {
            Ok(visit) => visit,
            Err(error) => {
                let _ = out.send(Some(Err(UpstreamError::Status(error)))).await;
                return;
            }
        };
        let (typed, from_client) = mpsc::channel(AHEAD);
        let mut answers = open(&door, visit, from_client);
        let read = async {
            while let Some(bytes) = requests.recv().await {
                if let Err(error) = self.pass(self.from, self.to).await {
                    return error;
                }
                let Ok(request) = Q::decode(bytes) else {
                    return broken("no request");
                };
                if typed.send(request).await.is_err() {
                    break;
                }
            }
            drop(typed);
            std::future::pending().await
        };
        let write = async {
            while let Some(answer) = answers.next().await {
                if let Err(error) = self.pass(self.to, self.from).await {
                    return Some(Err(error));
                }
                if out.send(Some(encoded(answer))).await.is_err() {
                    return None;
                }
            }
            None
        };
        let last = tokio::select! {
            biased;
            () = out.closed() => return,
            error = read => Some(Err(error)),
            last = write => last,
        };
        let _ = out.send(last).await;
    }
}

/// Passes a stream on; when the other node died over it, it broke.
async fn relay(mut from: mpsc::Receiver<Item>, to: mpsc::Sender<Result<Bytes, UpstreamError>>) {
    loop {
        let item = tokio::select! {
            biased;
            () = to.closed() => return,
            item = from.recv() => item,
        };
        let item = match item {
            Some(Some(item)) => item,
            Some(None) => return,
            None => Err(broken("the node died")),
        };
        let last = item.is_err();
        if to.send(item).await.is_err() || last {
            return;
        }
    }
}

impl Upstream for Links {
    fn unary(
        &self,
        target: &str,
        method: Method,
        info: CallInfo,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, UpstreamError>> {
        let dial = Links::dial(self.ports.clone(), self.from, target.to_owned());
        Box::pin(async move {
            let found = dial.await?;
            let (tx, rx) = oneshot::channel();
            let door = found.host.door().clone();
            let env = door.env().clone();
            let ports = found.ports.clone();
            env.spawn("forwarded", async move {
                let answer = answer(&door, method, info, request).await;
                ports.answered(&door);
                let _ = tx.send(answer);
            });
            let answer = rx.await.map_err(|_| broken("the node died"))?;
            match found.ports.passage(found.to, found.from) {
                Some(back) => found.ports.sim().sleep(back).await,
                None => return std::future::pending().await,
            }
            answer
        })
    }

    fn stream(
        &self,
        target: &str,
        method: Method,
        info: CallInfo,
        requests: mpsc::Receiver<Bytes>,
    ) -> BoxFuture<'static, Result<Answers, UpstreamError>> {
        let dial = Links::dial(self.ports.clone(), self.from, target.to_owned());
        Box::pin(async move {
            let found = dial.await?;
            let own = found.ports.sim().node(found.from);
            let (out, from) = mpsc::channel(AHEAD);
            let (to, answers) = mpsc::channel(AHEAD);
            let env = found.host.door().env().clone();
            let call = (method, info);
            match method {
                Method::WatchWatch => {
                    let open = |door: &Door, visit, requests| door.watch(visit, requests);
                    env.spawn("watch-here", found.serve(requests, out, open, call));
                }
                Method::LeaseLeaseKeepAlive => {
                    let open = |door: &Door, visit, requests| door.keep_alive(visit, requests);
                    env.spawn("renew-here", found.serve(requests, out, open, call));
                }
                _ => return Err(UpstreamError::NotSent("no such stream here".to_owned())),
            }
            own.spawn("relay", relay(from, to));
            Ok(answers)
        })
    }
}
