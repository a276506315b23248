//! Room `server/shell`: the answers of a streaming method: what a service sends over a channel, as the stream
//! that tonic wants. Counts messages and the call's end.

use super::gate::Running;
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tenon_env::sync::mpsc;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tokio_stream::Stream;
use tonic::Status;

/// The stream. Dropping it, as tonic does when the client is gone, closes the channel.
pub struct Answers<R> {
    from: mpsc::Receiver<Result<R, Error>>,
    running: Option<Arc<Running>>,
}

impl<R> Answers<R> {
    /// The answers of a call that has begun.
    pub fn new(from: mpsc::Receiver<Result<R, Error>>, running: Arc<Running>) -> Answers<R> {
        Answers {
            from,
            running: Some(running),
        }
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
        let item = std::task::ready!(this.from.poll_recv(cx));
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
