//! Room `sim`, hosts: how a client-mode host reaches members: a request becomes a task of the other node, and is lost
//! when that node dies or the way is cut.

use super::{Hosts, client_url};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_env::sync::{mpsc, oneshot};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_server::host::door::Backend;
use tenon_server::host::remote::{Answers, CallInfo, Upstream, UpstreamError};
use tenon_server::service::Services;
use tenon_server::service::method::Method;

/// Nodes a URL is looked for among.
const NODES: u64 = 20;
/// One way between two nodes.
const LINK: Duration = Duration::from_millis(1);

/// The links of one node to the client ports of the others.
pub(super) struct Links {
    hosts: Hosts,
    from: u64,
}

impl Links {
    pub(super) fn new(hosts: &Hosts, from: u64) -> Arc<Links> {
        Arc::new(Links {
            hosts: hosts.clone(),
            from,
        })
    }

    fn services(&self, target: &str) -> Result<Arc<Services>, UpstreamError> {
        let lost = |why: &str| Err(UpstreamError::NotSent(why.to_owned()));
        let Some(to) = (1..=NODES).find(|node| client_url(*node) == target) else {
            return lost("no such node");
        };
        if self.hosts.is_cut(self.from, to) {
            return lost("cut");
        }
        let host = self.hosts.host(to).map_err(UpstreamError::NotSent)?;
        match host.door().backend() {
            Backend::Member(services) => Ok(services),
            _ => lost("it answers by others"),
        }
    }
}

fn encoded<R: Message>(answer: Result<R, Error>) -> Result<Bytes, UpstreamError> {
    let bytes = answer.map(|answer| answer.encode_to_vec().into());
    bytes.map_err(UpstreamError::Status)
}

async fn answer(s: Arc<Services>, method: Method, request: Bytes) -> Result<Bytes, UpstreamError> {
    let caller = Caller::default();
    macro_rules! call {
        ($service:ident . $name:ident) => {
            match Message::decode(request) {
                Ok(request) => encoded(s.$service.$name(&caller, request).await),
                Err(error) => Err(UpstreamError::Broken(error.to_string())),
            }
        };
    }
    match method {
        Method::KvRange => call!(kv.range),
        Method::KvPut => call!(kv.put),
        Method::KvDeleteRange => call!(kv.delete_range),
        Method::KvTxn => call!(kv.txn),
        Method::LeaseLeaseGrant => call!(lease.grant),
        Method::ClusterMemberAdd => call!(cluster.member_add),
        Method::ClusterMemberList => call!(cluster.member_list),
        Method::ClusterMemberRemove => call!(cluster.member_remove),
        Method::MaintenanceStatus => call!(maintenance.status),
        Method::MembersJoin => call!(cluster.join),
        Method::MembersStanding => call!(cluster.standing),
        _ => Err(UpstreamError::Status(Error::UnknownMethod)),
    }
}

impl Upstream for Links {
    fn unary(
        &self,
        target: &str,
        method: Method,
        _: CallInfo,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, UpstreamError>> {
        let (found, sim) = (self.services(target), self.hosts.sim().clone());
        Box::pin(async move {
            sim.sleep(LINK).await;
            let services = found?;
            let (tx, rx) = oneshot::channel();
            let env = services.context.env().clone();
            env.spawn("forwarded", async move {
                let _ = tx.send(answer(services, method, request).await);
            });
            let broken = |_| UpstreamError::Broken("the node died".to_owned());
            let answer = rx.await.map_err(broken)?;
            sim.sleep(LINK).await;
            answer
        })
    }

    fn stream(
        &self,
        _: &str,
        _: Method,
        _: CallInfo,
        _: mpsc::Receiver<Bytes>,
    ) -> BoxFuture<'static, Result<Answers, UpstreamError>> {
        Box::pin(std::future::ready(Err(UpstreamError::NotSent(
            "streams do not cross this world yet".to_owned(),
        ))))
    }
}
