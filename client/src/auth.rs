//! Room `client`: tokens of the client itself, and the calls that administer users and roles.

use crate::call::Client;
use crate::options::Credentials;
use crate::retry::Repeat;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::auth_client::AuthClient;
use tokio::sync::Mutex;

/// The token calls are made with.
#[derive(Debug)]
pub(crate) struct Tokens {
    credentials: Option<Credentials>,
    /// Held while authenticating, so that many calls wait for one.
    state: Mutex<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// To be asked for.
    Missing,
    /// The cluster has authentication off.
    NotNeeded,
    /// A secret.
    Known(String),
}

impl Tokens {
    pub(crate) fn new(credentials: Option<Credentials>) -> Tokens {
        Tokens {
            credentials,
            state: Mutex::new(Token::Missing),
        }
    }

    /// Whether a refused token can be replaced.
    pub(crate) fn can_renew(&self) -> bool {
        self.credentials.is_some()
    }

    /// The token to send; none without credentials or while the cluster needs none.
    ///
    /// # Errors
    /// Those of `Authenticate`.
    pub(crate) async fn current(&self, client: &Client) -> Result<Option<String>, Error> {
        let Some(credentials) = &self.credentials else {
            return Ok(None);
        };
        let mut state = self.state.lock().await;
        if *state == Token::Missing {
            let request = pb::AuthenticateRequest {
                name: credentials.user.clone(),
                password: credentials.password.clone(),
            };
            *state = match client.authenticate(request).await {
                Ok(answer) => Token::Known(answer.token),
                Err(Error::AuthNotEnabled) => Token::NotNeeded,
                Err(error) => return Err(error),
            };
        }
        match &*state {
            Token::Known(token) => Ok(Some(token.clone())),
            _ => Ok(None),
        }
    }

    /// Forgets a refused token, unless another call replaced it already.
    pub(crate) async fn forget(&self, refused: Option<String>) {
        let mut state = self.state.lock().await;
        if *state == refused.map_or(Token::NotNeeded, Token::Known) {
            *state = Token::Missing;
        }
    }
}

/// Methods that pass one request to one RPC.
macro_rules! rpcs {
    ($client:ident; $($(#[$doc:meta])* $name:ident($request:ident) -> $answer:ident, $repeat:ident;)*) => {
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// What the server says; `Unavailable` or `DeadlineExceeded` when none answers.
                pub async fn $name(&self, request: pb::$request) -> Result<pb::$answer, Error> {
                    self.call(crate::retry::Repeat::$repeat, request, |channel, request| async move {
                        let mut client = $client::new(channel).max_decoding_message_size(crate::stream::MESSAGE_MAX);
                        client.$name(request).await
                    })
                    .await
                }
            )*
        }
    };
}
pub(crate) use rpcs;

impl Client {
    /// Exchanges a password for a token. Clients made with [`Credentials`] do this by themselves.
    ///
    /// # Errors
    /// `AuthFailed`, `AuthNotEnabled`.
    pub async fn authenticate(
        &self,
        request: pb::AuthenticateRequest,
    ) -> Result<pb::AuthenticateResponse, Error> {
        // Boxed: this runs inside other calls, and futures of calls would contain themselves.
        let call = self.call_bare(request, |channel, request| async move {
            AuthClient::new(channel).authenticate(request).await
        });
        Box::pin(call).await
    }

    /// Turns authentication on.
    ///
    /// # Errors
    /// `RootUserNotExist`, `RootRoleNotExist`, and what any call may meet.
    pub async fn auth_enable(&self) -> Result<pb::AuthEnableResponse, Error> {
        let request = pb::AuthEnableRequest {};
        self.call(Repeat::Harmless, request, |channel, request| async move {
            AuthClient::new(channel).auth_enable(request).await
        })
        .await
    }

    /// Turns authentication off.
    ///
    /// # Errors
    /// What any call may meet.
    pub async fn auth_disable(&self) -> Result<pb::AuthDisableResponse, Error> {
        let request = pb::AuthDisableRequest {};
        self.call(Repeat::Unsafe, request, |channel, request| async move {
            AuthClient::new(channel).auth_disable(request).await
        })
        .await
    }
}

rpcs! { AuthClient;
    /// Whether authentication is on, and its revision.
    auth_status(AuthStatusRequest) -> AuthStatusResponse, Harmless;
    /// Adds a user.
    user_add(AuthUserAddRequest) -> AuthUserAddResponse, Unsafe;
    /// Roles of a user.
    user_get(AuthUserGetRequest) -> AuthUserGetResponse, Harmless;
    /// Names of all users.
    user_list(AuthUserListRequest) -> AuthUserListResponse, Harmless;
    /// Removes a user.
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse, Unsafe;
    /// Sets a password.
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse, Unsafe;
    /// Gives a role to a user.
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse, Unsafe;
    /// Takes a role from a user.
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse, Unsafe;
    /// Adds a role.
    role_add(AuthRoleAddRequest) -> AuthRoleAddResponse, Unsafe;
    /// Permissions of a role.
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse, Harmless;
    /// Names of all roles.
    role_list(AuthRoleListRequest) -> AuthRoleListResponse, Harmless;
    /// Removes a role.
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse, Unsafe;
    /// Gives a permission to a role.
    role_grant_permission(AuthRoleGrantPermissionRequest) -> AuthRoleGrantPermissionResponse, Unsafe;
    /// Takes a permission from a role.
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse, Unsafe;
}
