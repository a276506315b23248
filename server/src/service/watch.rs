//! Room `server/service`: etcd's Watch service: one client's stream between two channels. What is watched
//! and what comes in which order is the hub's (`tenon_storage::watch`); here are the timers, permission,
//! the header, the split into fragments and the reasons for which a stream ends. No sockets.

use super::context::Context;
use super::leadership;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tenon_env::sync::{mpsc, watch};
use tenon_env::{BoxFuture, Env};
use tenon_proto::caller::Caller;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::watch_request::RequestUnion;
use tenon_proto::etcdserverpb::{ResponseHeader, WatchRequest, WatchResponse};
use tenon_storage::watch::{History, Lost, Next, WatchHub, WatchStream};

/// What a response may be larger than a request before it is split into fragments, bytes.
const FRAGMENT_OVERHEAD: usize = 512 << 10;
/// Answers sent before requests are looked at again.
const BURST: usize = 64;
/// Unsent answers to requests at which no more requests are taken.
const ANSWERS_MAX: usize = 1024;

/// Whether a stream insists on a leader (metadata `hasleader`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsLeader {
    /// It ends with `NoLeader` after three election timeouts without one.
    Yes,
    /// It goes on without.
    No,
}

/// The Watch service.
#[derive(Clone)]
pub struct Watch {
    context: Context,
}

impl Watch {
    /// The service of a member.
    pub fn new(context: Context) -> Watch {
        Watch { context }
    }

    /// Serves one client's stream until the receiver of `out` is gone, or a last `Err` says why it ends.
    /// The end of `requests` ends nothing: a client that sends no more is still served.
    pub async fn serve(
        &self,
        caller: Caller,
        needs_leader: NeedsLeader,
        requests: mpsc::Receiver<WatchRequest>,
        out: mpsc::Sender<Result<WatchResponse, Error>>,
    ) {
        let context = self.context.clone();
        if let Err(error) = self.admit(needs_leader) {
            let _ = out.send(Err(error)).await;
            return;
        }
        let config = context.config();
        let lost: BoxFuture<'static, ()> = match needs_leader {
            NeedsLeader::Yes => {
                let (env, status) = (context.env().clone(), context.watch_status());
                Box::pin(leadership::lost(env, status, config.election))
            }
            NeedsLeader::No => Box::pin(std::future::pending()),
        };
        let (header, permission) = (context.clone(), context.clone());
        let terms = Terms {
            env: context.env().clone(),
            hub: context.store().watches().clone(),
            history: context.store().history(),
            header: Box::new(move || header.header(0)),
            permission: Box::new(move || permission.authorise(&caller)),
            progress_interval: config.progress_interval,
            response_bytes_max: config.max_request_bytes + FRAGMENT_OVERHEAD,
            stopping: context.stopping(),
        };
        terms.serve(requests, out, lost).await;
    }

    fn admit(&self, needs_leader: NeedsLeader) -> Result<(), Error> {
        if self.context.is_learner() {
            return Err(Error::NotSupportedForLearner);
        }
        if needs_leader == NeedsLeader::Yes && !self.context.has_leader() {
            return Err(Error::NoLeader);
        }
        Ok(())
    }
}

/// All a stream needs to know of its member.
struct Terms {
    env: Env,
    hub: WatchHub,
    history: Arc<dyn History>,
    /// The member's header; the revision is filled in for each answer.
    header: Box<dyn Fn() -> ResponseHeader + Send + Sync>,
    /// Whether the caller may use the cluster.
    permission: Box<dyn Fn() -> Result<(), Error> + Send + Sync>,
    progress_interval: Duration,
    response_bytes_max: usize,
    stopping: watch::Receiver<bool>,
}

