//! Room `raft`: batches and read rounds go to the leader, be it this member or another. A forwarded command
//! keeps its caller; only what provably never reached a log is tried again.

use super::Node;
use crate::error::{ProposeError, Reason};
use crate::flight::{Outcome, Ticket, Via, Waiter, Waiting};
use crate::network::{Lost, read_outcome};
use crate::proposer::{Departure, Proposer, Route};
use crate::reads::Confirm;
use crate::types::{Config, OnComplete, Proposal};
use openraft::LinearizerOption;
use openraft::ReadPolicy;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::ClientWriteResult;
use std::time::Duration;
use tenon_env::sync::oneshot;
use tenon_proto::command::CommandBatch;
use tenon_proto::peer::{Forward, ReadIndex, read_index_reply, request, response};
use tokio::sync::OwnedSemaphorePermit;

/// How long an answer may take on its way back after the last deadline.
const GRACE: Duration = Duration::from_millis(500);

impl Node {
    /// Proposes until the queue closes.
    pub(crate) async fn propose(self) {
        let mut status = self.watch_status();
        while let Some(Departure {
            proposal,
            ticket,
            slot,
            route,
        }) = self.proposer().next(&mut status).await
        {
            match self.leader() {
                Some(leader) if leader == self.member() => {
                    self.propose_here(proposal, ticket, slot).await;
                }
                Some(leader) if route == Route::Away => {
                    let this = self.clone();
                    self.env().spawn("raft-forward", async move {
                        this.forward(leader.0, ticket, slot).await;
                    });
                }
                Some(_) | None => self.proposer().refused(ticket, slot),
            }
        }
    }

    async fn propose_here(&self, proposal: Proposal, ticket: Ticket, slot: OwnedSemaphorePermit) {
        let proposer = self.proposer().clone();
        let landed = OnComplete::new(move |outcome: ClientWriteResult<Config>| {
            land(&proposer, ticket, slot, outcome);
        });
        if let Err(fatal) = self.0.raft.write(proposal).responder(landed).await {
            tracing::warn!("a proposal did not reach raft: {fatal}");
        }
    }

    async fn forward(&self, leader: u64, ticket: Ticket, slot: OwnedSemaphorePermit) {
        let now = self.env().now();
        let within: Vec<Duration> = ticket.deadlines().into_iter().map(|at| at - now).collect();
        let longest = within.iter().max().copied().unwrap_or_default();
        let within_ms = within
            .iter()
            .map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        let batch = Some(CommandBatch::clone(ticket.batch()));
        let body = request::Body::Forward(Forward {
            batch,
            within_ms: within_ms.collect(),
        });
        let count = ticket.batch().commands.len();
        match self.0.links.to(leader).call(body, longest + GRACE).await {
            Ok(response::Body::Forward(reply)) if reply.outcomes.len() == count => {
                let mut outcomes: Vec<_> = reply.outcomes.into_iter().map(read_outcome).collect();
                // What was refused goes back into the queue with the slot; else the slot is free at once.
                let refused = outcomes.iter().any(Result::is_err);
                let slot = refused.then_some(slot);
                self.catch_up(&mut outcomes, longest).await;
                let again = ticket.settle(outcomes);
                if let Some(slot) = slot.filter(|_| !again.is_empty()) {
                    self.proposer().again(again, slot);
                }
            }
            Err(Lost::NotSent(why)) => {
                tracing::debug!("not forwarded: {why}");
                self.proposer().refused(ticket, slot);
            }
            Ok(_) | Err(Lost::Unknown(_)) => {
                ticket.fail(ProposeError::Unknown(Reason::StreamBroken));
            }
        }
    }

    /// Waits until what the leader applied is applied here: whoever asked this member may read its own write
    /// from it, as from etcd. The waiters' deadlines are watched meanwhile; whoever is told by then is told of no
    /// result that this member does not have (seed 1016 of hosts).
    async fn catch_up(&self, outcomes: &mut [Outcome], within: Duration) {
        let applied = outcomes.iter().flatten().map(|applied| applied.index).max();
        let Some(index) = applied else { return };
        let mut here = self.0.applied.clone();
        let there = here.wait_for(|applied| *applied >= Some(index));
        let reason = match self.env().timeout(within, there).await {
            Some(Ok(_)) => return,
            // Nothing is applied here any more.
            Some(Err(_)) => Reason::Stopping,
            None => Reason::Timeout,
        };
        let here = self.applied();
        let late = |o: &&mut Outcome| o.as_ref().is_ok_and(|applied| Some(applied.index) > here);
        for outcome in outcomes.iter_mut().filter(late) {
            *outcome = Err(ProposeError::Unknown(reason));
        }
    }

