//! Room `tests`: the clients of the run over mode switches: each writes and reads its own key, and checks that it
//! reads what it wrote. May touch the network; the `record` judges what all of them saw.

use crate::record::{Newest, Record};
use crate::streams::{self, Streams};
use prost_reflect::DynamicMessage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenon_tests::call::{self, Metadata};
use tenon_tests::print;
use tenon_tests::schema::Schema;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// What every request has.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Clients on one connection.
const ON_ONE: u64 = 5;

/// What every client needs.
#[derive(Clone)]
pub struct Caller {
    pub schema: Schema,
    pub channel: Channel,
    pub record: Arc<Record>,
    pub stop: Arc<AtomicBool>,
}

/// Everything that goes through the endpoint.
pub struct Load {
    tasks: Vec<JoinHandle<()>>,
    streams: Streams,
    stop: Arc<AtomicBool>,
}

/// The header of an answer.
pub fn header(answer: &DynamicMessage) -> Newest {
    let header = answer.get_field_by_name("header");
    let header = header.as_deref().and_then(|h| h.as_message());
    let field = |name| header.and_then(|h| h.get_field_by_name(name).map(|v| v.into_owned()));
    Newest {
        revision: field("revision").and_then(|v| v.as_i64()).unwrap_or(0),
        term: field("raft_term").and_then(|v| v.as_u64()).unwrap_or(0),
    }
}

impl Caller {
    /// One request; `None` when it failed, which is recorded.
    pub async fn call(&self, method: &str, text: &str) -> Option<DynamicMessage> {
        let descriptor = self.schema.method(method).expect("a method");
        let request = Schema::request(descriptor.input(), text).expect("a request");
        let (before, sent) = (self.record.newest(), Instant::now());
        let metadata: Metadata = vec![("grpc-timeout".to_owned(), "5S".to_owned())];
        let answer = call::unary(&self.channel, &descriptor, &metadata, request);
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(Ok(answer)) => {
                self.record.answered(method, sent, before, header(&answer));
                Some(answer)
            }
            Ok(Err(status)) => {
                let (took, why) = (sent.elapsed(), print::status(&status));
                self.record
                    .trouble(format!("{method} {text} failed after {took:?}: {why}"));
                None
            }
            Err(_) => {
                self.record
                    .trouble(format!("{method} {text}: no answer in {DEADLINE:?}"));
                None
            }
        }
    }

    /// Writes and reads a key of its own until it is told to stop.
    async fn work(self, id: u64, think: Duration) {
        let key = format!("load/{id}");
        // None while nobody knows: a write failed.
        let mut value: Option<u64> = None;
        for turn in 0u64.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            match (turn % 5, value) {
                (0, _) | (_, None) => {
                    let put = format!("key: \"{key}\" value: \"{turn}\"");
                    value = self.call("Put", &put).await.map(|_| turn);
                }
                (3, Some(old)) => value = self.compare_and_put(&key, old, turn).await,
                (kind, Some(old)) => {
                    let range = format!("key: \"{key}\" serializable: {}", kind == 2);
                    if let Some(answer) = self.call("Range", &range).await {
                        let text = answer.to_text_format();
                        if !text.contains(&format!("value:\"{old}\"")) {
                            self.record
                                .trouble(format!("{range}: {old} is not in {text}"));
                        }
                    }
                }
            }
            tokio::time::sleep(think).await;
        }
    }

    async fn compare_and_put(&self, key: &str, old: u64, new: u64) -> Option<u64> {
        let txn = format!(
            "compare {{ target: VALUE key: \"{key}\" value: \"{old}\" }} \
             success {{ request_put {{ key: \"{key}\" value: \"{new}\" }} }}"
        );
        let answer = self.call("Txn", &txn).await?;
        if !answer.to_text_format().contains("succeeded:true") {
            self.record
                .trouble(format!("{key} was not {old}: {}", answer.to_text_format()));
            return None;
        }
        Some(new)
    }
}

impl Load {
    /// Starts everything: the streams are open when this returns.
    pub async fn start(
        schema: &Schema,
        url: &str,
        record: &Arc<Record>,
        clients: u64,
        think: Duration,
    ) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = Vec::new();
        for _ in 0..clients.div_ceil(ON_ONE) {
            callers.push(Caller {
                schema: schema.clone(),
                channel: call::connect(url).await.expect("the host answers"),
                record: record.clone(),
                stop: stop.clone(),
            });
        }
        let streams = streams::open(&callers).await;
        let tasks = (0..clients).map(|id| {
            let caller = callers[(id / ON_ONE) as usize].clone();
            tokio::spawn(caller.work(id, think))
        });
        Load {
            tasks: tasks.collect(),
            streams,
            stop,
        }
    }

    /// Stops the clients, and waits until the streams have told everything.
    pub async fn finish(self, record: &Arc<Record>) {
        record.stopped();
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("a client does not panic");
        }
        self.streams.finish(record).await;
    }
}
