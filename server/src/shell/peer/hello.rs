//! Room `server/shell`: what two members tell each other before a stream opens, and when it does not. Pure.

use http::{HeaderMap, HeaderName, HeaderValue};
use tenon_env::StreamKind;

/// The one method of the peer protocol.
pub(super) const PATH: &str = "/tenon.peer.v1.Peer/Stream";

/// Version of framing and greeting. Messages have versions of their own.
const PROTOCOL: u64 = 1;

const PROTOCOL_HEADER: HeaderName = HeaderName::from_static("tenon-protocol");
const VERSION_HEADER: HeaderName = HeaderName::from_static("tenon-version");
const KIND_HEADER: HeaderName = HeaderName::from_static("tenon-stream");
const CLUSTER_HEADER: HeaderName = HeaderName::from_static("tenon-cluster");
const MEMBER_HEADER: HeaderName = HeaderName::from_static("tenon-member");

/// Who a member is; 0 where it does not know yet, which passes every check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) cluster: u64,
    pub(super) member: u64,
}

/// What one side said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) kind: StreamKind,
    pub(super) identity: Identity,
    protocol: u64,
    version: String,
}

impl Hello {
    /// What this member says.
    pub(super) fn own(kind: StreamKind, identity: Identity) -> Hello {
        Hello {
            kind,
            identity,
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(super) fn write(&self, headers: &mut HeaderMap) {
        let kind = match self.kind {
            StreamKind::Peer => "peer",
            StreamKind::Bulk => "bulk",
        };
        headers.insert(KIND_HEADER, HeaderValue::from_static(kind));
        headers.insert(PROTOCOL_HEADER, self.protocol.into());
        if let Ok(version) = HeaderValue::from_str(&self.version) {
            headers.insert(VERSION_HEADER, version);
        }
        for (name, id) in [
            (CLUSTER_HEADER, self.identity.cluster),
            (MEMBER_HEADER, self.identity.member),
        ] {
            let hex = HeaderValue::from_str(&format!("{id:x}")).expect("hexadecimal is ASCII");
            headers.insert(name, hex);
        }
    }

    /// What the other side said.
    ///
    /// # Errors
    /// A text saying what is missing or newer than this member understands.
    pub(super) fn read(headers: &HeaderMap) -> Result<Hello, String> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let hex = |name: &HeaderName| match text(name) {
            None => Ok(0),
            Some(digits) => u64::from_str_radix(digits, 16)
                .map_err(|_| format!("the header {name} is not hexadecimal: {digits:?}")),
        };
        let version = text(&VERSION_HEADER).unwrap_or("unknown").to_owned();
        let protocol = text(&PROTOCOL_HEADER).and_then(|n| n.parse().ok());
        let protocol = protocol.ok_or("the caller does not speak Tenon's peer protocol")?;
        if protocol != PROTOCOL {
            return Err(format!(
                "a member of version {} speaks peer protocol {PROTOCOL}, one of version {version} speaks \
                 {protocol}; upgrade one version at a time",
                env!("CARGO_PKG_VERSION")
            ));
        }
        let kind = match text(&KIND_HEADER) {
            Some("peer") => StreamKind::Peer,
            Some("bulk") => StreamKind::Bulk,
            other => {
                return Err(format!(
                    "a member of version {version} wants a stream of kind {other:?}, which version {} does \
                     not know",
                    env!("CARGO_PKG_VERSION")
                ));
            }
        };
        let identity = Identity {
            cluster: hex(&CLUSTER_HEADER)?,
            member: hex(&MEMBER_HEADER)?,
        };
        Ok(Hello {
            kind,
            identity,
            protocol,
            version,
        })
    }

    /// Whether the sender of this hello and `own` may talk.
    ///
    /// # Errors
    /// The cluster ids differ; the text names both sides and what to do.
    pub(super) fn check(&self, own: &Identity) -> Result<(), String> {
        let theirs = &self.identity;
        if theirs.cluster == 0 || own.cluster == 0 || theirs.cluster == own.cluster {
            return Ok(());
        }
        Err(format!(
            "cluster ID mismatch: member {:x} is of cluster {:x}, member {:x} is of cluster {:x}; one of them \
             has a wrong peer URL or the data directory of another cluster",
            own.member, own.cluster, theirs.member, theirs.cluster
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_written() {
        let identity = Identity {
            cluster: u64::MAX,
            member: 0x10,
        };
        for kind in [StreamKind::Peer, StreamKind::Bulk] {
            let hello = Hello::own(kind, identity);
            let mut headers = HeaderMap::new();
            hello.write(&mut headers);
            assert_eq!(Hello::read(&headers), Ok(hello));
        }
    }

    #[test]
    fn another_protocol_is_refused_naming_both() {
        let mut headers = HeaderMap::new();
        Hello::own(StreamKind::Peer, Identity::default()).write(&mut headers);
        headers.insert(PROTOCOL_HEADER, 2.into());
        headers.insert(VERSION_HEADER, HeaderValue::from_static("9.8.7"));
        let error = Hello::read(&headers).expect_err("newer");
        assert!(error.contains("speaks peer protocol 1"), "{error}");
        assert!(error.contains("9.8.7 speaks 2"), "{error}");

        let error = Hello::read(&HeaderMap::new()).expect_err("nothing said");
        assert!(error.contains("does not speak"), "{error}");
    }

    #[test]
    fn clusters_are_compared_once_both_are_known() {
        let known = |cluster| Identity { cluster, member: 7 };
        let hello = Hello::own(StreamKind::Peer, known(0xaa));
        assert_eq!(hello.check(&known(0xaa)), Ok(()));
        assert_eq!(hello.check(&known(0)), Ok(()));
        let error = hello.check(&known(0xbb)).expect_err("differs");
        assert!(
            error.contains("cluster bb") && error.contains("cluster aa"),
            "{error}"
        );
    }
}
