//! Room `server/host`, tests: a cluster of one member, a door before it, and an upstream that reaches members by
//! name within the process. Connections can be cut, members can be slow or behind.

use crate::host::door::{Backend, Door};
use crate::host::floor::SharedFloor;
use crate::host::remote::{Answers, CallInfo, Remote, Upstream, UpstreamError};
use crate::member::Member;
use crate::member::config::tests::config;
use crate::service::Services;
use crate::service::method::Method;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::{mpsc, watch};
use tenon_env::{BoxFuture, Env};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;

/// Far above what any step needs.
pub(super) const WITHIN: Duration = Duration::from_secs(10);

/// Waits, in real time.
pub(super) async fn pause(ms: u64) {
    let env = tenon_env::real::env_without_peers();
    env.sleep(Duration::from_millis(ms)).await;
}

/// The future's output, or `None` after that time.
pub(super) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let env = tenon_env::real::env_without_peers();
    env.timeout(time, future).await
}

/// A member elsewhere, by its client URL.
#[derive(Clone)]
pub(super) struct Elsewhere {
    services: Arc<Services>,
    /// Whether it can be reached; connections break when it turns false.
    reachable: watch::Receiver<bool>,
    /// Requests whose answer gets lost: sent, and the connection breaks.
    loses_answers: Arc<Mutex<bool>>,
    /// What its Status says instead of the truth.
    status: Arc<Mutex<Option<pb::StatusResponse>>>,
    /// The member that its Status is of, if it is another's than its other answers.
    status_of: Arc<Mutex<Option<u64>>>,
    /// Every request it got.
    asked: Arc<Mutex<Vec<Method>>>,
}

/// How a test plays with a member elsewhere.
pub(super) struct Strings {
    pub(super) reachable: watch::Sender<bool>,
    pub(super) loses_answers: Arc<Mutex<bool>>,
    /// Says this of itself, as a member that lost its quorum at that moment does.
    pub(super) status: Arc<Mutex<Option<pb::StatusResponse>>>,
    /// Answers Status as the member of that id, as a host does that has several behind it.
    pub(super) status_of: Arc<Mutex<Option<u64>>>,
    pub(super) asked: Arc<Mutex<Vec<Method>>>,
}

/// Members elsewhere by client URL.
#[derive(Default)]
pub(super) struct InProcess(Mutex<BTreeMap<String, Elsewhere>>);

impl InProcess {
    pub(super) fn add(&self, url: &str, services: Arc<Services>) -> Strings {
        let (reachable, follow) = watch::channel(true);
        let strings = Strings {
            reachable,
            loses_answers: Arc::default(),
            status: Arc::default(),
            status_of: Arc::default(),
            asked: Arc::default(),
        };
        let elsewhere = Elsewhere {
            services,
            reachable: follow,
            loses_answers: strings.loses_answers.clone(),
            status: strings.status.clone(),
            status_of: strings.status_of.clone(),
            asked: strings.asked.clone(),
        };
        self.0.lock().insert(url.to_owned(), elsewhere);
        strings
    }

    fn find(&self, url: &str, method: Method) -> Result<Elsewhere, UpstreamError> {
        let found = self.0.lock().get(url).cloned();
        let found = found.filter(|elsewhere| *elsewhere.reachable.borrow());
        let found = found.ok_or_else(|| UpstreamError::NotSent("unreachable".to_owned()))?;
        found.asked.lock().push(method);
        Ok(found)
    }
}

fn encoded<R: Message>(answer: Result<R, Error>) -> Result<Bytes, UpstreamError> {
    answer
        .map(|answer| answer.encode_to_vec().into())
        .map_err(UpstreamError::Status)
}

