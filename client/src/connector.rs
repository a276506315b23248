//! Room `client`: connections that the caller opens: through a tunnel, within the process, or on a network that is
//! simulated. Knows nothing of calls.

use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint, Uri};

/// An open connection.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Connection for S {}

type Opened = io::Result<TokioIo<Box<dyn Connection>>>;
type Opening = Pin<Box<dyn Future<Output = Opened> + Send>>;

/// A way to open connections. Clones name the same.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(Uri) -> Opening + Send + Sync>);

impl Connector {
    /// `open` is asked for every connection, with the URL of its endpoint.
    pub fn new<F, O, S>(open: F) -> Connector
    where
        F: Fn(Uri) -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Connector(Arc::new(move |uri| {
            let opening = open(uri);
            Box::pin(async move {
                let stream: Box<dyn Connection> = Box::new(opening.await?);
                Ok(TokioIo::new(stream))
            })
        }))
    }

    pub(crate) fn channel(&self, settings: &Endpoint) -> Channel {
        let open = self.0.clone();
        settings.connect_with_connector_lazy(tower::service_fn(move |uri| open(uri)))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
