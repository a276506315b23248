//! Room `client`: answers that come in parts.

use crate::retry::Failure;
use tenon_proto::error::Error;
use tonic::Streaming;

/// Longest message accepted; servers send up to 2 GiB.
pub(crate) const MESSAGE_MAX: usize = i32::MAX as usize;

/// The parts of one answer, in order. Dropping it ends the call.
#[derive(Debug)]
pub struct Parts<T> {
    inner: Streaming<T>,
}

impl<T> Parts<T> {
    pub(crate) fn new(inner: Streaming<T>) -> Parts<T> {
        Parts { inner }
    }

    /// The next part; `None` after the last. Waits without limit: a dead connection is noticed by pings.
    ///
    /// # Errors
    /// What the server says; `Unavailable` when the connection broke, which leaves the answer incomplete.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        let part = self.inner.message().await;
        part.map_err(|status| Failure::of(&status).into_error("the server"))
    }
}
