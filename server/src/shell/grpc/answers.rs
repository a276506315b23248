//! Room `server/shell`: the answers of a streaming method: what comes out of the host's door, as the stream that
//! tonic wants. Counts messages and the call's end. The reading of requests may run inside the stream: then an
//! answer follows its request without a change of tasks.

use super::gate::Running;
use super::requests::Fault;
use crate::host::streams::Stream as Messages;
use futures_util::StreamExt;
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tenon_env::BoxFuture;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tokio_stream::Stream;
use tonic::Status;

/// The stream. Dropping it, as tonic does when the client is gone, ends what runs inside.
pub struct Answers<R> {
    from: Messages<R>,
    running: Option<Arc<Running>>,
    /// What reads the requests, while it does.
    reading: Option<BoxFuture<'static, ()>>,
    /// Says that the client sent something unreadable, which ends the stream.
    fault: Option<Fault>,
}

impl<R> Answers<R> {
    /// The answers of a call that has begun.
    pub fn new(from: Messages<R>, running: Arc<Running>) -> Answers<R> {
        Answers {
            from,
            running: Some(running),
            reading: None,
            fault: None,
        }
    }

    /// Ends with what `fault` says.
    pub fn until(self, fault: Fault) -> Answers<R> {
        Answers {
            fault: Some(fault),
            ..self
        }
    }

    /// As [`Answers::new`]; `reading` runs whenever this is polled.
    pub fn beside(
        reading: impl Future<Output = ()> + Send + 'static,
        from: Messages<R>,
        running: Arc<Running>,
    ) -> Answers<R> {
        Answers {
            reading: Some(Box::pin(reading)),
            ..Answers::new(from, running)
        }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<R, Error>>> {
        if let Some(reading) = &mut self.reading
            && reading.as_mut().poll(cx).is_ready()
        {
            self.reading = None;
        }
        if let Some(fault) = &mut self.fault
            && let Poll::Ready(told) = Pin::new(fault).poll(cx)
        {
            self.fault = None;
            if let Ok(error) = told {
                return Poll::Ready(Some(Err(error)));
            }
        }
        self.from.poll_next_unpin(cx)
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
