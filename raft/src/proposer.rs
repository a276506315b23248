//! Room `raft`: group commit at proposal time. Callers put commands into one queue; one task takes what has
//! gathered, makes one log entry of it and hands it to the leader, this member or another. A command that
//! finds the queue empty goes at once; under load the batches in flight are few, so they grow.
//!
//! - A batch holds at most [`COMMANDS_MAX`] commands, and more than [`BYTES_MAX`] only as a single command.
//! - At most [`FLIGHTS_MAX`] batches are under way.
//! - What the leader refused before it was in a log is queued again until its deadline; nothing else is.

use crate::error::{ProposeError, Reason};
use crate::flight::{Flights, Outcome, Ticket, Via, Waiter, Waiting};
use crate::status::RaftStatus;
use crate::types::{Batching, Proposal};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::{Notify, Semaphore, oneshot, watch};
use tenon_env::{Env, Instant};
use tenon_proto::command::Command;

/// Commands in one entry.
const COMMANDS_MAX: usize = 512;
/// Bytes of commands in one entry.
const BYTES_MAX: usize = 1 << 20;
/// Batches under way: enough to fill the time of a round, few enough that they are large under load.
const FLIGHTS_MAX: usize = 4;
/// How exactly deadlines are kept.
const SWEEP: Duration = Duration::from_millis(100);
/// Pause after a leader refused a batch, so that a leader about to change is not asked in a loop.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// The queue. Clones name the same one.
#[derive(Clone)]
pub(crate) struct Proposer(Arc<Shared>);

struct Shared {
    env: Env,
    queue: Mutex<Queue>,
    gathered: Notify,
    busy: Notify,
    slots: Arc<Semaphore>,
    flights: Arc<Flights>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

/// Where a batch may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To this member as leader; some of its commands may go nowhere else.
    Here,
    /// To any leader.
    Away,
}

/// One batch on its way out. Its slot is free again when it is dropped.
pub(crate) struct Departure {
    pub(crate) route: Route,
    pub(crate) proposal: Proposal,
    pub(crate) ticket: Ticket,
    pub(crate) slot: tokio::sync::OwnedSemaphorePermit,
}

impl Proposer {
    pub(crate) fn new(env: &Env) -> Proposer {
        Proposer(Arc::new(Shared {
            env: env.clone(),
            queue: Mutex::default(),
            gathered: Notify::new(),
            busy: Notify::new(),
            slots: Arc::new(Semaphore::new(FLIGHTS_MAX)),
            flights: Arc::default(),
        }))
    }