async fn answer(
    elsewhere: &Elsewhere,
    method: Method,
    request: Bytes,
) -> Result<Bytes, UpstreamError> {
    let (s, caller) = (&elsewhere.services, Caller::default());
    macro_rules! call {
        ($service:ident . $name:ident) => {
            encoded(
                s.$service
                    .$name(&caller, Message::decode(request).expect("a request"))
                    .await,
            )
        };
    }
    match method {
        Method::KvRange => call!(kv.range),
        Method::KvPut => call!(kv.put),
        Method::KvDeleteRange => call!(kv.delete_range),
        Method::KvTxn => call!(kv.txn),
        Method::KvCompact => call!(kv.compact),
        Method::LeaseLeaseGrant => call!(lease.grant),
        Method::LeaseLeaseTimeToLive => call!(lease.time_to_live),
        Method::ClusterMemberList => {
            let list = Message::decode(request).expect("a request");
            let list: pb::MemberListRequest = list;
            if list.linearizable && elsewhere.status.lock().is_some() {
                return Err(UpstreamError::Status(Error::Timeout));
            }
            encoded(s.cluster.member_list(&caller, list).await)
        }
        Method::MaintenanceAlarm => call!(maintenance.alarm),
        Method::MaintenanceHashKv => call!(maintenance.hash_kv),
        Method::MaintenanceStatus => {
            let said = elsewhere.status.lock().clone();
            let mut status = match said {
                Some(status) => status,
                None => {
                    let request = Message::decode(request).expect("a request");
                    let status = s.maintenance.status(&caller, request).await;
                    status.map_err(UpstreamError::Status)?
                }
            };
            if let (Some(id), Some(header)) = (*elsewhere.status_of.lock(), status.header.as_mut())
            {
                header.member_id = id;
            }
            encoded(Ok(status))
        }
        other => panic!("no test calls {other:?}"),
    }
}

impl Upstream for InProcess {
    fn unary(
        &self,
        target: &str,
        method: Method,
        _: CallInfo,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, UpstreamError>> {
        let found = self.find(target, method);
        Box::pin(async move {
            let elsewhere = found?;
            let mut reachable = elsewhere.reachable.clone();
            let answer = tokio::select! {
                biased;
                () = cut(&mut reachable) => broken(),
                answer = answer(&elsewhere, method, request) => answer,
            };
            if *elsewhere.loses_answers.lock() && method != Method::MaintenanceStatus {
                return broken();
            }
            answer
        })
    }

    fn stream(
        &self,
        target: &str,
        method: Method,
        call: CallInfo,
        requests: mpsc::Receiver<Bytes>,
    ) -> BoxFuture<'static, Result<Answers, UpstreamError>> {
        let found = self.find(target, method);
        Box::pin(async move {
            let elsewhere = found?;
            let (out, answers) = mpsc::channel(16);
            let env = elsewhere.services.context.env().clone();
            env.spawn("stream-elsewhere", async move {
                let mut reachable = elsewhere.reachable.clone();
                let s = elsewhere.services.clone();
                let (caller, leader) = (Caller::default(), call.needs_leader);
                let served = async {
                    match method {
                        Method::WatchWatch => {
                            let serve = |from, to| s.watch.serve(caller, leader, from, to);
                            typed(requests, &out, serve).await;
                        }
                        Method::LeaseLeaseKeepAlive => {
                            let serve = |from, to| s.lease.keep_alive(&caller, leader, from, to);
                            typed(requests, &out, serve).await;
                        }
                        Method::KvRangeStream => {
                            let mut requests = requests;
                            let request = requests.recv().await.expect("one request");
                            let request = Message::decode(request).expect("a request");
                            let serve = |_: mpsc::Receiver<pb::RangeRequest>, to| {
                                s.kv.range_stream(&caller, request, to)
                            };
                            typed(requests, &out, serve).await;
                        }
                        other => panic!("no test streams {other:?}"),
                    }
                };
                tokio::select! {
                    biased;
                    () = out.closed() => return,
                    () = cut(&mut reachable) => {}
                    () = served => return,
                }
                let _ = out.send(broken()).await;
            });
            Ok(answers)
        })
    }
}