    /// Proposes what a peer forwarded; the outcomes in order. A member that does not lead, or not any more, refuses:
    /// the peer looks for the leader again. Nothing is forwarded twice: two members that each take the other for the
    /// leader while it changes would fill each other's slots with commands that wait for those slots.
    pub(crate) async fn take_forwarded(&self, forward: Forward) -> Vec<Outcome> {
        let commands = forward.batch.unwrap_or_default().commands;
        if self.leader() != Some(self.member()) {
            let refused = Err(ProposeError::NotProposed(Reason::NoLeader));
            return vec![refused; commands.len()];
        }
        let now = self.env().now();
        let within = forward.within_ms.into_iter().chain(std::iter::repeat(0));
        let mut answers = Vec::with_capacity(commands.len());
        let mut waiting = Vec::with_capacity(commands.len());
        for (command, ms) in commands.into_iter().zip(within) {
            let (answer, rx) = oneshot::channel();
            let deadline = now + Duration::from_millis(ms);
            waiting.push(Waiting {
                command,
                waiter: Waiter {
                    via: Via::Here,
                    deadline,
                    answer,
                },
            });
            answers.push(rx);
        }
        self.proposer().enqueue_all(waiting);
        let mut outcomes = Vec::with_capacity(answers.len());
        for answer in answers {
            let stopped = Err(ProposeError::Unknown(Reason::Stopping));
            outcomes.push(answer.await.unwrap_or(stopped));
        }
        outcomes
    }

    /// The read index, confirmed by this member as leader.
    pub(crate) async fn confirm_here(&self, within: Duration) -> Result<u64, Reason> {
        let option = LinearizerOption::from(ReadPolicy::ReadIndex).with_wait_timeout(within);
        match self.0.raft.get_read_linearizer(option).await {
            Ok(linearizer) => Ok(linearizer.read_log_id().index()),
            Err(RaftError::APIError(_)) => Err(Reason::NoLeader),
            Err(RaftError::Fatal(_)) => Err(Reason::Stopping),
        }
    }
}

/// What openraft says of a batch.
fn land(
    proposer: &Proposer,
    ticket: Ticket,
    slot: OwnedSemaphorePermit,
    outcome: ClientWriteResult<Config>,
) {
    match outcome {
        Ok(done) => {
            // The slot goes first, so that the next batch is under way while callers are woken.
            drop(slot);
            ticket.land(done.log_id.index, done.log_id.leader_id.term, done.data);
        }
        // Refused before it was in the log: this member does not lead, or not any more.
        Err(ClientWriteError::ForwardToLeader(_)) => proposer.refused(ticket, slot),
        // It was in a log and is gone from this one; another leader may have it.
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            ticket.fail(ProposeError::Unknown(Reason::LeaderChanged));
        }
        Err(error) => {
            debug_assert!(false, "a batch is no membership change: {error}");
            ticket.fail(ProposeError::Unknown(Reason::LeaderChanged));
        }
    }
}

impl Confirm for Node {
    async fn confirm(&self, within: Duration) -> Result<u64, Reason> {
        // One try stays short: a leader that cannot confirm may not be the leader any more.
        let within = within.min(self.config().election);
        match self.leader() {
            Some(leader) if leader == self.member() => self.confirm_here(within).await,
            Some(leader) => {
                let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
                let body = request::Body::ReadIndex(ReadIndex { within_ms });
                match self.0.links.to(leader.0).call(body, within + GRACE).await {
                    Ok(response::Body::ReadIndex(reply)) => match reply.outcome {
                        Some(read_index_reply::Outcome::Index(index)) => Ok(index),
                        // That the leader stops does not stop this member.
                        Some(read_index_reply::Outcome::NotConfirmed(_)) => Err(Reason::NoLeader),
                        None => Err(Reason::StreamBroken),
                    },
                    Ok(_) | Err(_) => Err(Reason::StreamBroken),
                }
            }
            None => Err(Reason::NoLeader),
        }
    }
}