    /// Queues a command and waits for what becomes of it.
    pub(crate) async fn propose(&self, command: Command, via: Via, deadline: Instant) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        let waiter = Waiter {
            via,
            deadline,
            answer,
        };
        self.enqueue(Waiting { command, waiter });
        outcome
            .await
            .unwrap_or(Err(ProposeError::Unknown(Reason::Stopping)))
    }

    /// Queues several commands at once, as a peer forwards them.
    pub(crate) fn enqueue_all(&self, waiting: Vec<Waiting>) {
        waiting.into_iter().for_each(|w| self.enqueue(w));
    }

    fn enqueue(&self, waiting: Waiting) {
        let mut queue = self.0.queue.lock();
        if queue.closed {
            drop(queue);
            waiting
                .waiter
                .fail(ProposeError::NotProposed(Reason::Stopping));
            return;
        }
        let was_empty = queue.waiting.is_empty();
        queue.waiting.push_back(waiting);
        drop(queue);
        if was_empty {
            self.0.gathered.notify_one();
            self.0.busy.notify_one();
        }
    }

    /// Waits for a free slot, for commands and for a leader, and makes a batch of what has gathered. Until
    /// then commands stay in the queue, where their deadlines are watched. `None` once closed.
    pub(crate) async fn next(&self, status: &mut watch::Receiver<RaftStatus>) -> Option<Departure> {
        let slot = self.0.slots.clone().acquire_owned().await.ok()?;
        loop {
            if self.0.queue.lock().waiting.is_empty() {
                self.0.gathered.notified().await;
            }
            let led = status.wait_for(|s| s.leader.is_some()).await.is_ok();
            if !led {
                return None;
            }
            if self.0.queue.lock().closed {
                return None;
            }
            let leads = status.borrow().is_leader;
            if let Some((proposal, ticket)) = self.batch(leads) {
                let route = if leads { Route::Here } else { Route::Away };
                return Some(Departure {
                    route,
                    proposal,
                    ticket,
                    slot,
                });
            }
        }
    }

    fn batch(&self, leads: bool) -> Option<(Proposal, Ticket)> {
        let mut taken = {
            let mut queue = self.0.queue.lock();
            let count = queue.waiting.len().min(COMMANDS_MAX);
            queue.waiting.drain(..count).collect::<VecDeque<Waiting>>()
        };
        let now = self.0.env.now();
        let mut batching = Batching::new(taken.len());
        let mut waiters = Vec::with_capacity(taken.len());
        while batching.len_bytes() < BYTES_MAX
            && let Some(Waiting { command, waiter }) = taken.pop_front()
        {
            if waiter.deadline <= now {
                waiter.fail(ProposeError::NotProposed(Reason::Timeout));
                continue;
            }
            if waiter.via == Via::Here && !leads {
                waiter.fail(ProposeError::NotProposed(Reason::NoLeader));
                continue;
            }
            batching.push(command);
            waiters.push(waiter);
        }
        self.put_back(taken);
        if waiters.is_empty() {
            return None;
        }
        let proposal = batching.finish();
        let ticket = self.0.flights.launch(proposal.batch().clone(), waiters);
        Some((proposal, ticket))
    }

    /// Puts commands back to the head of the queue.
    fn put_back(&self, taken: VecDeque<Waiting>) {
        if taken.is_empty() {
            return;
        }
        let mut queue = self.0.queue.lock();
        if queue.closed {
            drop(queue);
            for waiting in taken {
                waiting
                    .waiter
                    .fail(ProposeError::NotProposed(Reason::Stopping));
            }
            return;
        }
        taken
            .into_iter()
            .rev()
            .for_each(|w| queue.waiting.push_front(w));
        drop(queue);
        self.0.gathered.notify_one();
        self.0.busy.notify_one();
    }

    /// A batch that its leader refused: its commands are tried again after a pause.
    pub(crate) fn refused(&self, ticket: Ticket, slot: tokio::sync::OwnedSemaphorePermit) {
        self.again(ticket.ground(), slot);
    }

    /// Queues commands again. The slot is kept for a pause, so that a leaderless member does not spin.
    pub(crate) fn again(&self, waiting: Vec<Waiting>, slot: tokio::sync::OwnedSemaphorePermit) {
        self.put_back(waiting.into());
        let pause = self.0.env.sleep(REFUSED_PAUSE);
        self.0.env.spawn("raft-refused", async move {
            pause.await;
            drop(slot);
        });
    }

    /// Keeps the deadlines of queued and flying commands. Ends when the queue is closed.
    pub(crate) async fn sweep(self) {
        loop {
            self.0.busy.notified().await;
            loop {
                self.0.env.sleep(SWEEP).await;
                if self.sweep_once() {
                    break;
                }
            }
            if self.0.queue.lock().closed {
                return;
            }
        }
    }

    /// Answers what is overdue; true when nobody is left waiting.
    fn sweep_once(&self) -> bool {
        let now = self.0.env.now();
        self.0.flights.expire(now);
        let mut overdue = Vec::new();
        let idle = {
            let mut queue = self.0.queue.lock();
            if queue.waiting.iter().any(|w| w.waiter.deadline <= now) {
                let all = std::mem::take(&mut queue.waiting);
                let (late, rest): (VecDeque<_>, _) =
                    all.into_iter().partition(|w| w.waiter.deadline <= now);
                overdue.extend(late);
                queue.waiting = rest;
            }
            queue.waiting.is_empty() && self.0.flights.is_empty()
        };
        for waiting in overdue {
            waiting
                .waiter
                .fail(ProposeError::NotProposed(Reason::Timeout));
        }
        idle
    }

    /// Commands queued or under way.
    pub(crate) fn pending(&self) -> usize {
        self.0.queue.lock().waiting.len() + self.0.flights.waiting()
    }

    /// Takes nothing more; answers everybody.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut queue = self.0.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.waiting)
        };
        for waiting in waiting {
            waiting
                .waiter
                .fail(ProposeError::NotProposed(Reason::Stopping));
        }
        self.0.flights.fail_all(Reason::Stopping);
        self.0.slots.close();
        self.0.gathered.notify_one();
        self.0.busy.notify_one();
    }
}
