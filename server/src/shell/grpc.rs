//! Room `server/shell`: etcd's gRPC services on tonic: one thin adapter per service, and the table of paths.

mod answers;
mod auth;
mod cluster;
pub mod gate;
mod health;
mod host;
mod kv;
mod lease;
mod maintenance;
pub mod refusals;
pub(in crate::shell) mod requests;
mod watch;

use crate::host::Host;
use crate::service::method::Method;
use auth::AuthRpc;
use cluster::ClusterRpc;
use gate::Gate;
use health::HealthRpc;
use host::{HostRpc, MembersRpc};
use hyper::body::Incoming;
use kv::KvRpc;
use lease::LeaseRpc;
use maintenance::MaintenanceRpc;
use std::sync::Arc;
use tenon_proto::code::Code;
use tenon_proto::etcdserverpb::auth_server::AuthServer;
use tenon_proto::etcdserverpb::cluster_server::ClusterServer;
use tenon_proto::etcdserverpb::kv_server::KvServer;
use tenon_proto::etcdserverpb::lease_server::LeaseServer;
use tenon_proto::etcdserverpb::maintenance_server::MaintenanceServer;
use tenon_proto::etcdserverpb::watch_server::WatchServer;
use tenon_proto::host::host_server::HostServer;
use tenon_proto::host::members_server::MembersServer;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic_health::pb::health_server::HealthServer;
use tower::ServiceExt;
use watch::WatchRpc;

/// How much a message may exceed the request limit before the gRPC layer refuses it, bytes.
const RECEIVE_MARGIN: usize = 512 << 10;

struct Servers {
    gate: Gate,
    kv: KvServer<KvRpc>,
    watch: WatchServer<WatchRpc>,
    lease: LeaseServer<LeaseRpc>,
    cluster: ClusterServer<ClusterRpc>,
    maintenance: MaintenanceServer<MaintenanceRpc>,
    auth: AuthServer<AuthRpc>,
    health: HealthServer<HealthRpc>,
    /// Absent behind a door in which no host stands.
    host: Option<HostServer<HostRpc>>,
    members: MembersServer<MembersRpc>,
    reflection: axum::Router,
}

impl Servers {
    async fn reflect(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        match self.reflection.clone().oneshot(request).await {
            Ok(response) => response.map(Body::new),
            Err(never) => match never {},
        }
    }
}

/// Tells tools like grpcurl which services and messages there are. etcd does not offer it.
fn reflection() -> axum::Router {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tenon_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let v1 = builder().build_v1().expect("our own descriptors");
    let v1alpha = builder().build_v1alpha().expect("our own descriptors");
    tonic::service::Routes::new(v1)
        .add_service(v1alpha)
        .into_axum_router()
}

/// All services of a listener. Cloning is cheap.
#[derive(Clone)]
pub struct Rpc {
    servers: Arc<Servers>,
}

impl Rpc {
    /// The services behind `gate`, which take requests up to `request_bytes_max`, and those of the host itself.
    pub fn new(gate: Gate, host: Option<Host>, request_bytes_max: usize) -> Rpc {
        let max = request_bytes_max.saturating_add(RECEIVE_MARGIN);
        macro_rules! server {
            ($server:ident, $adapter:ident) => {
                $server::new($adapter(gate.clone()))
                    .max_decoding_message_size(max)
                    .max_encoding_message_size(usize::MAX)
            };
        }
        let servers = Servers {
            kv: server!(KvServer, KvRpc),
            watch: server!(WatchServer, WatchRpc),
            lease: server!(LeaseServer, LeaseRpc),
            cluster: server!(ClusterServer, ClusterRpc),
            maintenance: server!(MaintenanceServer, MaintenanceRpc),
            auth: server!(AuthServer, AuthRpc),
            health: server!(HealthServer, HealthRpc),
            host: host.map(|host| HostServer::new(HostRpc(host))),
            members: server!(MembersServer, MembersRpc),
            reflection: reflection(),
            gate,
        };
        Rpc {
            servers: Arc::new(servers),
        }
    }

    /// Whether a service of that name exists.
    pub fn serves(service: &str) -> bool {
        let mut rows = Method::ALL.iter().map(|method| method.row().0);
        service == "tenon.host.v1.Host" || rows.any(|row| row == service)
    }

    /// Counts a call that the gRPC layer refused.
    pub fn refused(&self, path: &str, code: Code) {
        if let Some(method) = Method::from_path(path) {
            self.servers.gate.metrics.started(method);
            self.servers.gate.metrics.handled(method, code, None);
        }
    }

    /// Answers one call.
    pub async fn call(&self, request: http::Request<Incoming>) -> http::Response<Body> {
        let servers = &self.servers;
        let service = request.uri().path().split('/').nth(1).unwrap_or("");
        let answered = match service {
            "etcdserverpb.KV" => servers.kv.clone().call(request).await,
            "etcdserverpb.Watch" => servers.watch.clone().call(request).await,
            "etcdserverpb.Lease" => servers.lease.clone().call(request).await,
            "etcdserverpb.Cluster" => servers.cluster.clone().call(request).await,
            "etcdserverpb.Maintenance" => servers.maintenance.clone().call(request).await,
            "etcdserverpb.Auth" => servers.auth.clone().call(request).await,
            "grpc.health.v1.Health" => servers.health.clone().call(request).await,
            "tenon.host.v1.Host" => match servers.host.clone() {
                Some(mut host) => host.call(request).await,
                None => return tonic::Status::new(tonic::Code::Unimplemented, "").into_http(),
            },
            "tenon.host.v1.Members" => servers.members.clone().call(request).await,
            "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection" => {
                return servers.reflect(request).await;
            }
            _ => return tonic::Status::new(tonic::Code::Unimplemented, "").into_http(),
        };
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
