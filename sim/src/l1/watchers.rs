//! Room `sim`, L1: watchers. The first watches every key and makes the timeline; the others watch parts of it
//! from any revision. Each goes on in the next life where the last one ended.

use super::host::{Host, Running};
use crate::check::Finding;
use crate::check::timeline::{Timeline, by_revision};
use crate::check::watches::Watched;
use crate::history::History;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_env::sync::{mpsc, oneshot};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{self as pb, watch_request::RequestUnion};
use tenon_proto::mvccpb::Event;
use tenon_server::service::watch::NeedsLeader;

#[derive(Default)]
struct Inner {
    timeline: Timeline,
    seen_at: BTreeMap<i64, u64>,
    watched: Vec<Watched>,
    finding: Option<Finding>,
}

/// What watchers saw, shared with the run.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Inner>>);

impl Seen {
    pub(super) fn last(&self) -> i64 {
        self.0.lock().timeline.last()
    }

    pub(super) fn timeline(&self) -> Timeline {
        self.0.lock().timeline.clone()
    }

    /// When each revision was first seen, in nanoseconds of the world.
    pub(super) fn seen_at(&self) -> BTreeMap<i64, u64> {
        self.0.lock().seen_at.clone()
    }

    pub(super) fn watched(&self) -> Vec<Watched> {
        self.0.lock().watched.clone()
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        self.0.lock().finding.clone()
    }

    fn fail(&self, finding: Finding) {
        self.0.lock().finding.get_or_insert(finding);
    }
}

struct Stream {
    requests: mpsc::Sender<pb::WatchRequest>,
    answers: mpsc::Receiver<Result<pb::WatchResponse, Error>>,
}

fn open(running: &Running) -> Stream {
    let (requests, from) = mpsc::channel(4);
    let (to, answers) = mpsc::channel(4);
    let watch = running.member.services().watch.clone();
    running.env.spawn("watch", async move {
        watch
            .serve(Caller::default(), NeedsLeader::No, from, to)
            .await;
    });
    Stream { requests, answers }
}

impl Stream {
    async fn create(&self, create: pb::WatchCreateRequest) {
        let request_union = Some(RequestUnion::CreateRequest(create));
        let _ = self.requests.send(pb::WatchRequest { request_union }).await;
    }

    /// The next answer that is no acknowledgement of the creation; `None` once the stream broke.
    async fn next(&mut self) -> Option<pb::WatchResponse> {
        self.answers.recv().await?.ok()
    }
}

/// Watches every key from the first revision on, in every life, and makes the timeline.
pub(super) async fn watch_all(mut host: Host, seen: Seen, history: History) {
    let all = Bytes::from_static(b"\0");
    while let Some(running) = host.running().await {
        let mut stream = open(&running);
        let create = pb::WatchCreateRequest {
            key: all.clone(),
            range_end: all.clone(),
            start_revision: seen.last() + 1,
            prev_kv: true,
            ..Default::default()
        };
        stream.create(create).await;
        while let Some(answer) = stream.next().await {
            if answer.canceled {
                let compacted = answer.compact_revision;
                seen.fail(Finding(format!(
                    "the watch of all was cancelled: {answer:?}, {compacted}"
                )));
                return;
            }
            let now = host.sim.now().as_nanos() as u64;
            if let Err(finding) = told_all(&seen, &history, answer, now) {
                seen.fail(finding);
                return;
            }
        }
        wait_for_next_life(&mut host, running.life).await;
    }
}

fn told_all(
    seen: &Seen,
    history: &History,
    answer: pb::WatchResponse,
    now: u64,
) -> Result<(), Finding> {
    let header = answer.header.as_ref().map_or(0, |h| h.revision);
    let mut inner = seen.0.lock();
    for (revision, events) in by_revision(answer.events)? {
        crate::check::require(header >= revision, || {
            format!("a header of {header} came with revision {revision}")
        })?;
        inner.timeline.add(revision, events)?;
        inner.seen_at.entry(revision).or_insert(now);
        history.saw(revision);
    }
    Ok(())
}

async fn wait_for_next_life(host: &mut Host, life: u64) {
    // The stream may break a moment before the host is marked down.
    while let Some(running) = host.running().await {
        if running.life != life {
            return;
        }
        host.sim.sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// What a watcher of a part watches.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) key: Bytes,
    pub(super) range_end: Bytes,
    /// First revision wanted; 0 for what comes after the creation.
    pub(super) start: i64,
}

/// Watches a part; each uninterrupted stretch is noted for the checker. Ends when `end` is told.
pub(super) async fn watch_part(
    mut host: Host,
    seen: Seen,
    part: Part,
    mut end: oneshot::Receiver<()>,
) {
    let mut start = part.start;
    let mut watched: Option<Watched> = None;
    while let Some(running) = host.running().await {
        let mut stream = open(&running);
        let create = pb::WatchCreateRequest {
            key: part.key.clone(),
            range_end: part.range_end.clone(),
            start_revision: start,
            ..Default::default()
        };
        stream.create(create).await;
        loop {
            let answer = tokio::select! {
                biased;
                _ = &mut end => {
                    let last = seen.last();
                    note(&seen, watched.map(|w| Watched { last, ..w }));
                    return;
                }
                answer = stream.next() => answer,
            };
            let Some(answer) = answer else { break };
            let header = answer.header.as_ref().map_or(0, |h| h.revision);
            if answer.canceled {
                // History it wanted is gone: a new stretch begins where it can.
                note(&seen, watched.take());
                start = answer.compact_revision.max(1);
                break;
            }
            if answer.created {
                let first = if start > 0 { start } else { header + 1 };
                watched.get_or_insert_with(|| begin(&part, first));
                start = first;
                continue;
            }
            if let Some(watched) = &mut watched {
                tell(watched, answer.events, &mut start);
            }
        }
        if host
            .running()
            .await
            .is_some_and(|now| now.life == running.life)
        {
            host.sim.sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    note(&seen, watched);
}

fn begin(part: &Part, first: i64) -> Watched {
    Watched {
        key: part.key.clone(),
        range_end: part.range_end.clone(),
        first,
        last: 0,
        events: Vec::new(),
    }
}

fn tell(watched: &mut Watched, events: Vec<Event>, next: &mut i64) {
    for event in events {
        let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        *next = (*next).max(revision + 1);
        watched.events.push(event);
    }
}

fn note(seen: &Seen, watched: Option<Watched>) {
    if let Some(watched) = watched {
        seen.0.lock().watched.push(watched);
    }
}
