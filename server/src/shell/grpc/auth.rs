//! Room `server/shell`: the gRPC side of etcd's Auth service. Thin: every method passes the gate and asks
//! the service of that name.

use super::gate::Gate;
use crate::service::Services;
use crate::service::method::Method;
use std::sync::Arc;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::auth_server::Auth;
use tonic::{Request, Response, Status};

/// Adapts [`crate::service::auth::Auth`] to gRPC.
pub struct AuthRpc(pub Gate);

#[tonic::async_trait]
impl Auth for AuthRpc {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.auth_enable(&caller, request).await
        };
        self.0.unary(Method::AuthAuthEnable, request, call).await
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.auth_disable(&caller, request).await
        };
        self.0.unary(Method::AuthAuthDisable, request, call).await
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.auth_status(&caller, request).await
        };
        self.0.unary(Method::AuthAuthStatus, request, call).await
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.authenticate(&caller, request).await
        };
        self.0.unary(Method::AuthAuthenticate, request, call).await
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_add(&caller, request).await
        };
        self.0.unary(Method::AuthUserAdd, request, call).await
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_get(&caller, request).await
        };
        self.0.unary(Method::AuthUserGet, request, call).await
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_list(&caller, request).await
        };
        self.0.unary(Method::AuthUserList, request, call).await
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_delete(&caller, request).await
        };
        self.0.unary(Method::AuthUserDelete, request, call).await
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_change_password(&caller, request).await
        };
        self.0
            .unary(Method::AuthUserChangePassword, request, call)
            .await
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_grant_role(&caller, request).await
        };
        self.0.unary(Method::AuthUserGrantRole, request, call).await
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.user_revoke_role(&caller, request).await
        };
        self.0
            .unary(Method::AuthUserRevokeRole, request, call)
            .await
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.role_add(&caller, request).await
        };
        self.0.unary(Method::AuthRoleAdd, request, call).await
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.role_get(&caller, request).await
        };
        self.0.unary(Method::AuthRoleGet, request, call).await
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.role_list(&caller, request).await
        };
        self.0.unary(Method::AuthRoleList, request, call).await
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.role_delete(&caller, request).await
        };
        self.0.unary(Method::AuthRoleDelete, request, call).await
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.role_grant_permission(&caller, request).await
        };
        self.0
            .unary(Method::AuthRoleGrantPermission, request, call)
            .await
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let call = |s: Arc<Services>, caller, request| async move {
            s.auth.role_revoke_permission(&caller, request).await
        };
        self.0
            .unary(Method::AuthRoleRevokePermission, request, call)
            .await
    }
}
