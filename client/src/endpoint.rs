//! Room `client`: one server address: its URL and its connections. Knows no other endpoint.

use crate::options::ConnectOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tonic::transport::{Channel, Endpoint as Settings};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Bytes in flight per stream, unread.
const STREAM_WINDOW: u32 = 2 << 20;

/// Bytes in flight per connection, unread. Far above one stream's, so that a few watches nobody reads do not
/// stop the others on their connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Time a health check may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// One address. Connections open at first use and again after they broke.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// `http://host:port` or `unix:path`.
    pub(crate) url: String,
    /// For calls.
    pub(crate) calls: Channel,
    /// For watches: on a connection of their own, so that large answers do not delay events.
    pub(crate) streams: Channel,
    failed: AtomicBool,
}

impl Endpoint {
    /// Must run inside a tokio runtime.
    ///
    /// # Errors
    /// `InvalidArgument` when the text names no address this client can reach.
    pub(crate) fn new(text: &str, options: &ConnectOptions) -> Result<Endpoint, Error> {
        let url = normal(text)?;
        let settings = Settings::from_shared(url.clone())
            .map_err(|error| refused(text, &error.to_string()))?
            .connect_timeout(options.connect_timeout)
            .http2_keep_alive_interval(options.keep_alive_interval)
            .keep_alive_timeout(options.keep_alive_timeout)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .tcp_nodelay(true);
        let channel = || match &options.connector {
            Some(connector) => connector.channel(&settings),
            None => settings.connect_lazy(),
        };
        Ok(Endpoint {
            url,
            calls: channel(),
            streams: channel(),
            failed: AtomicBool::new(false),
        })
    }

    /// Whether calls should rather go elsewhere.
    pub(crate) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Says whether it failed; returns what was said before.
    pub(crate) fn set_failed(&self, failed: bool) -> bool {
        self.failed.swap(failed, Ordering::AcqRel)
    }

    /// Asks its health service. One without that service is healthy if it answers at all.
    pub(crate) async fn is_serving(&self) -> bool {
        let mut health = HealthClient::new(self.calls.clone());
        let check = health.check(HealthCheckRequest::default());
        match tokio::time::timeout(HEALTH_TIMEOUT, check).await {
            Ok(Ok(answer)) => answer.into_inner().status() == ServingStatus::Serving,
            Ok(Err(status)) => status.code() == tonic::Code::Unimplemented,
            Err(_) => false,
        }
    }
}

/// The URL of an endpoint as users write it: a bare `host:port` is plain HTTP.
fn normal(text: &str) -> Result<String, Error> {
    let text = text.trim().trim_end_matches('/');
    match text.split_once("://") {
        _ if text.is_empty() => Err(refused(text, "it is empty")),
        Some(("http", host)) if !host.is_empty() => Ok(text.to_owned()),
        Some(("unix", path)) if !path.is_empty() => Ok(format!("unix:{path}")),
        Some(("https" | "unixs", _)) => Err(refused(text, "TLS is not built in yet")),
        Some(_) => Err(refused(text, "its scheme must be http or unix")),
        None if text.starts_with("unix:") => Ok(text.to_owned()),
        None => Ok(format!("http://{text}")),
    }
}

fn refused(text: &str, why: &str) -> Error {
    let message = format!("tenon: cannot use endpoint {text:?}: {why}");
    Error::other(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_users_write_them() {
        for (text, url) in [
            ("127.0.0.1:2379", "http://127.0.0.1:2379"),
            (" http://[::1]:2379/ ", "http://[::1]:2379"),
            ("unix:///run/x.sock", "unix:/run/x.sock"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
        ] {
            assert_eq!(normal(text).as_deref(), Ok(url));
        }
        for (text, why) in [
            ("https://a:1", "TLS"),
            ("ftp://a:1", "scheme"),
            ("", "empty"),
        ] {
            let error = normal(text).expect_err(text);
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.message().contains(why), "{error}");
        }
    }
}
