//! Room `tests`: what stays open over mode switches: watches of everything, leases with a key each. May
//! touch the network; the `record` hears what goes wrong.

use crate::load::{Caller, DEADLINE, header};
use crate::record::Record;
use prost_reflect::DynamicMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenon_tests::call::Metadata;
use tenon_tests::schema::Schema;
use tenon_tests::stream::{Arrival, Stream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Leases kept alive, one key each.
const LEASES: u64 = 3;
/// Their time to live, seconds.
const TTL: u64 = 5;
/// How long a watch may need for the last events.
const LAST: Duration = Duration::from_secs(20);
/// Messages after which a watch asks for progress.
const ASK_EVERY: u32 = 16;

/// The open streams.
pub struct Streams {
    caller: Caller,
    watchers: Vec<JoinHandle<()>>,
    keepers: Vec<JoinHandle<()>>,
    /// The last revision there will be, once it is known.
    last: watch::Sender<Option<i64>>,
}

/// Opens a watch on each connection, the leases.
pub async fn open(callers: &[Caller]) -> Streams {
    let caller = callers[0].clone();
    let first = caller.call("Range", "key: \"a\"").await.expect("an answer");
    let from = header(&first).revision + 1;
    let last = watch::Sender::new(None);
    let mut watchers = Vec::new();
    for caller in callers {
        let watcher = Watcher::open(caller, from, last.subscribe());
        watchers.push(tokio::spawn(watcher.run()));
    }
    let mut keepers = Vec::new();
    for n in 1..=LEASES {
        let grant = format!("TTL: {TTL} ID: {n}");
        caller.call("LeaseGrant", &grant).await.expect("granted");
        let put = format!("key: \"lease/{n}\" value: \"v\" lease: {n}");
        caller.call("Put", &put).await.expect("put");
        let caller = callers[n as usize % callers.len()].clone();
        keepers.push(tokio::spawn(keep_alive(caller, n)));
    }
    Streams {
        caller,
        watchers,
        keepers,
        last,
    }
}

impl Streams {
    /// Once nobody writes any more: the watches must tell all, the leases' keys must be there.
    pub async fn finish(mut self, record: &Arc<Record>) {
        for keeper in std::mem::take(&mut self.keepers) {
            keeper.await.expect("a keeper does not panic");
        }
        for n in 1..=LEASES {
            self.there(&format!("lease/{n}"), record).await;
        }
        if let Some(answer) = self.caller.call("Range", "key: \"a\"").await {
            self.last.send_replace(Some(header(&answer).revision));
        }
        for watcher in std::mem::take(&mut self.watchers) {
            watcher.await.expect("a watcher does not panic");
        }
    }

    async fn there(&self, key: &str, record: &Record) {
        let range = format!("key: \"{key}\" count_only: true");
        if let Some(answer) = self.caller.call("Range", &range).await
            && !answer.to_text_format().contains("count:1")
        {
            record.trouble(format!("{key} is gone"));
        }
    }
}

/// Keeps a lease alive until the load stops.
async fn keep_alive(caller: Caller, id: u64) {
    let method = caller
        .schema
        .method("LeaseKeepAlive")
        .expect("LeaseKeepAlive");
    let mut stream = Stream::open(caller.channel.clone(), method.clone(), Metadata::new());
    let request = Schema::request(method.input(), &format!("ID: {id}")).expect("a request");
    while !caller.stop.load(Ordering::SeqCst) {
        let _ = stream.send(request.clone());
        match stream.next(DEADLINE).await {
            Some(Arrival::Message(answer)) if answer.to_text_format().contains("TTL:5") => {
                caller.record.kept_alive();
            }
            other => {
                caller
                    .record
                    .trouble(format!("keep-alive of {id}: {other:?}"));
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// One watch of everything.
struct Watcher {
    caller: Caller,
    stream: Stream,
    progress: DynamicMessage,
    /// The revision that comes next.
    next: i64,
    last: watch::Receiver<Option<i64>>,
}

impl Watcher {
    fn open(caller: &Caller, from: i64, last: watch::Receiver<Option<i64>>) -> Watcher {
        let method = caller.schema.method("Watch").expect("Watch");
        let stream = Stream::open(caller.channel.clone(), method.clone(), Metadata::new());
        let create = format!(
            "create_request {{ key: \"\\000\" range_end: \"\\000\" start_revision: {from} progress_notify: true }}"
        );
        let request = |text: &str| Schema::request(method.input(), text).expect("a request");
        stream.send(request(&create)).expect("sent");
        Watcher {
            caller: caller.clone(),
            stream,
            progress: request("progress_request {}"),
            next: from,
            last,
        }
    }

    async fn run(mut self) {
        for turn in 1u32.. {
            let last = *self.last.borrow();
            if last.is_some_and(|last| self.next > last) {
                return;
            }
            let wait = if last.is_some() {
                LAST
            } else {
                Duration::from_millis(500)
            };
            match self.stream.next(wait).await {
                Some(Arrival::Message(answer)) => self.on_answer(&answer),
                Some(Arrival::End(end)) => {
                    self.caller
                        .record
                        .trouble(format!("a watch ended: {end:?}"));
                    return;
                }
                None if last.is_some() => {
                    let missing = format!("a watch waits for {} of {last:?}", self.next);
                    return self.caller.record.trouble(missing);
                }
                None => {}
            }
            if turn.is_multiple_of(ASK_EVERY) {
                let _ = self.stream.send(self.progress.clone());
            }
        }
    }

    fn on_answer(&mut self, answer: &DynamicMessage) {
        let record = &self.caller.record;
        let canceled = answer.get_field_by_name("canceled");
        if canceled.and_then(|c| c.as_bool()) == Some(true) {
            record.trouble(format!("a watch was canceled: {}", answer.to_text_format()));
        }
        let created = answer
            .get_field_by_name("created")
            .and_then(|c| c.as_bool());
        let events = answer.get_field_by_name("events").expect("events");
        let events = events.as_list().unwrap_or_default();
        if events.is_empty() && created != Some(true) && header(answer).revision >= self.next {
            let (told, next) = (header(answer).revision, self.next);
            record.trouble(format!("progress to {told} while {next} was not delivered"));
        }
        for event in events {
            let revision = revision_of(event).expect("an event has a revision");
            if revision != self.next {
                record.trouble(format!("a watch tells {revision} instead of {}", self.next));
            }
            self.next = revision + 1;
            record.event();
        }
    }
}

fn revision_of(event: &prost_reflect::Value) -> Option<i64> {
    let kv = event.as_message()?.get_field_by_name("kv")?;
    kv.as_message()?.get_field_by_name("mod_revision")?.as_i64()
}
