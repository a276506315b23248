//! Room `server/shell`: how a host in client mode reaches members: one HTTP/2 connection per client URL, made at
//! first use and again after it broke, and messages as they are. Decides nothing.

#![allow(
    clippy::disallowed_methods,
    reason = "the shell's timers and tasks are tokio's"
)]

use super::grpc::requests::HOPS;
use crate::host::remote::{Answers, CallInfo, Upstream, UpstreamError};
use crate::service::method::Method;
use crate::service::watch::NeedsLeader;
use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::BoxFuture;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Time to make a connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// A connection without traffic is asked for a sign of life this often, and given up without one.
const ALIVE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));
/// Bytes in flight per stream and per connection, unread.
const WINDOWS: (u32, u32) = (2 << 20, 64 << 20);
/// Answers of a stream read ahead.
const AHEAD: usize = 16;

/// Channels to members by client URL.
#[derive(Default)]
pub struct Channels {
    open: Mutex<BTreeMap<String, Result<Channel, String>>>,
}

impl Channels {
    /// None yet.
    pub fn new() -> Arc<Channels> {
        Arc::default()
    }

    fn to(&self, url: &str) -> Result<Grpc<Channel>, UpstreamError> {
        let mut open = self.open.lock();
        let channel = open
            .entry(url.to_owned())
            .or_insert_with(|| connect(url))
            .clone();
        let channel = channel.map_err(UpstreamError::NotSent)?;
        Ok(Grpc::new(channel)
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX))
    }
}

fn connect(url: &str) -> Result<Channel, String> {
    let usable = match url.split_once("://") {
        Some(("https" | "unixs", _)) => return Err("TLS is not built in yet".to_owned()),
        Some(("unix", path)) => format!("unix:{path}"),
        Some(_) => url.to_owned(),
        None => format!("http://{url}"),
    };
    let endpoint = Endpoint::from_shared(usable).map_err(|error| error.to_string())?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIME)
        .http2_keep_alive_interval(ALIVE.0)
        .keep_alive_timeout(ALIVE.1)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .tcp_nodelay(true)
        .connect_lazy())
}

impl Upstream for Channels {
    fn unary(
        &self,
        target: &str,
        method: Method,
        call: CallInfo,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, UpstreamError>> {
        let client = self.to(target);
        Box::pin(async move {
            let mut client = client?;
            ready(&mut client).await?;
            let mut request = Request::new(request);
            *request.metadata_mut() = metadata(&call);
            let answer = client.unary(request, path(method), Raw).await;
            answer
                .map(tonic::Response::into_inner)
                .map_err(|s| failure(&s))
        })
    }

    fn stream(
        &self,
        target: &str,
        method: Method,
        call: CallInfo,
        requests: mpsc::Receiver<Bytes>,
    ) -> BoxFuture<'static, Result<Answers, UpstreamError>> {
        let client = self.to(target);
        Box::pin(async move {
            let mut client = client?;
            ready(&mut client).await?;
            let mut request = Request::new(ReceiverStream::new(requests));
            *request.metadata_mut() = metadata(&call);
            let answer = client.streaming(request, path(method), Raw).await;
            let mut from = answer.map_err(|s| failure(&s))?.into_inner();
            let (to, answers) = mpsc::channel(AHEAD);
            tokio::spawn(async move {
                loop {
                    let item = tokio::select! {
                        biased;
                        () = to.closed() => return,
                        item = from.next() => item,
                    };
                    let Some(item) = item else { return };
                    if to.send(item.map_err(|s| failure(&s))).await.is_err() {
                        return;
                    }
                }
            });
            Ok(answers)
        })
    }
}

/// Waits for the connection; nothing is sent before.
async fn ready(client: &mut Grpc<Channel>) -> Result<(), UpstreamError> {
    let ready = client.ready().await;
    ready.map_err(|error| UpstreamError::NotSent(causes(&error)))
}

fn path(method: Method) -> http::uri::PathAndQuery {
    method.path().parse().expect("our own paths")
}

fn metadata(call: &CallInfo) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.insert(HOPS, MetadataValue::from(u16::from(call.hops)));
    if call.needs_leader == NeedsLeader::Yes {
        metadata.insert("hasleader", MetadataValue::from_static("true"));
    }
    // One that cannot be sent is none that a member gave out.
    if let Some(Ok(token)) = call.token.as_deref().map(MetadataValue::try_from) {
        metadata.insert("token", token);
    }
    metadata
}

/// Statuses that members send have no source; those of this process say by it how far the request came.
fn failure(status: &Status) -> UpstreamError {
    let Some(source) = status.source() else {
        return UpstreamError::Status(Error::from(status));
    };
    let mut next: Option<&(dyn StdError + 'static)> = Some(source);
    while let Some(error) = next {
        let refused = error.downcast_ref::<h2::Error>().is_some_and(|error| {
            error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
        });
        let unsent = error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled);
        if error.is::<tonic::ConnectError>() || refused || unsent {
            return UpstreamError::NotSent(causes(source));
        }
        next = error.source();
    }
    UpstreamError::Broken(causes(source))
}

/// An error and what is behind it, in one line.
fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

/// Messages as they are.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}

#[cfg(test)]
mod tests;
