//! Room `tests`: clients of three members of which some are always dead or standing still. A call that fails has an
//! unknown outcome: its key is never written again, so what is read of it stays between acknowledged and tried. May
//! touch the network; what the clients learn goes to the `ledger`, which judges.

use crate::clients::{put_of, tell};
use crate::ledger::Ledger;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tenon_tests::call::{self, Metadata};
use tenon_tests::parallel::revision;
use tenon_tests::schema::Schema;
use tenon_tests::stream::{Arrival, Stream};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// How long a client waits for one answer: a member that stands still gives none.
const CALL_MAX: Duration = Duration::from_secs(2);
/// How long a client rests after a failed call.
const REST: Duration = Duration::from_millis(100);
/// How long history may be silent.
const HISTORY_MAX: Duration = Duration::from_secs(20);
/// Of so many clients one reads and the others write.
const READER_OF: u64 = 4;

/// The members and the books.
#[derive(Clone)]
pub struct Caller {
    schema: Schema,
    channels: Vec<Channel>,
    ledger: Arc<Ledger>,
    over: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
}

impl Caller {
    /// A caller of the members at these URLs, running or not.
    pub fn new(urls: &[String], ledger: &Arc<Ledger>) -> Caller {
        let channel = |url: &String| {
            let endpoint = Channel::from_shared(url.clone()).expect("a URL");
            endpoint.connect_timeout(CALL_MAX).connect_lazy()
        };
        Caller {
            schema: Schema::load().expect("schemas"),
            channels: urls.iter().map(channel).collect(),
            ledger: Arc::clone(ledger),
            over: Arc::default(),
            failed: Arc::default(),
        }
    }

    /// Starts the clients; each begins at another member.
    pub fn start(&self, clients: u64) -> Vec<JoinHandle<()>> {
        let start = |id| {
            let this = self.clone();
            match id % READER_OF {
                0 => tokio::spawn(this.keep_reading(id)),
                _ => tokio::spawn(this.keep_writing(id)),
            }
        };
        (0..clients).map(start).collect()
    }

    /// Tells the clients to end.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Calls without an answer so far.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    async fn call(
        &self,
        at: usize,
        method: &MethodDescriptor,
        text: &str,
    ) -> Option<DynamicMessage> {
        let request = Schema::request(method.input(), text).expect("a request");
        let metadata = Metadata::new();
        let called = call::unary(&self.channels[at], method, &metadata, request);
        let answer = tokio::time::timeout(CALL_MAX, called).await;
        if let Ok(Ok(answer)) = answer {
            return Some(answer);
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(REST).await;
        None
    }

    async fn keep_writing(self, id: u64) {
        let put = self.schema.method("Put").expect("Put");
        let (mut at, mut life) = (id as usize % self.channels.len(), 0);
        while !self.is_over() {
            let key = format!("k{id}/{life}");
            let before = self.ledger.before(&key);
            let number = self.ledger.try_next(&key);
            let text = format!("key: \"{key}\" value: \"{number}\"");
            match self.call(at, &put, &text).await {
                Some(answer) => {
                    let revision = revision(&answer);
                    self.ledger.acknowledge(&key, number, revision, before);
                }
                // It may come into force later, after whatever is written meanwhile.
                None => (at, life) = ((at + 1) % self.channels.len(), life + 1),
            }
        }
    }

    /// Reads what others write: linearizable through any member, and each member's own state, which must not go
    /// back whatever becomes of the member.
    async fn keep_reading(self, id: u64) {
        let mut own = vec![0; self.channels.len()];
        let mut turn = id;
        while !self.is_over() {
            let at = turn as usize % self.channels.len();
            let keys = self.ledger.keys();
            turn += 1;
            match keys.get((turn * 7919) as usize % keys.len().max(1)) {
                Some(key) => drop(self.read(at, key).await),
                None => tokio::time::sleep(REST).await,
            };
            let range = self.schema.method("Range").expect("Range");
            let text = "key: \"k\" serializable: true";
            if let Some(answer) = self.call(at, &range, text).await {
                let now = revision(&answer);
                assert!(
                    now >= own[at],
                    "member {at} went back from {} to {now}",
                    own[at]
                );
                own[at] = now;
            }
        }
    }

    /// A linearizable read of `key`; whether it was answered.
    pub async fn read(&self, at: usize, key: &str) -> bool {
        let range = self.schema.method("Range").expect("Range");
        let before = self.ledger.before(key);
        let Some(answer) = self.call(at, &range, &format!("key: \"{key}\"")).await else {
            return false;
        };
        let kvs = answer.get_field_by_name("kvs").expect("kvs").into_owned();
        let first = kvs.as_list().and_then(<[_]>::first);
        let number = first
            .and_then(|kv| kv.as_message())
            .map_or(0, |kv| put_of(kv).1);
        self.ledger.read(key, number, revision(&answer), before);
        true
    }

    /// Watches at one member all that history has not told yet, up to the newest revision seen.
    pub async fn check_history(&self, at: usize) {
        let method = self.schema.method("Watch").expect("Watch");
        let channel = self.channels[at].clone();
        let mut stream = Stream::open(channel, method.clone(), Metadata::new());
        let create = format!(
            "create_request {{ key: \"k\" range_end: \"l\" start_revision: {} }}",
            self.ledger.untold()
        );
        let request = Schema::request(method.input(), &create).expect("request");
        stream.send(request).expect("open");
        let goal = self.ledger.floor();
        while self.ledger.untold() <= goal {
            match stream.next(HISTORY_MAX).await {
                Some(Arrival::Message(answer)) => tell(&self.ledger, &answer),
                other => panic!("history ends before revision {goal}: {other:?}"),
            }
        }
    }
}
