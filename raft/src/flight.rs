//! Room `raft`: commands under way and those who wait for them. A flight is one proposed batch; it lands
//! with one outcome for all, but each waiter has its own deadline, because a leader that lost its office
//! keeps what it proposed for ever.
//!
//! - Every waiter is answered exactly once: by the outcome, at its deadline, or when the flight is dropped.
//! - What was handed to openraft or to a peer ends as `Unknown` unless that side says otherwise.

use crate::error::{ProposeError, Reason};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_env::Instant;
use tenon_env::sync::oneshot;
use tenon_proto::command::{Command, CommandBatch, CommandResult};

/// A command that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// Its entry's position in the log.
    pub index: u64,
    /// The term of the leader that wrote the entry.
    pub term: u64,
    /// What applying it answered.
    pub result: CommandResult,
}

/// What one proposal came to.
pub(crate) type Outcome = Result<Applied, ProposeError>;

/// Who may put a command into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Whoever leads.
    Leader,
    /// This member, if it leads; nobody else.
    Here,
}

/// One caller.
pub(crate) struct Waiter {
    pub(crate) via: Via,
    pub(crate) deadline: Instant,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

impl Waiter {
    pub(crate) fn fail(self, error: ProposeError) {
        let _ = self.answer.send(Err(error));
    }
}

/// A command and its caller, not under way.
pub(crate) struct Waiting {
    pub(crate) command: Command,
    pub(crate) waiter: Waiter,
}

/// One batch under way. Waiters stand in the order of the commands; a gap is one that was answered.
pub(crate) struct Flight {
    batch: Arc<CommandBatch>,
    waiters: Mutex<Vec<Option<Waiter>>>,
}

impl Flight {
    /// The results of all commands, in order.
    fn land(&self, index: u64, term: u64, results: Vec<CommandResult>) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        assert!(
            waiters.is_empty() || waiters.len() == results.len(),
            "a batch has one result for each command"
        );
        for (waiter, result) in waiters.into_iter().zip(results) {
            if let Some(waiter) = waiter {
                let _ = waiter.answer.send(Ok(Applied {
                    index,
                    term,
                    result,
                }));
            }
        }
    }

    fn fail(&self, error: ProposeError) {
        for waiter in std::mem::take(&mut *self.waiters.lock())
            .into_iter()
            .flatten()
        {
            waiter.fail(error);
        }
    }

    /// Takes the batch apart again, as far as somebody still waits.
    fn ground(&self) -> Vec<Waiting> {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        let pairs = self.batch.commands.iter().zip(waiters);
        pairs
            .filter_map(|(c, w)| {
                Some(Waiting {
                    command: c.clone(),
                    waiter: w?,
                })
            })
            .collect()
    }

    fn expire(&self, now: Instant) {
        for slot in self.waiters.lock().iter_mut() {
            if slot.as_ref().is_some_and(|w| w.deadline <= now)
                && let Some(waiter) = slot.take()
            {
                waiter.fail(ProposeError::Unknown(Reason::Timeout));
            }
        }
    }
}

/// All flights of a member.
#[derive(Default)]
pub(crate) struct Flights(Mutex<Board>);

#[derive(Default)]
struct Board {
    next: u64,
    up: BTreeMap<u64, Arc<Flight>>,
}

impl Flights {
    /// Registers a batch that is about to be handed over.
    pub(crate) fn launch(
        self: &Arc<Flights>,
        batch: Arc<CommandBatch>,
        waiters: Vec<Waiter>,
    ) -> Ticket {
        let waiters = Mutex::new(waiters.into_iter().map(Some).collect());
        let flight = Arc::new(Flight { batch, waiters });
        let mut board = self.0.lock();
        let number = board.next;
        board.next += 1;
        board.up.insert(number, flight.clone());
        drop(board);
        Ticket {
            flights: self.clone(),
            number,
            flight,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().up.is_empty()
    }

    /// Waiters of all flights.
    pub(crate) fn waiting(&self) -> usize {
        let board = self.0.lock();
        let waiting = |flight: &Arc<Flight>| flight.waiters.lock().iter().flatten().count();
        board.up.values().map(waiting).sum()
    }

    /// Answers every waiter whose deadline has passed.
    pub(crate) fn expire(&self, now: Instant) {
        let up: Vec<Arc<Flight>> = self.0.lock().up.values().cloned().collect();
        up.iter().for_each(|flight| flight.expire(now));
    }

    /// Answers every waiter.
    pub(crate) fn fail_all(&self, reason: Reason) {
        let up = std::mem::take(&mut self.0.lock().up);
        up.values()
            .for_each(|flight| flight.fail(ProposeError::Unknown(reason)));
    }
}

/// The duty to bring a flight down; dropped without a word, its outcome is unknown.
pub(crate) struct Ticket {
    flights: Arc<Flights>,
    number: u64,
    flight: Arc<Flight>,
}

impl Ticket {
    pub(crate) fn batch(&self) -> &Arc<CommandBatch> {
        &self.flight.batch
    }

