//! Room `tests`: one open stream of a script: what is sent goes in at once, what arrives is queued.
//! May touch tasks and time; must not interpret messages.

use crate::call::{self, Metadata};
use prost_reflect::{DynamicMessage, MethodDescriptor};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

/// What came over a stream.
#[derive(Debug)]
pub enum Arrival {
    /// A message.
    Message(DynamicMessage),
    /// The end; `None` is OK.
    End(Option<Status>),
}

/// An open stream; dropping it resets it.
pub struct Stream {
    requests: Option<mpsc::UnboundedSender<DynamicMessage>>,
    answers: mpsc::UnboundedReceiver<Arrival>,
    reader: JoinHandle<()>,
}

impl Stream {
    /// Opens a stream in the background (a server's headers may come only with its first answer).
    #[must_use]
    pub fn open(channel: Channel, method: MethodDescriptor, metadata: Metadata) -> Self {
        // Unbounded: a script sends and receives a bounded number of messages.
        let (requests, outgoing) = mpsc::unbounded_channel();
        let (arrived, answers) = mpsc::unbounded_channel();
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let reader = tokio::spawn(async move {
            let end = match call::streaming(&channel, &method, &metadata, outgoing).await {
                Err(status) => Some(status),
                Ok(mut incoming) => loop {
                    match incoming.message().await {
                        Ok(Some(message)) => _ = arrived.send(Arrival::Message(message)),
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                },
            };
            let _ = arrived.send(Arrival::End(end));
        });
        Self {
            requests: Some(requests),
            answers,
            reader,
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// A sentence when the stream is already finished.
    pub fn send(&self, message: DynamicMessage) -> Result<(), String> {
        let sender = self.requests.as_ref().ok_or("stream is finished")?;
        sender
            .send(message)
            .map_err(|_| "stream has ended".to_owned())
    }

    /// Sends nothing more.
    pub fn finish(&mut self) {
        self.requests = None;
    }

    /// The next arrival, or `None` when nothing came within `wait`.
    pub async fn next(&mut self, wait: Duration) -> Option<Arrival> {
        timeout_at(Instant::now() + wait, self.answers.recv())
            .await
            .ok()
            .flatten()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
