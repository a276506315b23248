//! Room `server/shell`: the answers of a streaming method: what a service sends over a channel, as the stream
//! that tonic wants. Counts messages and the call's end. The service itself may run inside the stream: then
//! an event goes to the client without a change of tasks.

use super::gate::Running;
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tenon_env::BoxFuture;
use tenon_env::sync::mpsc;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tokio_stream::Stream;
use tonic::Status;

/// The stream. Dropping it, as tonic does when the client is gone, closes the channel, and ends the service
/// that runs inside.
pub struct Answers<R> {
    from: mpsc::Receiver<Result<R, Error>>,
    running: Option<Arc<Running>>,
    /// The service, while it runs inside; it alone sends to `from`.
    inside: Option<BoxFuture<'static, ()>>,
}

impl<R> Answers<R> {
    /// The answers of a call that has begun.
    pub fn new(from: mpsc::Receiver<Result<R, Error>>, running: Arc<Running>) -> Answers<R> {
        Answers {
            from,
            running: Some(running),
            inside: None,
        }
    }

    /// The answers of a call whose service, the only sender to `from`, runs whenever this is polled and
    /// nothing is left to send.
    pub fn of(
        service: impl Future<Output = ()> + Send + 'static,
        from: mpsc::Receiver<Result<R, Error>>,
        running: Arc<Running>,
    ) -> Answers<R> {
        Answers {
            from,
            running: Some(running),
            inside: Some(Box::pin(service)),
        }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<R, Error>>> {
        while let Some(service) = &mut self.inside {
            if let Ok(item) = self.from.try_recv() {
                return Poll::Ready(Some(item));
            }
            if service.as_mut().poll(cx).is_ready() {
                self.inside = None;
            } else if self.from.is_empty() {
                return Poll::Pending;
            }
        }
        self.from.poll_recv(cx)
    }

    fn end(&mut self, code: Code) {
        if let Some(running) = self.running.take() {
            running.end(code);
        }
    }
}

impl<R: Message> Stream for Answers<R> {
    type Item = Result<R, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.running.is_none() {
            return Poll::Ready(None);
        }
        let item = std::task::ready!(this.poll_item(cx));
        Poll::Ready(match item {
            Some(Ok(message)) => {
                if let Some(running) = &this.running {
                    running.sent(message.encoded_len());
                }
                Some(Ok(message))
            }
            Some(Err(error)) => {
                this.end(error.code());
                Some(Err(error.into()))
            }
            None => {
                this.end(Code::Ok);
                None
            }
        })
    }
}

impl<R> Unpin for Answers<R> {}
