//! Room `sim`, workloads: watchers. One watches every key and makes the timeline; others watch parts of it. Each goes
//! from member to member, when its stream breaks and now and then without a reason, and goes on where it was.

use super::Desk;
use super::seen::{Part, begin, note, tell, told_all};
use crate::check::Finding;
use crate::check::watches::Watched;
use crate::rng::SimRng;
use crate::world::{Client, WatchStream};
use bytes::Bytes;
use std::time::Duration;
use tenon_proto::etcdserverpb as pb;
use tenon_server::service::watch::NeedsLeader;

/// How a watcher behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Longest pause between two answers it takes; zero for none.
    pub(crate) slow: Duration,
    /// How long it stays with one member at most.
    pub(crate) stays: Duration,
    /// It asks for word of progress.
    pub(crate) progress: bool,
}

/// What came of waiting for an answer.
enum Next {
    Answer(pb::WatchResponse),
    /// The stream broke, or it is time to go to another member.
    Leave,
    /// The run is at rest.
    Rest,
}

struct Watcher {
    desk: Desk,
    client: Client,
    rng: SimRng,
    manner: Manner,
}

impl Watcher {
    /// A stream at some member.
    async fn open(&mut self) -> Option<WatchStream> {
        loop {
            if *self.desk.rest.borrow() {
                return None;
            }
            let target = self.client.target();
            let needs = match self.rng.below(4) {
                0 => NeedsLeader::Yes,
                _ => NeedsLeader::No,
            };
            if let Some(stream) = target.and_then(|at| self.desk.world.watch(at, needs)) {
                return Some(stream);
            }
            self.client.env().sleep(Duration::from_millis(20)).await;
        }
    }

    /// The next answer of a stream that is left at `until` of the client's clock.
    async fn next(&mut self, stream: &mut WatchStream, until: tenon_env::Instant) -> Next {
        if !self.manner.slow.is_zero() && !self.desk.is_over() {
            let pause = self.rng.below(self.manner.slow.as_nanos() as u64);
            self.client.env().sleep(Duration::from_nanos(pause)).await;
        }
        if self.manner.progress && self.rng.chance(100_000) {
            stream.ask_progress();
        }
        let env = self.client.env().clone();
        let left = until - env.now();
        let mut rest = self.desk.rest.clone();
        let resting = async move { drop(rest.wait_for(|rest| *rest).await) };
        let answer = tokio::select! {
            biased;
            () = resting => return Next::Rest,
            answer = env.timeout(left, stream.next()) => answer.flatten(),
        };
        match answer {
            Some(answer) => Next::Answer(answer),
            None => {
                // A member that refuses at once must not be asked without end.
                env.sleep(Duration::from_millis(5)).await;
                Next::Leave
            }
        }
    }

    fn leave_at(&mut self) -> tenon_env::Instant {
        let stays = self.rng.below(self.manner.stays.as_nanos() as u64 + 1);
        self.client.env().now() + Duration::from_nanos(stays)
    }
}

/// Watches every key from the first revision on and makes the timeline.
pub(crate) async fn watch_all(desk: Desk, client: Client, rng: SimRng, stays: Duration) {
    let manner = Manner {
        slow: Duration::ZERO,
        stays,
        progress: false,
    };
    let mut me = Watcher {
        desk,
        client,
        rng,
        manner,
    };
    let all = Bytes::from_static(b"\0");
    while let Some(mut stream) = me.open().await {
        let until = me.leave_at();
        let create = pb::WatchCreateRequest {
            key: all.clone(),
            range_end: all.clone(),
            start_revision: me.desk.seen.last() + 1,
            prev_kv: true,
            ..Default::default()
        };
        stream.create(create).await;
        loop {
            match me.next(&mut stream, until).await {
                Next::Answer(answer) if answer.canceled => {
                    if answer.compact_revision > 0 {
                        let text = format!("the watch of all was cancelled: {answer:?}");
                        return me.desk.seen.fail(Finding(text));
                    }
                    break;
                }
                Next::Answer(answer) => {
                    let (seen, history) = (&me.desk.seen, &me.desk.history);
                    if let Err(finding) = told_all(seen, history, answer, me.desk.now()) {
                        let finding = format!("at {}: {finding}", stream.node);
                        return seen.fail(Finding(finding));
                    }
                }
                Next::Leave => break,
                Next::Rest => return,
            }
        }
    }
}

/// Watches a part until the run is at rest; each stretch without a gap is noted for the checker.
pub(crate) async fn watch_part(
    desk: Desk,
    client: Client,
    rng: SimRng,
    part: Part,
    manner: Manner,
) {
    let mut me = Watcher {
        desk,
        client,
        rng,
        manner,
    };
    let mut start = part.start;
    let mut watched: Option<Watched> = None;
    while let Some(mut stream) = me.open().await {
        let until = me.leave_at();
        let create = pb::WatchCreateRequest {
            key: part.key.clone(),
            range_end: part.range_end.clone(),
            start_revision: start,
            progress_notify: manner.progress,
            ..Default::default()
        };
        stream.create(create).await;
        loop {
            match me.next(&mut stream, until).await {
                Next::Answer(answer) if answer.canceled => {
                    // History it wanted is gone: a new stretch begins where it can.
                    note(&me.desk.seen, watched.take());
                    start = answer.compact_revision.max(1);
                    break;
                }
                Next::Answer(answer) => told(&part, &mut watched, &mut start, answer),
                Next::Leave => break,
                Next::Rest => {
                    let last = me.desk.seen.last();
                    return note(&me.desk.seen, watched.map(|w| Watched { last, ..w }));
                }
            }
        }
    }
    note(&me.desk.seen, watched);
}

fn told(part: &Part, watched: &mut Option<Watched>, start: &mut i64, answer: pb::WatchResponse) {
    let header = answer.header.as_ref().map_or(0, |h| h.revision);
    if answer.created {
        let first = if *start > 0 { *start } else { header + 1 };
        watched.get_or_insert_with(|| begin(part, first));
        *start = first;
    } else if let Some(watched) = watched {
        if answer.events.is_empty() {
            watched.progress.push((header, watched.events.len()));
        }
        tell(watched, answer.events, start);
    }
}
