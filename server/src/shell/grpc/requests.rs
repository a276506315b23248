//! Room `server/shell`: the requests of a streaming method: what tonic reads from the client, put into the
//! channel that a service takes.

use super::gate::{Gate, Running};
use prost::Message;
use std::sync::Arc;
use tenon_env::sync::mpsc;
use tonic::Streaming;

/// Metadata with the number of doors a call has passed.
pub const HOPS: &str = "tenon-hops";
/// Requests read ahead of the service.
const AHEAD: usize = 64;

/// Reads requests in a task of its own.
pub fn read<Q>(gate: &Gate, from: Streaming<Q>, running: Arc<Running>) -> mpsc::Receiver<Q>
where
    Q: Message + Default + 'static,
{
    let (to, requests) = mpsc::channel(AHEAD);
    gate.door.env().spawn("requests", pump(from, to, running));
    requests
}

/// Requests that are read in the task that answers them: the channel, and the future that fills it.
pub fn beside<Q>(
    from: Streaming<Q>,
    running: Arc<Running>,
) -> (mpsc::Receiver<Q>, impl Future<Output = ()> + Send + 'static)
where
    Q: Message + Default + 'static,
{
    let (to, requests) = mpsc::channel(AHEAD);
    (requests, pump(from, to, running))
}

/// Reads requests until the client ends, its stream breaks, or the service is gone.
async fn pump<Q>(mut from: Streaming<Q>, to: mpsc::Sender<Q>, running: Arc<Running>)
where
    Q: Message + Default + 'static,
{
    loop {
        let request = tokio::select! {
            biased;
            () = to.closed() => return,
            request = from.message() => request,
        };
        let Ok(Some(request)) = request else { return };
        running.received(request.encoded_len());
        if to.send(request).await.is_err() {
            return;
        }
    }
}
