//! Room `server/shell`: the requests of a streaming method: what tonic reads from the client, put into the
//! channel that a service takes.

use super::gate::{Gate, Running};
use super::refusals;
use prost::Message;
use std::sync::Arc;
use tenon_env::sync::{mpsc, oneshot};
use tenon_proto::error::Error;
use tonic::Streaming;

/// Metadata with the number of doors a call has passed.
pub const HOPS: &str = "tenon-hops";
/// Requests read ahead of the service.
const AHEAD: usize = 64;

/// Completes with what a client is told that sent something unreadable; with an error when all was read.
pub type Fault = oneshot::Receiver<Error>;

/// Reads requests in a task of its own.
pub fn read<Q>(gate: &Gate, from: Streaming<Q>, running: Arc<Running>) -> (mpsc::Receiver<Q>, Fault)
where
    Q: Message + Default + 'static,
{
    let (to, requests) = mpsc::channel(AHEAD);
    let (told, fault) = oneshot::channel();
    let reading = pump(from, to, told, running);
    gate.door.env().spawn("requests", reading);
    (requests, fault)
}

/// Requests that are read in the task that answers them: the channel, and the future that fills it.
pub fn beside<Q>(
    from: Streaming<Q>,
    running: Arc<Running>,
) -> (
    mpsc::Receiver<Q>,
    Fault,
    impl Future<Output = ()> + Send + 'static,
)
where
    Q: Message + Default + 'static,
{
    let (to, requests) = mpsc::channel(AHEAD);
    let (told, fault) = oneshot::channel();
    (requests, fault, pump(from, to, told, running))
}

/// Reads requests until the client ends, its stream breaks, or the service is gone.
async fn pump<Q>(
    mut from: Streaming<Q>,
    to: mpsc::Sender<Q>,
    fault: oneshot::Sender<Error>,
    running: Arc<Running>,
) where
    Q: Message + Default + 'static,
{
    loop {
        let request = tokio::select! {
            biased;
            () = to.closed() => return,
            request = from.message() => request,
        };
        let request = match request {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(status) => {
                if let Some(error) = refusals::of_stream(&status) {
                    let _ = fault.send(error);
                }
                return;
            }
        };
        running.received(request.encoded_len());
        if to.send(request).await.is_err() {
            return;
        }
    }
}
