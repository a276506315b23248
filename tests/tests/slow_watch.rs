//! Room `tests`: watchers that do not read while much happens: nobody else waits for them, the server keeps no copy
//! for each, and when they read they get the exact history, or are told what compaction took. May touch processes
//! and sockets; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use prost_reflect::DynamicMessage;
use std::time::Duration;
use tenon_tests::call::{self, Metadata};
use tenon_tests::cluster::field;
use tenon_tests::group::Group;
use tenon_tests::metrics;
use tenon_tests::schema::Schema;
use tenon_tests::server::Kind;
use tenon_tests::web;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

/// How long the next message may take.
const WITHIN: Duration = Duration::from_secs(20);

/// A watch stream that is read only when it is asked for its next message: flow control stops the server.
struct Watch {
    incoming: Streaming<DynamicMessage>,
    /// Keeps the sending half open.
    _requests: tokio::sync::mpsc::UnboundedSender<DynamicMessage>,
}

impl Watch {
    /// On a connection of its own; created when this returns.
    async fn open(schema: &Schema, url: &str, create: &str) -> Watch {
        let method = schema.method("Watch").expect("a method");
        let request = Schema::request(method.input(), create).expect("a request");
        let (requests, outgoing) = tokio::sync::mpsc::unbounded_channel();
        requests.send(request).expect("queued");
        let channel = call::connect(url).await.expect("connects");
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let incoming = call::streaming(&channel, &method, &Metadata::new(), outgoing).await;
        let mut watch = Watch {
            incoming: incoming.expect("a stream"),
            _requests: requests,
        };
        let first = watch.next().await;
        assert!(text(&first).contains("created:true"), "{}", text(&first));
        watch
    }

    async fn next(&mut self) -> DynamicMessage {
        let next = tokio::time::timeout(WITHIN, self.incoming.message()).await;
        let next = next.expect("in time").expect("no error");
        next.expect("not the end")
    }
}

fn text(message: &DynamicMessage) -> String {
    message.to_text_format()
}

/// Revisions of the events of a response.
fn revisions(message: &DynamicMessage) -> Vec<i64> {
    let events = message.get_field_by_name("events").expect("a field");
    let revision = |event: &prost_reflect::Value| {
        let kv = event.as_message()?.get_field_by_name("kv")?.into_owned();
        kv.as_message()?.get_field_by_name("mod_revision")?.as_i64()
    };
    let events = events.as_list().expect("a list");
    events
        .iter()
        .map(|e| revision(e).expect("a pair"))
        .collect()
}

/// Bytes that the server's process holds.
async fn resident(url: &str) -> f64 {
    let page = web::metrics_page(url).await.expect("a page");
    metrics::read(&page).expect("a page")["process_resident_memory_bytes"].total
}

async fn put(schema: &Schema, group: &mut Group, key: &str, bytes: usize) {
    let request = format!("key: \"{key}\" value: \"{}\"", "x".repeat(bytes));
    let put = group.ask(schema, 0, "Put", &request).await;
    put.expect("a put");
}

const EVENTS: i64 = 3000;
const EVENT_BYTES: usize = 4096;
const STANDING: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_delays_nobody_costs_little_and_misses_nothing() {
    let schema = Schema::load().expect("schemas");
    let mut group = Group::alone(Kind::Tenon, &[]).expect("starts");
    group.wait_ready(&schema, 0).await.expect("answers");
    let url = group.servers[0].url();
    let create = r#"create_request { key: "a" range_end: "b" }"#;
    let mut standing = Vec::new();
    for _ in 0..STANDING {
        standing.push(Watch::open(&schema, &url, create).await);
    }
    let mut reading = Watch::open(&schema, &url, create).await;
    let before = resident(&url).await;
    let mut seen = 1;
    for revision in 2..EVENTS + 2 {
        put(&schema, &mut group, "a", EVENT_BYTES).await;
        // Hears of every put before the next is made, whoever stands still.
        while seen < revision {
            for at in revisions(&reading.next().await) {
                assert_eq!(at, seen + 1);
                seen = at;
            }
        }
    }
    // Everything once is 12 MiB; a copy for each who stands still would be twelve times that.
    let grown = resident(&url).await - before;
    assert!(grown < 90e6, "{grown} bytes for {STANDING} slow readers");
    for mut watch in standing {
        let mut at = 1;
        while at < EVENTS + 1 {
            for revision in revisions(&watch.next().await) {
                assert_eq!(revision, at + 1, "no gap, no event twice");
                at = revision;
            }
        }
    }
}

const LARGE: usize = 1 << 20;
/// More than the 64 MiB of changes that a member keeps in memory.
const LARGE_EVENTS: i64 = 90;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stands_still_while_compaction_passes_is_told_so() {
    let schema = Schema::load().expect("schemas");
    let mut group = Group::alone(Kind::Tenon, &[]).expect("starts");
    group.wait_ready(&schema, 0).await.expect("answers");
    let url = group.servers[0].url();
    let mut watch = Watch::open(&schema, &url, r#"create_request { key: "a" }"#).await;
    for _ in 0..LARGE_EVENTS {
        put(&schema, &mut group, "a", LARGE).await;
    }
    let last = LARGE_EVENTS + 1;
    let compact = format!("revision: {last} physical: true");
    let compacted = group.ask(&schema, 0, "Compact", &compact).await;
    compacted.expect("compacted");
    let mut at = 1;
    let end = loop {
        let next = watch.next().await;
        if text(&next).contains("canceled:true") {
            break text(&next);
        }
        for revision in revisions(&next) {
            assert_eq!(revision, at + 1, "no gap before the end");
            at = revision;
        }
        assert!(
            at < last,
            "all of the history came in spite of the compaction"
        );
    };
    assert_eq!(
        field(&end, "compact_revision"),
        Some(last.unsigned_abs()),
        "{end}"
    );
}
