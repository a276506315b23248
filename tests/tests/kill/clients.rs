//! Room `tests`: the clients of the kill test: writers, readers, and the reader of history. May touch the
//! network; what they learn goes to the `ledger`, which judges.

use crate::ledger::Ledger;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_tests::call::{self, Metadata};
use tenon_tests::parallel::revision;
use tenon_tests::print;
use tenon_tests::schema::Schema;
use tenon_tests::stream::{Arrival, Stream};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

/// Keys of each writer.
const KEYS: u64 = 8;
/// Readers beside the writers.
const READERS: u64 = 4;
/// How long history may be silent.
const HISTORY_MAX: Duration = Duration::from_secs(20);

/// A key of the test.
pub struct Key(pub String);

/// Clients of one server process.
pub struct Clients {
    caller: Caller,
    tasks: Vec<JoinHandle<()>>,
}

/// What every client needs.
#[derive(Clone)]
struct Caller {
    schema: Schema,
    channel: Channel,
    ledger: Arc<Ledger>,
    /// Set before the kill: from then on errors are no surprise.
    killing: Arc<AtomicBool>,
}

impl Clients {
    /// No load; only checks.
    pub fn idle(schema: &Schema, channel: &Channel, ledger: &Arc<Ledger>) -> Self {
        let caller = Caller {
            schema: schema.clone(),
            channel: channel.clone(),
            ledger: Arc::clone(ledger),
            killing: Arc::default(),
        };
        Self {
            caller,
            tasks: Vec::new(),
        }
    }

    /// Starts `count` writers and a few readers.
    pub fn start(schema: &Schema, channel: &Channel, ledger: &Arc<Ledger>, count: u64) -> Self {
        let mut clients = Self::idle(schema, channel, ledger);
        for id in 0..count {
            clients
                .tasks
                .push(tokio::spawn(clients.caller.clone().write(id)));
        }
        for id in 0..READERS {
            clients.tasks.push(tokio::spawn(
                clients.caller.clone().keep_reading(id % count.max(1)),
            ));
        }
        clients
    }

    /// From now on calls may fail.
    pub fn expect_errors(&self) {
        self.caller.killing.store(true, Ordering::SeqCst);
    }

    /// Waits for the clients to notice; panics with a client's finding.
    pub async fn join(self) {
        for task in self.tasks {
            task.await.expect("a client found something broken");
        }
    }

    /// Reads `key` both ways.
    pub async fn check_read(&self, key: Key) {
        for serializable in [true, false] {
            let read = self.caller.read(&key.0, serializable).await;
            read.unwrap_or_else(|s| panic!("read of {}: {}", key.0, print::status(&s)));
        }
    }

    /// Watches all that history has not told yet, up to the newest revision.
    pub async fn check_history(&self) {
        let ledger = &self.caller.ledger;
        let method = self.caller.schema.method("Watch").expect("Watch");
        let mut stream = Stream::open(self.caller.channel.clone(), method.clone(), Metadata::new());
        let create = format!(
            "create_request {{ key: \"k\" range_end: \"l\" start_revision: {} }}",
            ledger.untold()
        );
        stream
            .send(Schema::request(method.input(), &create).expect("request"))
            .expect("open");
        while ledger.untold() <= ledger.floor() {
            match stream.next(HISTORY_MAX).await {
                Some(Arrival::Message(answer)) => tell(ledger, &answer),
                other => panic!("history ends before revision {}: {other:?}", ledger.floor()),
            }
        }
    }
}

/// Books every event of a watch response.
pub fn tell(ledger: &Ledger, answer: &DynamicMessage) {
    let events = answer.get_field_by_name("events").expect("events");
    for event in events.as_list().into_iter().flatten() {
        let kv = event
            .as_message()
            .and_then(|e| e.get_field_by_name("kv").map(|kv| kv.into_owned()));
        let kv = kv.expect("kv");
        let (key, number, revision) = put_of(kv.as_message().expect("kv"));
        ledger.tell(&key, number, revision);
    }
}

/// Key, sequence number and revision of a key-value.
pub fn put_of(kv: &DynamicMessage) -> (String, u64, i64) {
    let bytes = |name| {
        let field = kv.get_field_by_name(name).expect("field");
        String::from_utf8_lossy(field.as_bytes().expect("bytes")).into_owned()
    };
    let revision = kv
        .get_field_by_name("mod_revision")
        .and_then(|v| v.as_i64())
        .expect("revision");
    (
        bytes("key"),
        bytes("value").parse().expect("value is a number"),
        revision,
    )
}

impl Caller {
    async fn call(&self, method: &MethodDescriptor, text: &str) -> Result<DynamicMessage, Status> {
        let request = Schema::request(method.input(), text).map_err(Status::internal)?;
        call::unary(&self.channel, method, &Metadata::new(), request).await
    }

    async fn write(self, id: u64) {
        let put = self.schema.method("Put").expect("Put");
        for turn in 0.. {
            let key = format!("k{id}/{}", turn % KEYS);
            let before = self.ledger.before(&key);
            let number = self.ledger.try_next(&key);
            match self
                .call(&put, &format!("key: \"{key}\" value: \"{number}\""))
                .await
            {
                Ok(answer) => self
                    .ledger
                    .acknowledge(&key, number, revision(&answer), before),
                Err(status) => return self.failed("put", &status),
            }
        }
    }

    async fn keep_reading(self, id: u64) {
        for turn in 0.. {
            let key = format!("k{id}/{}", turn % KEYS);
            if let Err(status) = self.read(&key, turn % 2 == 0).await {
                return self.failed("read", &status);
            }
        }
    }

    async fn read(&self, key: &str, serializable: bool) -> Result<(), Status> {
        let range = self.schema.method("Range").expect("Range");
        let before = self.ledger.before(key);
        let text = format!("key: \"{key}\" serializable: {serializable}");
        let answer = self.call(&range, &text).await?;
        let kvs = answer.get_field_by_name("kvs").expect("kvs").into_owned();
        let kv = kvs
            .as_list()
            .and_then(<[_]>::first)
            .and_then(|kv| kv.as_message());
        let number = kv.map_or(0, |kv| put_of(kv).1);
        self.ledger.read(key, number, revision(&answer), before);
        Ok(())
    }

    fn failed(&self, what: &str, status: &Status) {
        let killing = self.killing.load(Ordering::SeqCst);
        assert!(
            killing,
            "{what} failed before the kill: {}",
            print::status(status)
        );
    }
}
