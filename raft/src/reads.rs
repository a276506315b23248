//! Room `raft`: linearizable reads. All calls that wait at the same time share one confirmation of the
//! leader; then each waits until this member has applied that far. A member that decides alone answers from
//! what is applied, without a round (`sole`).

use crate::error::{ReadError, Reason};
use crate::sole::Sole;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::{Notify, Semaphore, oneshot, watch};
use tenon_env::{Env, Instant, Plant};
use tenon_proto::ids::LogIndex;

/// Confirmations under way at once: a new one may start while an older waits for its quorum.
const ROUNDS_MAX: usize = 4;
/// How exactly deadlines are kept, and the pause after a round that could not be confirmed.
const STEP: Duration = Duration::from_millis(20);

/// One caller.
struct Reader {
    deadline: Instant,
    answer: oneshot::Sender<Result<LogIndex, ReadError>>,
}

/// The queue of readers. Clones name the same one.
#[derive(Clone)]
pub(crate) struct Reads(Arc<Shared>);

struct Shared {
    env: Env,
    sole: Arc<Sole>,
    applied: watch::Receiver<Option<u64>>,
    queue: Mutex<Queue>,
    gathered: Notify,
    rounds: Arc<Semaphore>,
}

#[derive(Default)]
struct Queue {
    readers: Vec<Reader>,
    closed: bool,
}

/// Asks for the position that a read started now must see: `Err` to be asked again.
pub(crate) trait Confirm: Clone + Send + Sync + 'static {
    /// The confirmed read index; `within` bounds the wait.
    fn confirm(&self, within: Duration) -> impl Future<Output = Result<u64, Reason>> + Send;
}

impl Reads {
    pub(crate) fn new(env: &Env, sole: Arc<Sole>, applied: watch::Receiver<Option<u64>>) -> Reads {
        Reads(Arc::new(Shared {
            env: env.clone(),
            sole,
            applied,
            queue: Mutex::default(),
            gathered: Notify::new(),
            rounds: Arc::new(Semaphore::new(ROUNDS_MAX)),
        }))
    }

    /// Completes once everything acknowledged before the call is applied here; the index applied.
    pub(crate) async fn read_index(&self, deadline: Instant) -> Result<LogIndex, ReadError> {
        if self.0.sole.alone() || self.0.env.plant == Plant::StaleRead {
            return Ok(LogIndex(self.0.applied.borrow().unwrap_or(0)));
        }
        let (answer, confirmed) = oneshot::channel();
        let was_empty = {
            let mut queue = self.0.queue.lock();
            if queue.closed {
                return Err(ReadError(Reason::Stopping));
            }
            queue.readers.push(Reader { deadline, answer });
            queue.readers.len() == 1
        };
        if was_empty {
            self.0.gathered.notify_one();
        }
        confirmed.await.unwrap_or(Err(ReadError(Reason::Stopping)))
    }

    /// Serves the queue; ends when it is closed.
    pub(crate) async fn serve(self, confirm: impl Confirm) {
        loop {
            self.0.gathered.notified().await;
            let Ok(round) = self.0.rounds.clone().acquire_owned().await else {
                return;
            };
            let readers = std::mem::take(&mut self.0.queue.lock().readers);
            if readers.is_empty() {
                continue;
            }
            let this = self.clone();
            let confirm = confirm.clone();
            self.0.env.spawn("raft-read", async move {
                this.round(readers, confirm).await;
                drop(round);
            });
        }
    }

    async fn round(&self, mut readers: Vec<Reader>, confirm: impl Confirm) {
        let index = loop {
            let now = self.0.env.now();
            readers = self.overdue(readers, now, Reason::Timeout);
            let Some(last) = readers.iter().map(|r| r.deadline).max() else {
                return;
            };
            match confirm.confirm(last - now).await {
                Ok(index) => break index,
                Err(Reason::Stopping) => {
                    readers.into_iter().for_each(|r| r.fail(Reason::Stopping));
                    return;
                }
                Err(_) => self.0.env.sleep(STEP).await,
            }
        };
        let mut applied = self.0.applied.clone();
        loop {
            let reached = *applied.borrow_and_update();
            if reached >= Some(index) {
                let at = LogIndex(reached.unwrap_or(0));
                readers.into_iter().for_each(|r| r.succeed(at));
                return;
            }
            let changed = self.0.env.timeout(STEP, applied.changed()).await;
            if changed.is_some_and(|c| c.is_err()) {
                readers.into_iter().for_each(|r| r.fail(Reason::Stopping));
                return;
            }
            readers = self.overdue(readers, self.0.env.now(), Reason::Timeout);
            if readers.is_empty() {
                return;
            }
        }
    }

    /// Answers those whose deadline has passed; the others.
    fn overdue(&self, readers: Vec<Reader>, now: Instant, reason: Reason) -> Vec<Reader> {
        let (late, rest): (Vec<_>, Vec<_>) = readers.into_iter().partition(|r| r.deadline <= now);
        late.into_iter().for_each(|r| r.fail(reason));
        rest
    }

    /// Takes nothing more. Rounds under way end by themselves.
    pub(crate) fn close(&self) {
        let readers = {
            let mut queue = self.0.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.readers)
        };
        readers.into_iter().for_each(|r| r.fail(Reason::Stopping));
        self.0.rounds.close();
        self.0.gathered.notify_one();
    }
}

impl Reader {
    fn succeed(self, at: LogIndex) {
        let _ = self.answer.send(Ok(at));
    }

    fn fail(self, reason: Reason) {
        let _ = self.answer.send(Err(ReadError(reason)));
    }
}
