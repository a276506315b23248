//! Room proto: who calls, as service methods are told. Names claims, proves none: the auth store
//! resolves a `Caller` to a [`crate::command::Caller`], and only that travels in the log.

use crate::ids::MemberId;
use std::fmt;

/// Who calls a service method. All empty: an unauthenticated client in the same process.
///
/// - A token, when sent, wins over the certificate.
/// - `forwarded_by` is set only for calls that came through another member's or host's certificate;
///   the other fields then describe the *end* caller.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// Token from the request's metadata, a leading `Bearer ` removed. A secret: `Debug` hides it.
    pub token: Option<String>,
    /// Common name of the client's verified certificate.
    pub certificate_name: Option<String>,
    /// Address the call came from, for logs.
    pub peer: Option<String>,
    /// Member that forwarded the call.
    pub forwarded_by: Option<MemberId>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("token", &self.token.as_ref().map(|_| "<hidden>"))
            .field("certificate_name", &self.certificate_name)
            .field("peer", &self.peer)
            .field("forwarded_by", &self.forwarded_by)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        let caller = Caller {
            token: Some("s3cret.17".into()),
            ..Caller::default()
        };
        let printed = format!("{caller:?}");
        assert!(
            !printed.contains("s3cret") && printed.contains("hidden"),
            "{printed}"
        );
    }
}