impl Terms {
    /// `leader_lost` completes when the stream must end for want of a leader.
    async fn serve(
        self,
        mut requests: mpsc::Receiver<WatchRequest>,
        out: mpsc::Sender<Result<WatchResponse, Error>>,
        leader_lost: BoxFuture<'static, ()>,
    ) {
        let mut cut = pin!(leadership::cut(self.stopping.clone(), leader_lost));
        let mut interval = Interval::new(&self.env, self.progress_interval);
        let mut flow = Flow {
            stream: self.hub.open_stream(),
            terms: &self,
            unsent: VecDeque::new(),
        };
        let mut more_requests = true;
        loop {
            match flow.push(&out).await {
                Ok(()) => {}
                Err(Stop::NobodyListens) => return,
                Err(Stop::Lost) => return self.last_word(&out, Error::Stopped).await,
            }
            let taking = more_requests && flow.stream.answers_pending() < ANSWERS_MAX;
            let idle = flow.unsent.is_empty();
            tokio::select! {
                biased;
                () = out.closed() => return,
                error = &mut cut => return self.last_word(&out, error).await,
                request = requests.recv(), if taking => match request {
                    Some(request) => flow.on_request(request),
                    None => more_requests = false,
                },
                () = interval.tick() => flow.stream.tick(),
                () = flow.stream.readable(), if idle => {}
                permit = out.reserve(), if !idle => match (permit, flow.unsent.pop_front()) {
                    (Ok(permit), Some(response)) => permit.send(Ok(response)),
                    _ => return,
                },
            }
        }
    }

    /// Says why the stream ends, if the client still takes words; it ends either way.
    async fn last_word(&self, out: &mpsc::Sender<Result<WatchResponse, Error>>, error: Error) {
        let last = out.send(Err(error));
        let _ = self.env.timeout(Duration::from_secs(1), last).await;
    }
}

/// Why a stream goes no further.
enum Stop {
    NobodyListens,
    /// The store is lost or closed.
    Lost,
}

/// From the hub to the client.
struct Flow<'a> {
    stream: WatchStream,
    terms: &'a Terms,
    /// Responses made and not yet taken: one answer's.
    unsent: VecDeque<WatchResponse>,
}

impl Flow<'_> {
    /// Sends what can be sent at once, up to a bound.
    async fn push(&mut self, out: &mpsc::Sender<Result<WatchResponse, Error>>) -> Result<(), Stop> {
        for _ in 0..BURST {
            if self.unsent.is_empty() {
                match self.stream.next(&*self.terms.history) {
                    Next::Answer(answer) => {
                        let header = (self.terms.header)();
                        let limit = self.terms.response_bytes_max;
                        let parts = answer.into_responses(header, &*self.terms.history, limit);
                        self.unsent.extend(parts.map_err(|Lost| Stop::Lost)?);
                    }
                    Next::Again => {
                        let_others_run().await;
                        continue;
                    }
                    Next::Empty => return Ok(()),
                }
            }
            match out.try_reserve() {
                Ok(permit) => {
                    if let Some(response) = self.unsent.pop_front() {
                        permit.send(Ok(response));
                    }
                }
                Err(mpsc::error::TrySendError::Full(())) => return Ok(()),
                Err(mpsc::error::TrySendError::Closed(())) => return Err(Stop::NobodyListens),
            }
        }
        Ok(())
    }

    fn on_request(&mut self, request: WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => match (self.terms.permission)() {
                Ok(()) => self.stream.create(&create),
                Err(error) => self.stream.refuse(error.cancel_reason()),
            },
            Some(RequestUnion::CancelRequest(cancel)) => self.stream.cancel(cancel.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => self.stream.request_progress(),
            // A request of a later version, or none: ignored, as etcd does.
            None => {}
        }
    }
}

/// The stream's progress timer: the interval and up to a tenth of it, drawn once, so that streams opened
/// together do not tick together.
struct Interval {
    env: Env,
    every: Duration,
    next: BoxFuture<'static, ()>,
}

impl Interval {
    fn new(env: &Env, interval: Duration) -> Interval {
        let tenth = u64::try_from(interval.as_nanos() / 10).unwrap_or(u64::MAX);
        let jitter = env.rng.next_u64() % tenth.max(1);
        let every = interval + Duration::from_nanos(jitter);
        Interval {
            env: env.clone(),
            every,
            next: env.sleep(every),
        }
    }

    /// Completes at each tick; cancel safe.
    async fn tick(&mut self) {
        (&mut self.next).await;
        self.next = self.env.sleep(self.every);
    }
}

/// Lets other tasks of the thread run once.
async fn let_others_run() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod member_tests;
#[cfg(test)]
mod tests;
