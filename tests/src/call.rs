//! Room `tests`: calls over tonic with messages known only at run time.
//! May touch sockets; must not know any message by name.

use crate::schema::path;
use bytes::BytesMut;
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor, MethodDescriptor};
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// Metadata pairs sent with a call.
pub type Metadata = Vec<(String, String)>;

/// Encodes any message; decodes into the one output type it was made for.
pub struct DynamicCodec(MessageDescriptor);

/// The encoding half of [`DynamicCodec`].
pub struct DynamicEncoder;

/// The decoding half of [`DynamicCodec`].
pub struct DynamicDecoder(MessageDescriptor);

impl Codec for DynamicCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = DynamicEncoder;
    type Decoder = DynamicDecoder;

    fn encoder(&mut self) -> DynamicEncoder {
        DynamicEncoder
    }

    fn decoder(&mut self) -> DynamicDecoder {
        DynamicDecoder(self.0.clone())
    }
}

impl Encoder for DynamicEncoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let mut bytes = BytesMut::with_capacity(item.encoded_len());
        item.encode(&mut bytes)
            .map_err(|e| Status::internal(e.to_string()))?;
        bytes::BufMut::put(buf, bytes);
        Ok(())
    }
}

impl Decoder for DynamicDecoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.0.clone(), buf);
        message
            .map(Some)
            .map_err(|e| Status::internal(format!("undecodable answer: {e}")))
    }
}

/// Connects to `url` (`http://127.0.0.1:port`).
///
/// # Errors
/// The transport's text.
pub async fn connect(url: &str) -> Result<Channel, String> {
    let endpoint = Channel::from_shared(url.to_owned()).map_err(|e| e.to_string())?;
    endpoint.connect().await.map_err(|e| format!("{url}: {e}"))
}

/// Calls a unary method.
///
/// # Errors
/// The server's status.
pub async fn unary(
    channel: &Channel,
    method: &MethodDescriptor,
    metadata: &Metadata,
    message: DynamicMessage,
) -> Result<DynamicMessage, Status> {
    let mut grpc = client(channel).await?;
    let request = with_metadata(Request::new(message), metadata)?;
    let codec = DynamicCodec(method.output());
    grpc.unary(request, uri(method)?, codec)
        .await
        .map(tonic::Response::into_inner)
}

/// Opens a streaming method; returns when the server's headers are there, which real etcd sends only with
/// its first answer.
///
/// # Errors
/// The server's status.
pub async fn streaming<S>(
    channel: &Channel,
    method: &MethodDescriptor,
    metadata: &Metadata,
    requests: S,
) -> Result<Streaming<DynamicMessage>, Status>
where
    S: Stream<Item = DynamicMessage> + Send + 'static,
{
    let mut grpc = client(channel).await?;
    let request = with_metadata(Request::new(requests), metadata)?;
    let codec = DynamicCodec(method.output());
    grpc.streaming(request, uri(method)?, codec)
        .await
        .map(tonic::Response::into_inner)
}

async fn client(channel: &Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
    grpc.ready()
        .await
        .map_err(|e| Status::unavailable(format!("cannot connect: {e}")))?;
    Ok(grpc)
}

fn uri(method: &MethodDescriptor) -> Result<http::uri::PathAndQuery, Status> {
    path(method)
        .parse()
        .map_err(|e| Status::internal(format!("method path: {e}")))
}

fn with_metadata<T>(mut request: Request<T>, metadata: &Metadata) -> Result<Request<T>, Status> {
    for (key, value) in metadata {
        let bad = |what: &str| Status::internal(format!("metadata {what} {key:?}"));
        let key: AsciiMetadataKey = key.parse().map_err(|_| bad("key"))?;
        let value: AsciiMetadataValue = value.parse().map_err(|_| bad("value"))?;
        request.metadata_mut().insert(key, value);
    }
    Ok(request)
}
