//! Room `env`: the network of a member without peers.

use crate::{BoxFuture, Incoming, Net, NetStream, StreamKind};
use std::io;

/// Refuses every dial and never hears one.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNet;

impl Net for NoNet {
    fn connect(
        &self,
        urls: Vec<String>,
        _kind: StreamKind,
    ) -> BoxFuture<'static, io::Result<Box<dyn NetStream>>> {
        Box::pin(async move {
            let text = format!("this node has no peer transport; cannot dial {urls:?}");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        })
    }

    fn incoming(&self) -> Box<dyn Incoming> {
        Box::new(NoIncoming)
    }
}

struct NoIncoming;

impl Incoming for NoIncoming {
    fn accept(&mut self) -> BoxFuture<'_, Option<(StreamKind, Box<dyn NetStream>)>> {
        Box::pin(std::future::ready(None))
    }
}
