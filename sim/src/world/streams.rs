//! Room `sim`, world: streams of clients: a watch stream at one member, and renewals of leases. They end when the
//! member goes down.

use super::World;
use super::client::{CallError, Client};
use crate::NodeId;
use futures_util::StreamExt;
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{self as pb, watch_request::RequestUnion};
use tenon_server::host::Host;
use tenon_server::host::remote::CallInfo;
use tenon_server::member::Member;
use tenon_server::service::Services;
use tenon_server::service::method::Method;
use tenon_server::service::watch::NeedsLeader;

/// Answers on their way to a client that does not take them; the member waits then.
const ANSWERS: usize = 4;

/// An open watch stream.
pub struct WatchStream {
    /// The node of the member that serves it.
    pub node: NodeId,
    /// Which of its lives.
    pub life: u64,
    requests: mpsc::Sender<pb::WatchRequest>,
    answers: mpsc::Receiver<Result<pb::WatchResponse, Error>>,
}

impl World {
    /// Opens a watch stream at a member that serves; `None` when it does not.
    pub fn watch(&self, node: impl Into<NodeId>, needs_leader: NeedsLeader) -> Option<WatchStream> {
        let node = node.into();
        if let Some(host) = self.host(node) {
            let life = self.life(node);
            let serves = self.state(node) == super::State::Serving;
            return serves.then(|| WatchStream::through(&host, node, life, needs_leader))?;
        }
        let running = self.serving(node)?;
        let (node, life) = (running.node, running.life);
        Some(WatchStream::at(&running.member, node, life, needs_leader))
    }
}

impl WatchStream {
    /// Opens a stream at a member in the life of its node numbered `life`.
    pub(crate) fn at(
        member: &Member,
        node: NodeId,
        life: u64,
        needs_leader: NeedsLeader,
    ) -> WatchStream {
        let (requests, from) = mpsc::channel(ANSWERS);
        let (to, answers) = mpsc::channel(ANSWERS);
        let watch = member.services().watch.clone();
        let env = member.services().context.env();
        env.spawn("watch", async move {
            watch.serve(Caller::default(), needs_leader, from, to).await;
        });
        WatchStream {
            node,
            life,
            requests,
            answers,
        }
    }

    /// Opens a stream through a host's door; `None` when that lets nobody in.
    fn through(host: &Host, node: NodeId, life: u64, needs_leader: NeedsLeader) -> Option<Self> {
        let (requests, from) = mpsc::channel(ANSWERS);
        let (to, answers) = mpsc::channel(ANSWERS);
        let info = CallInfo {
            needs_leader,
            ..CallInfo::default()
        };
        let door = host.door();
        let visit = door.admit(Method::WatchWatch, Caller::default(), info);
        let mut stream = door.watch(visit.ok()?, from);
        door.env().spawn("watch", async move {
            loop {
                let answer = tokio::select! {
                    biased;
                    () = to.closed() => return,
                    answer = stream.next() => answer,
                };
                let Some(answer) = answer else { return };
                if to.send(answer).await.is_err() {
                    return;
                }
            }
        });
        Some(WatchStream {
            node,
            life,
            requests,
            answers,
        })
    }

    /// Asks for a watch. The first answer acknowledges it.
    pub async fn create(&self, create: pb::WatchCreateRequest) {
        self.send(RequestUnion::CreateRequest(create)).await;
    }

    /// Ends a watch.
    pub async fn cancel(&self, watch_id: i64) {
        let cancel = pb::WatchCancelRequest { watch_id };
        self.send(RequestUnion::CancelRequest(cancel)).await;
    }

    /// Asks how far the stream is, unless so many requests wait that it takes none: a client that waited here and did not
    /// read meanwhile could keep the member from taking any.
    pub fn ask_progress(&self) {
        let request_union = Some(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
        let _ = self.requests.try_send(pb::WatchRequest { request_union });
    }

    async fn send(&self, request: RequestUnion) {
        let request_union = Some(request);
        let _ = self.requests.send(pb::WatchRequest { request_union }).await;
    }

    /// The next answer; `None` once the stream broke.
    pub async fn next(&mut self) -> Option<pb::WatchResponse> {
        self.answers.recv().await?.ok()
    }
}

impl Client {
    /// Renews a lease once; the answer's TTL in seconds is 0 when the lease is gone or ending.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn keep_alive(&self, id: i64) -> Result<pb::LeaseKeepAliveResponse, CallError> {
        self.call(move |services| keep_alive(services, id)).await
    }
}

/// One renewal over a stream of its own.
pub(crate) async fn keep_alive(
    services: Services,
    id: i64,
) -> Result<pb::LeaseKeepAliveResponse, Error> {
    let (requests, from) = mpsc::channel(1);
    let (to, mut answers) = mpsc::channel(1);
    let _ = requests.send(pb::LeaseKeepAliveRequest { id }).await;
    let caller = Caller::default();
    let serving = services
        .lease
        .keep_alive(&caller, NeedsLeader::No, from, to);
    let answer = async {
        let answer = answers.recv().await;
        drop((requests, answers));
        answer.unwrap_or(Err(Error::Timeout))
    };
    futures_util::future::join(serving, answer).await.1
}