async fn cut(reachable: &mut watch::Receiver<bool>) {
    if reachable.wait_for(|reachable| !reachable).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn broken() -> Result<Bytes, UpstreamError> {
    Err(UpstreamError::Broken("cut".to_owned()))
}

/// Runs a service between channels of encoded messages.
async fn typed<Q, R, F>(
    mut requests: mpsc::Receiver<Bytes>,
    out: &mpsc::Sender<Result<Bytes, UpstreamError>>,
    serve: impl FnOnce(mpsc::Receiver<Q>, mpsc::Sender<Result<R, Error>>) -> F,
) where
    Q: Message + Default,
    R: Message,
    F: Future<Output = ()>,
{
    let (to_service, from_client) = mpsc::channel(16);
    let (to_client, mut from_service) = mpsc::channel(16);
    let read = async {
        while let Some(bytes) = requests.recv().await {
            let request = Q::decode(bytes).expect("a request");
            if to_service.send(request).await.is_err() {
                break;
            }
        }
        drop(to_service);
        std::future::pending::<()>().await;
    };
    let write = async {
        while let Some(answer) = from_service.recv().await {
            if out.send(encoded(answer)).await.is_err() {
                return;
            }
        }
    };
    let service = async {
        serve(from_client, to_client).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = write => {}
        () = read => {}
        () = service => {}
    }
}

/// A member, the door before it, and the same member elsewhere.
pub(super) struct World {
    pub(super) env: Env,
    pub(super) member: Member,
    pub(super) door: Door,
    pub(super) upstream: Arc<InProcess>,
    pub(super) strings: Strings,
    _dir: tempfile::TempDir,
}

pub(super) const URL: &str = "http://localhost:2379";

impl World {
    pub(super) async fn new() -> World {
        let dir = tempfile::tempdir().expect("a folder");
        let env = tenon_env::real::env_without_peers();
        let mut config = config("m", &["http://localhost:2380"]);
        config.data_dir = dir.path().to_owned();
        config.advertise_client_urls = vec![URL.to_owned()];
        (config.heartbeat, config.election) =
            (Duration::from_millis(20), Duration::from_millis(100));
        let member = Member::start(&env, config).await.expect("starts");
        member.wait_ready().await;
        let upstream = Arc::new(InProcess::default());
        let strings = upstream.add(URL, member.services_shared());
        let door = Door::new(&env, Backend::Member(member.services_shared()));
        World {
            env,
            member,
            door,
            upstream,
            strings,
            _dir: dir,
        }
    }

    pub(super) fn here(&self) -> Backend {
        Backend::Member(self.member.services_shared())
    }

    pub(super) fn there(&self) -> Backend {
        Backend::Remote(self.remote(&[URL], self.door.shared_floor()))
    }

    pub(super) fn remote(&self, urls: &[&str], floor: SharedFloor) -> Arc<Remote> {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        Remote::new(&self.env, self.upstream.clone(), urls, floor)
    }

    /// Moves the endpoint.
    pub(super) async fn switch(&self, to: Backend) {
        let moved = self.door.switch(to, WITHIN).await;
        moved.expect("nothing is left behind");
    }

    pub(super) async fn put(&self, key: &str, value: &str) -> Result<pb::PutResponse, Error> {
        put(&self.door, key, value).await
    }

    pub(super) fn revision(&self) -> i64 {
        self.member.services().context.store().revision().get()
    }
}

pub(super) async fn put(door: &Door, key: &str, value: &str) -> Result<pb::PutResponse, Error> {
    let request = pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..pb::PutRequest::default()
    };
    let method = Method::KvPut;
    let visit = door.admit(method, Caller::default(), CallInfo::default())?;
    let here = |s: Arc<Services>, caller, request| async move { s.kv.put(&caller, request).await };
    door.unary(visit, method, request, here).await
}

pub(super) async fn get(
    door: &Door,
    key: &str,
    serializable: bool,
) -> Result<pb::RangeResponse, Error> {
    let request = pb::RangeRequest {
        key: key.to_owned().into(),
        serializable,
        ..pb::RangeRequest::default()
    };
    let method = Method::KvRange;
    let visit = door.admit(method, Caller::default(), CallInfo::default())?;
    let here =
        |s: Arc<Services>, caller, request| async move { s.kv.range(&caller, request).await };
    door.unary(visit, method, request, here).await
}

pub(super) async fn compact(door: &Door, revision: i64) {
    let request = pb::CompactionRequest {
        revision,
        physical: true,
    };
    let method = Method::KvCompact;
    let visit = door.admit(method, Caller::default(), CallInfo::default());
    let here =
        |s: Arc<Services>, caller, request| async move { s.kv.compact(&caller, request).await };
    let done: Result<pb::CompactionResponse, _> = door
        .unary(visit.expect("open"), method, request, here)
        .await;
    done.expect("compacts");
}
