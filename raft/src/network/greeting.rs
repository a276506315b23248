//! Room `raft`: how two members make sure that they mean each other before anything else is said.

use super::wire;
use prost::Message;
use std::io;
use tenon_env::NetStream;
use tenon_proto::ids::{ClusterId, MemberId};
use tenon_proto::peer::{Hello, HelloReply, Refusal, hello_reply, refusal};

/// Versions of the peer protocol that this program speaks.
const PROTOCOL: std::ops::RangeInclusive<u32> = 1..=1;

/// Who this member is to its peers.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: ClusterId,
    pub(crate) member: MemberId,
}

/// The other side would not talk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) kind: refusal::Kind,
    pub(crate) text: String,
}

impl Identity {
    fn hello(&self, to: u64) -> Hello {
        Hello {
            cluster_id: self.cluster.0,
            from: self.member.0,
            to,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_min: *PROTOCOL.start(),
            protocol_max: *PROTOCOL.end(),
        }
    }

    fn describe(&self) -> String {
        format!("member {} of cluster {}", self.member, self.cluster)
    }

    /// Whether to talk to whoever sent `hello`.
    pub(crate) fn judge(
        &self,
        hello: &Hello,
        removed: impl Fn(MemberId) -> bool,
    ) -> Option<Refusal> {
        let refuse = |kind: refusal::Kind, text: String| {
            Some(Refusal {
                kind: kind.into(),
                text,
            })
        };
        let they = format!("member {:x} of cluster {:x}", hello.from, hello.cluster_id);
        if hello.cluster_id != self.cluster.0 {
            let text = format!("{they} speaks to {}: two clusters", self.describe());
            return refuse(refusal::Kind::Cluster, text);
        }
        if hello.protocol_max < *PROTOCOL.start() || hello.protocol_min > *PROTOCOL.end() {
            let text = format!(
                "{they}, version {}, speaks peer protocols {} to {}; {}, version {}, speaks {} to {}",
                hello.version,
                hello.protocol_min,
                hello.protocol_max,
                self.describe(),
                env!("CARGO_PKG_VERSION"),
                PROTOCOL.start(),
                PROTOCOL.end(),
            );
            return refuse(refusal::Kind::Protocol, text);
        }
        if hello.to != self.member.0 {
            let text = format!(
                "{they} wants member {:x}, this is {}",
                hello.to,
                self.describe()
            );
            return refuse(refusal::Kind::Identity, text);
        }
        if removed(MemberId(hello.from)) {
            let text = format!(
                "{they} has been removed from the cluster, says {}",
                self.describe()
            );
            return refuse(refusal::Kind::Removed, text);
        }
        None
    }
}

/// What a dial can end in besides a stream.
#[derive(Debug)]
pub(crate) enum NoStream {
    Refused(Refused),
    Broken(io::Error),
}

impl From<io::Error> for NoStream {
    fn from(error: io::Error) -> NoStream {
        NoStream::Broken(error)
    }
}

impl std::fmt::Display for NoStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoStream::Refused(refused) => f.write_str(&refused.text),
            NoStream::Broken(error) => error.fmt(f),
        }
    }
}

async fn receive<M: Message + Default>(stream: &mut dyn NetStream) -> io::Result<M> {
    let bytes = stream.recv().await?;
    let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    wire::decode(bytes).map_err(|text| io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Greets the member that was dialled.
pub(crate) async fn greet(
    me: &Identity,
    to: u64,
    stream: &mut dyn NetStream,
) -> Result<(), NoStream> {
    stream.send(me.hello(to).encode_to_vec().into()).await?;
    match receive::<HelloReply>(stream).await?.answer {
        Some(hello_reply::Answer::Accepted(_)) => Ok(()),
        Some(hello_reply::Answer::Refused(refusal)) => {
            let kind = refusal.kind();
            Err(NoStream::Refused(Refused {
                kind,
                text: refusal.text,
            }))
        }
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "an empty greeting").into()),
    }
}

/// Answers a greeting; who greeted.
pub(crate) async fn answer(
    me: &Identity,
    removed: impl Fn(MemberId) -> bool,
    stream: &mut dyn NetStream,
) -> Result<MemberId, NoStream> {
    let hello = receive::<Hello>(stream).await?;
    let refusal = me.judge(&hello, removed);
    let answer = match refusal.clone() {
        None => hello_reply::Answer::Accepted(me.hello(hello.from)),
        Some(refusal) => hello_reply::Answer::Refused(refusal),
    };
    stream
        .send(
            HelloReply {
                answer: Some(answer),
            }
            .encode_to_vec()
            .into(),
        )
        .await?;
    match refusal {
        None => Ok(MemberId(hello.from)),
        Some(refusal) => {
            let kind = refusal.kind();
            Err(NoStream::Refused(Refused {
                kind,
                text: refusal.text,
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(cluster: u64, member: u64) -> Identity {
        Identity {
            cluster: ClusterId(cluster),
            member: MemberId(member),
        }
    }

    fn kind(hello: &Hello) -> Option<refusal::Kind> {
        identity(1, 2)
            .judge(hello, |id| id == MemberId(66))
            .map(|r| r.kind())
    }

    #[test]
    fn strangers_are_refused_by_name() {
        assert_eq!(kind(&identity(1, 3).hello(2)), None);
        assert_eq!(kind(&identity(9, 3).hello(2)), Some(refusal::Kind::Cluster));
        assert_eq!(
            kind(&identity(1, 3).hello(4)),
            Some(refusal::Kind::Identity)
        );
        assert_eq!(
            kind(&identity(1, 66).hello(2)),
            Some(refusal::Kind::Removed)
        );
        let newer = Hello {
            protocol_min: 2,
            protocol_max: 7,
            ..identity(1, 3).hello(2)
        };
        assert_eq!(kind(&newer), Some(refusal::Kind::Protocol));
        let both = Hello {
            protocol_min: 1,
            protocol_max: 7,
            ..newer
        };
        assert_eq!(kind(&both), None);
        let text = identity(1, 2)
            .judge(&identity(9, 3).hello(2), |_| false)
            .expect("refused")
            .text;
        assert!(
            text.contains("cluster 9") && text.contains("cluster 1"),
            "{text}"
        );
    }
}
