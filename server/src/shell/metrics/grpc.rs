//! Room `server/shell`: counts of gRPC calls by method and code.

use super::text::{Kind, Page};
use crate::service::method::{self, Method};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenon_proto::code::Code;
use tenon_storage::Durations;

/// Bounds of latencies in seconds: Prometheus' defaults, as etcd's.
const GRPC_BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

#[derive(Debug)]
struct Row {
    started: AtomicU64,
    handled: [AtomicU64; Code::ALL.len()],
    messages_received: AtomicU64,
    messages_sent: AtomicU64,
    took: Option<Durations>,
}

/// Counts of all methods since the start.
#[derive(Debug)]
pub struct GrpcMetrics {
    rows: Vec<Row>,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    extensive: bool,
}

impl GrpcMetrics {
    /// No calls yet; with latencies when `extensive`.
    pub fn new(extensive: bool) -> GrpcMetrics {
        let row = |_: &Method| Row {
            started: AtomicU64::new(0),
            handled: Default::default(),
            messages_received: AtomicU64::new(0),
            messages_sent: AtomicU64::new(0),
            took: extensive.then(|| Durations::new(GRPC_BOUNDS)),
        };
        GrpcMetrics {
            rows: Method::ALL.iter().map(row).collect(),
            bytes_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            extensive,
        }
    }

    /// Whether latencies are kept.
    pub fn is_extensive(&self) -> bool {
        self.extensive
    }

    fn row(&self, method: Method) -> &Row {
        &self.rows[method as usize]
    }

    /// A call began.
    pub fn started(&self, method: Method) {
        self.row(method).started.fetch_add(1, Ordering::Relaxed);
    }

    /// A call ended.
    pub fn handled(&self, method: Method, code: Code, took: Option<Duration>) {
        let row = self.row(method);
        row.handled[code as usize].fetch_add(1, Ordering::Relaxed);
        if let (Some(histogram), Some(took)) = (&row.took, took) {
            histogram.observe(took);
        }
    }

    /// Bytes of a message came from a client.
    pub fn received(&self, bytes: usize) {
        self.bytes_received
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of a message went to a client.
    pub fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A message of a stream came from a client.
    pub fn message_received(&self, method: Method) {
        self.row(method)
            .messages_received
            .fetch_add(1, Ordering::Relaxed);
    }

    /// A message of a stream went to a client.
    pub fn message_sent(&self, method: Method) {
        self.row(method)
            .messages_sent
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Writes all families.
    pub fn write(&self, page: &mut Page) {
        page.single(
            "etcd_network_client_grpc_received_bytes_total",
            Kind::Counter,
            "Bytes of gRPC messages from clients.",
            self.bytes_received.load(Ordering::Relaxed),
        );
        page.single(
            "etcd_network_client_grpc_sent_bytes_total",
            Kind::Counter,
            "Bytes of gRPC messages to clients.",
            self.bytes_sent.load(Ordering::Relaxed),
        );
        let name = "grpc_server_handled_total";
        page.family(name, Kind::Counter, "Calls that ended, by code.");
        for (labels, row) in self.labelled() {
            let [method, service, kind] = labels;
            for (code, count) in Code::ALL.iter().zip(&row.handled) {
                let code = code.to_string();
                let labels = [("grpc_code", code.as_str()), method, service, kind];
                page.sample(name, &labels, count.load(Ordering::Relaxed));
            }
        }
        if self.extensive {
            let name = "grpc_server_handling_seconds";
            page.family(name, Kind::Histogram, "How long calls took.");
            for (labels, row) in self.labelled() {
                if let Some(histogram) = &row.took {
                    page.histogram(name, &labels, &histogram.now());
                }
            }
        }
        self.write_counts(page);
    }

    fn write_counts(&self, page: &mut Page) {
        let unary = |method: Method| method.row().2 == method::Kind::Unary;
        type Count = fn(&Row) -> &AtomicU64;
        let families: [(&str, &str, Count); 3] = [
            (
                "grpc_server_msg_received_total",
                "Messages from clients.",
                |r| &r.messages_received,
            ),
            ("grpc_server_msg_sent_total", "Messages to clients.", |r| {
                &r.messages_sent
            }),
            ("grpc_server_started_total", "Calls that began.", |r| {
                &r.started
            }),
        ];
        for (name, help, count) in families {
            page.family(name, Kind::Counter, help);
            for (method, (labels, row)) in Method::ALL.iter().zip(self.labelled()) {
                // A unary call has one message each way; only streams count theirs.
                let value = match name {
                    "grpc_server_msg_received_total" if unary(*method) => {
                        row.started.load(Ordering::Relaxed)
                    }
                    "grpc_server_msg_sent_total" if unary(*method) => {
                        row.handled[Code::Ok as usize].load(Ordering::Relaxed)
                    }
                    _ => count(row).load(Ordering::Relaxed),
                };
                page.sample(name, &labels, value);
            }
        }
    }

    fn labelled(&self) -> impl Iterator<Item = ([(&'static str, &'static str); 3], &Row)> {
        Method::ALL.iter().zip(&self.rows).map(|(method, row)| {
            let (service, name, kind) = method.row();
            let labels = [
                ("grpc_method", name),
                ("grpc_service", service),
                ("grpc_type", kind.label()),
            ];
            (labels, row)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_and_code_is_there_from_the_start() {
        let metrics = GrpcMetrics::new(false);
        metrics.started(Method::KvPut);
        metrics.handled(Method::KvPut, Code::Ok, None);
        let mut page = Page::default();
        metrics.write(&mut page);
        let text = page.finish();
        let lines = text
            .lines()
            .filter(|l| l.starts_with("grpc_server_handled_total{"))
            .count();
        assert_eq!(lines, Method::ALL.len() * 17);
        assert!(text.contains(
            "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Put\",\
             grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1\n"
        ));
        assert!(text.contains(
            "grpc_server_started_total{grpc_method=\"Watch\",\
             grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"} 0\n"
        ));
        assert!(!text.contains("grpc_server_handling_seconds"));
    }
}
