//! Room `server/shell`: asks the peers of a member without data, over their HTTP endpoint `/members`, whether
//! their cluster runs and who belongs to it. Judges nothing.

use super::flags::url::{FlagUrl, Scheme};
use crate::member::config::{KnownMember, MemberConfig, RunningCluster};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tenon_proto::ids::{ClusterId, MemberId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// How long one peer URL may take.
const WITHIN: Duration = Duration::from_secs(2);
/// Longest list of members read.
const BYTES_MAX: usize = 1 << 20;

/// The cluster as a peer tells that knows this member, or else the first to answer: one that is behind may not
/// have heard of an addition yet. `None` when none answers.
pub(super) async fn ask(config: &MemberConfig) -> Option<RunningCluster> {
    let others = config.initial_cluster.iter();
    let urls = others
        .filter(|(name, _)| **name != config.name)
        .flat_map(|(_, urls)| urls);
    let asked = urls.map(|url| async move {
        let answer = tokio::time::timeout(WITHIN, members(url)).await;
        match answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(running) => Some(running),
            Err(error) => {
                tracing::info!(%error, url, "a peer did not tell of a running cluster");
                None
            }
        }
    });
    let answers = futures_util::future::join_all(asked).await;
    let mut answers: Vec<RunningCluster> = answers.into_iter().flatten().collect();
    let knows_us = |running: &RunningCluster| {
        let own = config.initial_cluster.get(&config.name);
        let mut members = running.members.iter();
        own.is_some_and(|own| members.any(|m| m.peer_urls.iter().any(|url| own.contains(url))))
    };
    let at = answers.iter().position(knows_us).unwrap_or(0);
    (at < answers.len()).then(|| answers.swap_remove(at))
}

async fn members(url: &str) -> io::Result<RunningCluster> {
    let target = FlagUrl::read(url).map_err(io::Error::other)?;
    match target.scheme {
        Scheme::Http => {
            let host = (target.host.as_str(), target.port);
            let authority = target.text.trim_start_matches("http://").to_owned();
            get(TcpStream::connect(host).await?, &authority).await
        }
        Scheme::Unix => get(UnixStream::connect(target.socket_path()).await?, "unix").await,
        Scheme::Https | Scheme::Unixs => {
            let text = "TLS between members is not built in yet; use http or unix";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

async fn get<S>(socket: S, authority: &str) -> io::Result<RunningCluster>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::handshake(TokioIo::new(socket)).await;
    let (mut requests, connection) = handshake.map_err(io::Error::other)?;
    let request = Request::get("/members")
        .header(header::HOST, authority)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let ask = async {
        let answer = requests.send_request(request).await;
        let (head, body) = answer.map_err(io::Error::other)?.into_parts();
        if head.status != StatusCode::OK {
            return Err(io::Error::other(format!("it answered {}", head.status)));
        }
        let body = Limited::new(body, BYTES_MAX).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        let cluster = head.headers.get("x-etcd-cluster-id");
        let cluster = cluster.and_then(|id| id.to_str().ok()).unwrap_or("");
        read(cluster, &body).map_err(io::Error::other)
    };
    tokio::pin!(connection, ask);
    tokio::select! {
        biased;
        answer = &mut ask => answer,
        ended = &mut connection => match ended {
            Ok(()) => ask.await,
            Err(error) => Err(io::Error::other(error)),
        },
    }
}

fn read(cluster: &str, body: &[u8]) -> Result<RunningCluster, String> {
    let id = u64::from_str_radix(cluster, 16)
        .map_err(|_| format!("its cluster id is not hexadecimal: {cluster:?}"))?;
    let list: serde_json::Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let rows = list.as_array().ok_or("its answer is no list")?;
    let texts = |value: &serde_json::Value| {
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts = all.iter().filter_map(|v| v.as_str());
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let member = |row: &serde_json::Value| KnownMember {
        id: MemberId(row["id"].as_u64().unwrap_or(0)),
        name: row["name"].as_str().unwrap_or("").to_owned(),
        peer_urls: texts(&row["peerURLs"]),
        client_urls: texts(&row["clientURLs"]),
        is_learner: row["isLearner"].as_bool().unwrap_or(false),
    };
    Ok(RunningCluster {
        id: ClusterId(id),
        members: rows.iter().map(member).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_members_is_read() {
        let body = br#"[{"id":18446744073709551615,"peerURLs":["http://a:1"],"isLearner":true},
            {"id":2,"peerURLs":["http://b:1"],"name":"b","clientURLs":["http://b:2"]}]"#;
        let running = read("ff", body).unwrap();
        assert_eq!(running.id, ClusterId(255));
        assert_eq!(running.members[0].id, MemberId(u64::MAX));
        assert!(running.members[0].is_learner && running.members[0].client_urls.is_empty());
        assert_eq!(running.members[1].name, "b");
        assert_eq!(running.members[1].client_urls, ["http://b:2"]);
        assert!(read("xyz", body).is_err());
        assert!(read("1", b"{}").is_err());
    }
}
