//! A server in this process that answers as told, and counts what reaches it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenon_client::proto::error::Error;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::etcdserverpb::auth_server::AuthServer;
use tenon_client::proto::etcdserverpb::kv_server::{Kv, KvServer};
use tenon_client::proto::etcdserverpb::watch_server::{Watch, WatchServer};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

/// What it does, and what it saw.
#[derive(Debug, Default)]
pub struct Script {
    /// Errors of the next calls; afterwards all succeed.
    pub errors: Mutex<VecDeque<Error>>,
    /// Calls that reached it.
    pub calls: AtomicUsize,
    /// The one token it takes, if it wants any.
    pub token: Mutex<Option<String>>,
    /// Tokens handed out.
    pub tokens_given: AtomicUsize,
    /// Responses of the next watch streams, each ending as given.
    pub watches: Mutex<VecDeque<(Vec<pb::WatchResponse>, Option<Status>)>>,
    /// Start revisions the watches asked for.
    pub starts: Mutex<Vec<i64>>,
}

impl Script {
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.errors.lock().expect("sound").pop_front() {
            return Err(error.into());
        }
        let wanted = self.token.lock().expect("sound").clone();
        let token = request.metadata().get("token");
        let token = token.and_then(|t| t.to_str().ok());
        match wanted {
            Some(wanted) if token != Some(&wanted) => Err(Error::InvalidAuthToken.into()),
            _ => Ok(()),
        }
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Stops when dropped.
pub struct Fake {
    pub url: String,
    pub script: Arc<Script>,
    task: JoinHandle<()>,
}

impl Fake {
    pub async fn start(script: Script) -> Fake {
        Fake::start_on(script, 0).await
    }

    pub async fn start_on(script: Script, port: u16) -> Fake {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listener.expect("loopback binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let script = Arc::new(script);
        let service = Service(script.clone());
        let task = tokio::spawn(async move {
            let server = tonic::transport::Server::builder()
                .add_service(KvServer::new(service.clone()))
                .add_service(AuthServer::new(service.clone()))
                .add_service(WatchServer::new(service));
            let _ = server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await;
        });
        Fake { url, script, task }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Service(Arc<Script>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Kv for Service {
    type RangeStreamStream = BoxStream<pb::RangeStreamResponse>;

    async fn range(&self, request: Request<pb::RangeRequest>) -> Answer<pb::RangeResponse> {
        self.0.admit(&request)?;
        Ok(Response::new(Default::default()))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Answer<pb::PutResponse> {
        self.0.admit(&request)?;
        Ok(Response::new(Default::default()))
    }

    async fn range_stream(&self, _: Request<pb::RangeRequest>) -> Answer<Self::RangeStreamStream> {
        Err(Status::unimplemented("fake"))
    }

    async fn delete_range(
        &self,
        _: Request<pb::DeleteRangeRequest>,
    ) -> Answer<pb::DeleteRangeResponse> {
        Err(Status::unimplemented("fake"))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Answer<pb::TxnResponse> {
        self.0.admit(&request)?;
        Ok(Response::new(Default::default()))
    }

    async fn compact(&self, _: Request<pb::CompactionRequest>) -> Answer<pb::CompactionResponse> {
        Err(Status::unimplemented("fake"))
    }
}

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = BoxStream<pb::WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Answer<Self::WatchStream> {
        let mut requests = request.into_inner();
        let (tx, rx) = tokio::sync::mpsc::channel(64);
        let script = self.0.clone();
        tokio::spawn(async move {
            let Ok(Some(create)) = requests.message().await else {
                return;
            };
            if let Some(pb::watch_request::RequestUnion::CreateRequest(create)) =
                create.request_union
            {
                script
                    .starts
                    .lock()
                    .expect("sound")
                    .push(create.start_revision);
            }
            let next = script.watches.lock().expect("sound").pop_front();
            let (responses, end) = next.unwrap_or_default();
            for response in responses {
                let _ = tx.send(Ok(response)).await;
            }
            if let Some(status) = end {
                let _ = tx.send(Err(status)).await;
            } else {
                // Stays open until the client leaves.
                while let Ok(Some(_)) = requests.message().await {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(rx))))
    }
}

/// Refuses every call of the Auth service but `Authenticate`.
macro_rules! auth {
    ($($name:ident($request:ident) -> $answer:ident;)*) => {
        #[tonic::async_trait]
        impl tenon_client::proto::etcdserverpb::auth_server::Auth for Service {
            async fn authenticate(
                &self,
                _: Request<pb::AuthenticateRequest>,
            ) -> Answer<pb::AuthenticateResponse> {
                let count = self.0.tokens_given.fetch_add(1, Ordering::SeqCst) + 1;
                Ok(Response::new(pb::AuthenticateResponse {
                    token: format!("t{count}"),
                    ..Default::default()
                }))
            }
            $(async fn $name(&self, _: Request<pb::$request>) -> Answer<pb::$answer> {
                Err(Status::unimplemented("fake"))
            })*
        }
    };
}

auth! {
    auth_enable(AuthEnableRequest) -> AuthEnableResponse;
    auth_disable(AuthDisableRequest) -> AuthDisableResponse;
    auth_status(AuthStatusRequest) -> AuthStatusResponse;
    user_add(AuthUserAddRequest) -> AuthUserAddResponse;
    user_get(AuthUserGetRequest) -> AuthUserGetResponse;
    user_list(AuthUserListRequest) -> AuthUserListResponse;
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse;
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse;
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse;
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse;
    role_add(AuthRoleAddRequest) -> AuthRoleAddResponse;
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse;
    role_list(AuthRoleListRequest) -> AuthRoleListResponse;
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse;
    role_grant_permission(AuthRoleGrantPermissionRequest) -> AuthRoleGrantPermissionResponse;
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse;
}
