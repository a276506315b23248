//! Room `server/service`: the gRPC methods as rows, so that metrics, learner rules, forwarding and texts need no
//! strings at run time. Data only.

/// Which sides stream, in the words of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Neither.
    Unary,
    /// The server.
    ServerStream,
    /// Both.
    BidiStream,
}

impl Kind {
    /// The metrics' label.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Unary => "unary",
            Kind::ServerStream => "server_stream",
            Kind::BidiStream => "bidi_stream",
        }
    }
}

macro_rules! methods {
    ($($variant:ident: $service:literal, $name:literal, $kind:ident;)*) => {
        /// A method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the method of that name")]
        pub enum Method { $($variant),* }

        impl Method {
            /// Every method, in the order of their numbers.
            pub const ALL: &'static [Method] = &[$(Method::$variant),*];

            /// Service, name and kind.
            pub fn row(self) -> (&'static str, &'static str, Kind) {
                match self {
                    $(Method::$variant => ($service, $name, Kind::$kind)),*
                }
            }
        }
    };
}

methods! {
    AuthAuthDisable: "etcdserverpb.Auth", "AuthDisable", Unary;
    AuthAuthEnable: "etcdserverpb.Auth", "AuthEnable", Unary;
    AuthAuthStatus: "etcdserverpb.Auth", "AuthStatus", Unary;
    AuthAuthenticate: "etcdserverpb.Auth", "Authenticate", Unary;
    AuthRoleAdd: "etcdserverpb.Auth", "RoleAdd", Unary;
    AuthRoleDelete: "etcdserverpb.Auth", "RoleDelete", Unary;
    AuthRoleGet: "etcdserverpb.Auth", "RoleGet", Unary;
    AuthRoleGrantPermission: "etcdserverpb.Auth", "RoleGrantPermission", Unary;
    AuthRoleList: "etcdserverpb.Auth", "RoleList", Unary;
    AuthRoleRevokePermission: "etcdserverpb.Auth", "RoleRevokePermission", Unary;
    AuthUserAdd: "etcdserverpb.Auth", "UserAdd", Unary;
    AuthUserChangePassword: "etcdserverpb.Auth", "UserChangePassword", Unary;
    AuthUserDelete: "etcdserverpb.Auth", "UserDelete", Unary;
    AuthUserGet: "etcdserverpb.Auth", "UserGet", Unary;
    AuthUserGrantRole: "etcdserverpb.Auth", "UserGrantRole", Unary;
    AuthUserList: "etcdserverpb.Auth", "UserList", Unary;
    AuthUserRevokeRole: "etcdserverpb.Auth", "UserRevokeRole", Unary;
    ClusterMemberAdd: "etcdserverpb.Cluster", "MemberAdd", Unary;
    ClusterMemberList: "etcdserverpb.Cluster", "MemberList", Unary;
    ClusterMemberPromote: "etcdserverpb.Cluster", "MemberPromote", Unary;
    ClusterMemberRemove: "etcdserverpb.Cluster", "MemberRemove", Unary;
    ClusterMemberUpdate: "etcdserverpb.Cluster", "MemberUpdate", Unary;
    KvCompact: "etcdserverpb.KV", "Compact", Unary;
    KvDeleteRange: "etcdserverpb.KV", "DeleteRange", Unary;
    KvPut: "etcdserverpb.KV", "Put", Unary;
    KvRange: "etcdserverpb.KV", "Range", Unary;
    KvRangeStream: "etcdserverpb.KV", "RangeStream", ServerStream;
    KvTxn: "etcdserverpb.KV", "Txn", Unary;
    LeaseLeaseGrant: "etcdserverpb.Lease", "LeaseGrant", Unary;
    LeaseLeaseKeepAlive: "etcdserverpb.Lease", "LeaseKeepAlive", BidiStream;
    LeaseLeaseLeases: "etcdserverpb.Lease", "LeaseLeases", Unary;
    LeaseLeaseRevoke: "etcdserverpb.Lease", "LeaseRevoke", Unary;
    LeaseLeaseTimeToLive: "etcdserverpb.Lease", "LeaseTimeToLive", Unary;
    MaintenanceAlarm: "etcdserverpb.Maintenance", "Alarm", Unary;
    MaintenanceDefragment: "etcdserverpb.Maintenance", "Defragment", Unary;
    MaintenanceDowngrade: "etcdserverpb.Maintenance", "Downgrade", Unary;
    MaintenanceHash: "etcdserverpb.Maintenance", "Hash", Unary;
    MaintenanceHashKv: "etcdserverpb.Maintenance", "HashKV", Unary;
    MaintenanceMoveLeader: "etcdserverpb.Maintenance", "MoveLeader", Unary;
    MaintenanceSnapshot: "etcdserverpb.Maintenance", "Snapshot", ServerStream;
    MaintenanceStatus: "etcdserverpb.Maintenance", "Status", Unary;
    WatchWatch: "etcdserverpb.Watch", "Watch", BidiStream;
    HealthCheck: "grpc.health.v1.Health", "Check", Unary;
    HealthWatch: "grpc.health.v1.Health", "Watch", ServerStream;
    MembersJoin: "tenon.host.v1.Members", "Join", Unary;
    MembersStanding: "tenon.host.v1.Members", "Standing", Unary;
}

/// Whether a request may be carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It changes nothing, or the same thing again.
    Harmless,
    /// Only if it certainly was not carried out.
    Unsafe,
}

impl Method {
    /// The request path, `/package.Service/Name`.
    pub fn path(self) -> String {
        let (service, name, _) = self.row();
        format!("/{service}/{name}")
    }

    /// Whether its requests may be carried out twice. `Txn` is decided by the request: one that only reads may.
    pub fn repeat(self) -> Repeat {
        use Method as M;
        match self {
            M::AuthAuthStatus
            | M::AuthAuthenticate
            | M::AuthRoleGet
            | M::AuthRoleList
            | M::AuthUserGet
            | M::AuthUserList
            | M::ClusterMemberList
            | M::KvRange
            | M::KvRangeStream
            | M::LeaseLeaseKeepAlive
            | M::LeaseLeaseLeases
            | M::LeaseLeaseTimeToLive
            | M::MaintenanceHash
            | M::MaintenanceHashKv
            | M::MaintenanceSnapshot
            | M::MaintenanceStatus
            | M::WatchWatch
            | M::HealthCheck
            | M::HealthWatch
            | M::MembersStanding => Repeat::Harmless,
            _ => Repeat::Unsafe,
        }
    }

    /// Whether a host without a member has the leader answer it: what it says or does is about one member.
    pub fn of_one_member(self) -> bool {
        matches!(
            self,
            Method::MaintenanceStatus
                | Method::MaintenanceHash
                | Method::MaintenanceHashKv
                | Method::MaintenanceDefragment
                | Method::MaintenanceMoveLeader
        )
    }

    /// The method behind a request path `/package.Service/Name`.
    pub fn from_path(path: &str) -> Option<Method> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        Method::ALL.iter().copied().find(|method| {
            let (s, n, _) = method.row();
            s == service && n == name
        })
    }

    /// Whether a learner answers it. `Range` is decided by the request: only a serializable one.
    pub fn on_learner(self) -> bool {
        matches!(
            self,
            Method::MaintenanceStatus
                | Method::MaintenanceSnapshot
                | Method::HealthCheck
                | Method::HealthWatch
        )
    }
}