    pub(crate) fn land(self, index: u64, term: u64, results: Vec<CommandResult>) {
        self.flight.land(index, term, results);
    }

    pub(crate) fn fail(self, error: ProposeError) {
        self.flight.fail(error);
    }

    /// The latest moment for each command; where nobody waits any more, the past.
    pub(crate) fn deadlines(&self) -> Vec<Instant> {
        let waiters = self.flight.waiters.lock();
        waiters
            .iter()
            .map(|w| w.as_ref().map_or(Instant(0), |w| w.deadline))
            .collect()
    }

    /// Takes one outcome for each command; those to propose again, which the other side refused before its
    /// deadline.
    pub(crate) fn settle(self, outcomes: Vec<Outcome>) -> Vec<Waiting> {
        let waiters = std::mem::take(&mut *self.flight.waiters.lock());
        let commands = self.flight.batch.commands.iter();
        let mut again = Vec::new();
        for ((command, waiter), outcome) in commands.zip(waiters).zip(outcomes) {
            let Some(waiter) = waiter else { continue };
            match outcome {
                Err(ProposeError::NotProposed(reason)) if reason != Reason::Timeout => {
                    again.push(Waiting {
                        command: command.clone(),
                        waiter,
                    });
                }
                outcome => drop(waiter.answer.send(outcome)),
            }
        }
        again
    }

    /// The commands that may be proposed again, because they are in no log.
    pub(crate) fn ground(self) -> Vec<Waiting> {
        self.flight.ground()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.flight.fail(ProposeError::Unknown(Reason::Stopping));
        self.flights.0.lock().up.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(count: usize) -> (Arc<Flights>, Ticket, Vec<oneshot::Receiver<Outcome>>) {
        let flights = Arc::new(Flights::default());
        let commands = (0..count as u64).map(|n| Command {
            request_id: n,
            ..Default::default()
        });
        let batch = Arc::new(CommandBatch {
            commands: commands.collect(),
        });
        let channels = (0..count as u64).map(|n| {
            let (answer, rx) = oneshot::channel();
            (
                Waiter {
                    via: Via::Leader,
                    deadline: Instant(100 * (n + 1)),
                    answer,
                },
                rx,
            )
        });
        let (waiters, receivers) = channels.unzip();
        let ticket = flights.launch(batch, waiters);
        (flights, ticket, receivers)
    }

    #[test]
    fn deadlines_are_kept_one_by_one_and_the_rest_lands() {
        let (flights, ticket, mut rx) = launch(3);
        flights.expire(Instant(200));
        let late = Err(ProposeError::Unknown(Reason::Timeout));
        assert_eq!(rx[0].try_recv(), Ok(late.clone()));
        assert_eq!(rx[1].try_recv(), Ok(late));
        assert!(rx[2].try_recv().is_err(), "still under way");
        ticket.land(7, 2, vec![CommandResult::default(); 3]);
        let landed = Applied {
            index: 7,
            term: 2,
            result: CommandResult::default(),
        };
        assert_eq!(rx[2].try_recv(), Ok(Ok(landed)));
        assert!(flights.is_empty());
    }

    #[test]
    fn a_lost_ticket_leaves_the_outcome_unknown() {
        let (flights, ticket, mut rx) = launch(1);
        drop(ticket);
        assert_eq!(
            rx[0].try_recv(),
            Ok(Err(ProposeError::Unknown(Reason::Stopping)))
        );
        assert!(flights.is_empty());
    }

    #[test]
    fn grounded_commands_come_back_with_those_who_still_wait() {
        let (flights, ticket, mut rx) = launch(2);
        flights.expire(Instant(100));
        let waiting = ticket.ground();
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0].command.request_id, 1);
        assert!(rx[0].try_recv().is_ok());
        assert!(rx[1].try_recv().is_err(), "not answered yet");
        assert!(flights.is_empty());
    }
}
