//! Room `server/service`: etcd's Auth service while authentication is off, which is all there is until the
//! security issue. Questions are answered as by an etcd without users and roles; what would create some, or
//! switch authentication on, is refused.

use super::context::Context;
use tenon_proto::caller::Caller;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;

/// The Auth service.
#[derive(Clone)]
pub struct Auth {
    context: Context,
}

/// Revision of an auth store that never changed.
const AUTH_REVISION: u64 = 1;

fn not_yet(what: &str) -> Error {
    Error::other(
        Code::Unimplemented,
        format!("tenon: {what} is not there yet"),
    )
}

impl Auth {
    /// The service of a member.
    pub fn new(context: Context) -> Auth {
        Auth { context }
    }

    fn header(&self) -> Option<pb::ResponseHeader> {
        Some(self.context.current_header())
    }

    /// Switches authentication on: not yet.
    pub async fn auth_enable(
        &self,
        _: &Caller,
        _: pb::AuthEnableRequest,
    ) -> Result<pb::AuthEnableResponse, Error> {
        Err(not_yet("authentication"))
    }

    /// Switches authentication off; it is off.
    pub async fn auth_disable(
        &self,
        _: &Caller,
        _: pb::AuthDisableRequest,
    ) -> Result<pb::AuthDisableResponse, Error> {
        self.context.read_barrier().await?;
        Ok(pb::AuthDisableResponse {
            header: self.header(),
        })
    }

    /// Whether authentication is on.
    pub async fn auth_status(
        &self,
        _: &Caller,
        _: pb::AuthStatusRequest,
    ) -> Result<pb::AuthStatusResponse, Error> {
        self.context.read_barrier().await?;
        let header = self.header();
        Ok(pb::AuthStatusResponse {
            header,
            enabled: false,
            auth_revision: AUTH_REVISION,
        })
    }

    /// Gives a token for name and password: not while authentication is off.
    pub async fn authenticate(
        &self,
        _: &Caller,
        _: pb::AuthenticateRequest,
    ) -> Result<pb::AuthenticateResponse, Error> {
        Err(Error::AuthNotEnabled)
    }

    /// Adds a user: not yet.
    pub async fn user_add(
        &self,
        _: &Caller,
        request: pb::AuthUserAddRequest,
    ) -> Result<pb::AuthUserAddResponse, Error> {
        if request.name.is_empty() {
            return Err(Error::UserEmpty);
        }
        Err(not_yet("adding users"))
    }

    /// Roles of a user; there is none.
    pub async fn user_get(
        &self,
        _: &Caller,
        _: pb::AuthUserGetRequest,
    ) -> Result<pb::AuthUserGetResponse, Error> {
        Err(Error::UserNotFound)
    }

    /// Names of all users; there is none.
    pub async fn user_list(
        &self,
        _: &Caller,
        _: pb::AuthUserListRequest,
    ) -> Result<pb::AuthUserListResponse, Error> {
        self.context.read_barrier().await?;
        Ok(pb::AuthUserListResponse {
            header: self.header(),
            users: vec![],
        })
    }

    /// Deletes a user; there is none.
    pub async fn user_delete(
        &self,
        _: &Caller,
        _: pb::AuthUserDeleteRequest,
    ) -> Result<pb::AuthUserDeleteResponse, Error> {
        Err(Error::UserNotFound)
    }

    /// Changes a password; there is no user.
    pub async fn user_change_password(
        &self,
        _: &Caller,
        _: pb::AuthUserChangePasswordRequest,
    ) -> Result<pb::AuthUserChangePasswordResponse, Error> {
        Err(Error::UserNotFound)
    }

    /// Gives a user a role; there is no user.
    pub async fn user_grant_role(
        &self,
        _: &Caller,
        _: pb::AuthUserGrantRoleRequest,
    ) -> Result<pb::AuthUserGrantRoleResponse, Error> {
        Err(Error::UserNotFound)
    }

    /// Takes a role from a user; there is no user.
    pub async fn user_revoke_role(
        &self,
        _: &Caller,
        _: pb::AuthUserRevokeRoleRequest,
    ) -> Result<pb::AuthUserRevokeRoleResponse, Error> {
        Err(Error::UserNotFound)
    }

    /// Adds a role: not yet.
    pub async fn role_add(
        &self,
        _: &Caller,
        request: pb::AuthRoleAddRequest,
    ) -> Result<pb::AuthRoleAddResponse, Error> {
        if request.name.is_empty() {
            return Err(Error::RoleEmpty);
        }
        Err(not_yet("adding roles"))
    }

    /// Permissions of a role; there is none.
    pub async fn role_get(
        &self,
        _: &Caller,
        _: pb::AuthRoleGetRequest,
    ) -> Result<pb::AuthRoleGetResponse, Error> {
        Err(Error::RoleNotFound)
    }

    /// Names of all roles; there is none.
    pub async fn role_list(
        &self,
        _: &Caller,
        _: pb::AuthRoleListRequest,
    ) -> Result<pb::AuthRoleListResponse, Error> {
        self.context.read_barrier().await?;
        Ok(pb::AuthRoleListResponse {
            header: self.header(),
            roles: vec![],
        })
    }

    /// Deletes a role; there is none.
    pub async fn role_delete(
        &self,
        _: &Caller,
        _: pb::AuthRoleDeleteRequest,
    ) -> Result<pb::AuthRoleDeleteResponse, Error> {
        Err(Error::RoleNotFound)
    }

    /// Gives a role a permission; there is no role.
    pub async fn role_grant_permission(
        &self,
        _: &Caller,
        request: pb::AuthRoleGrantPermissionRequest,
    ) -> Result<pb::AuthRoleGrantPermissionResponse, Error> {
        let Some(perm) = request.perm else {
            return Err(Error::PermissionNotGiven);
        };
        let open_or_single = perm.range_end.is_empty() || perm.range_end.as_ref() == [0];
        if perm.key.is_empty() || !(open_or_single || perm.range_end > perm.key) {
            return Err(Error::InvalidAuthMgmt);
        }
        Err(Error::RoleNotFound)
    }

    /// Takes a permission from a role; there is no role.
    pub async fn role_revoke_permission(
        &self,
        _: &Caller,
        _: pb::AuthRoleRevokePermissionRequest,
    ) -> Result<pb::AuthRoleRevokePermissionResponse, Error> {
        Err(Error::RoleNotFound)
    }
}
