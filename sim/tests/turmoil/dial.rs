//! Room `sim`, L2: the ways in: our Rust client, and tonic's own channel, over turmoil's sockets.

use super::world::{PORT, SERVER};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tenon_client::{Client, ConnectOptions, Connector};
use tonic::transport::{Channel, Endpoint};
use turmoil::net::TcpStream;

async fn open(uri: Uri) -> io::Result<TcpStream> {
    let host = uri.host().expect("a name").to_owned();
    TcpStream::connect((host, uri.port_u16().expect("a port"))).await
}

/// The server's URL.
pub fn url() -> String {
    format!("http://{SERVER}:{PORT}")
}

/// Our client with its default settings but for the time of a call.
pub fn client(request_timeout: Duration) -> Client {
    let options = ConnectOptions {
        request_timeout,
        connector: Some(Connector::new(open)),
        ..ConnectOptions::default()
    };
    Client::connect([url()], options).expect("a good URL")
}

/// tonic's channel as it comes.
pub fn channel() -> Channel {
    connect(endpoint())
}

/// tonic's channel that pings every 2 s, and gives a connection up 1 s after a ping.
pub fn pinging_channel() -> Channel {
    let settings = endpoint().http2_keep_alive_interval(Duration::from_secs(2));
    connect(settings.keep_alive_timeout(Duration::from_secs(1)))
}

fn endpoint() -> Endpoint {
    let settings = Endpoint::from_shared(url()).expect("a good URL");
    settings.connect_timeout(Duration::from_secs(1))
}

fn connect(settings: Endpoint) -> Channel {
    let open = |uri| async { open(uri).await.map(TokioIo::new) };
    settings.connect_with_connector_lazy(tower::service_fn(open))
}
