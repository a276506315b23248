//! Room `server/host`: the steps of switches, run in the order of the table. `down` leaves the cluster, `up` joins
//! it. Every step looks at what is there before it does anything, so that it may be repeated after a crash.

pub(super) mod down;
pub(super) mod up;

use super::core::{Aim, Core, StepError, StepResult};
use super::door::{Backend, SwitchError};
use super::edges::{Mode, Step};
use super::journal::{Removal, Switching};
use std::sync::Arc;
use std::time::Duration;

/// Steps that only work on the own disk are not cut short.
fn is_local(step: Step) -> bool {
    matches!(
        step,
        Step::Intent | Step::Detach | Step::Delete | Step::Done | Step::Credentials
    )
}

/// How long calls may take to leave a backend.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

fn same(a: &Backend, b: &Backend) -> bool {
    match (a, b) {
        (Backend::Member(a), Backend::Member(b)) => Arc::ptr_eq(a, b),
        (Backend::Remote(a), Backend::Remote(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn time_is_up() -> StepError {
    StepError::failed(
        "the time for the switch was up",
        "look at the members' health and connections, or give it more time (--timeout, or \
         --mode-change-timeout of the host)",
    )
}

impl Core {
    /// Runs the steps of a switch from the one at `first` on; the step that failed, and why.
    pub(super) async fn drive(
        &mut self,
        aim: &Aim,
        steps: &[Step],
        first: usize,
    ) -> Result<(), (Step, StepError)> {
        for (at, step) in steps.iter().copied().enumerate().skip(first) {
            self.board.begin(aim.to, step, (at + 1, steps.len()));
            if let Some(switching) = self.journal.switching {
                let now = Switching { step, ..switching };
                let saved = self.save(|journal| journal.switching = Some(now)).await;
                saved.map_err(|e| (step, e))?;
            }
            let (env, within) = (self.env.clone(), aim.deadline - self.env.now());
            let ended = match is_local(step) {
                true => self.run(step, aim).await,
                false => {
                    let ended = env.timeout(within, self.run(step, aim)).await;
                    ended.unwrap_or_else(|| Err(time_is_up()))
                }
            };
            ended.map_err(|error| (step, error))?;
        }
        Ok(())
    }

    async fn run(&mut self, step: Step, aim: &Aim) -> StepResult {
        match step {
            Step::Check => match aim.to {
                Mode::Server => up::check(self, aim).await,
                Mode::Client => down::check(self, aim).await,
            },
            Step::Intent => {
                let switching = Some(Switching { to: aim.to, step });
                self.save(|journal| journal.switching = switching).await
            }
            // The security issue fills this in.
            Step::Credentials => Ok(()),
            Step::AddLearner => up::add_learner(self, aim).await,
            Step::Attach => up::attach(self, aim).await,
            Step::CatchUp => up::catch_up(self, aim).await,
            Step::Reach => down::reach(self, aim).await,
            Step::HandOver => down::hand_over(self, aim).await,
            Step::ToMembers => {
                let remote = match &self.remote {
                    Some(remote) => remote.clone(),
                    None => self.ask_through(self.journal.endpoints.clone()),
                };
                self.go_to(Backend::Remote(remote), aim).await
            }
            Step::ToMember => match &self.member {
                Some(member) => {
                    let services = member.services_shared();
                    self.go_to(Backend::Member(services), aim).await
                }
                None => Err(StepError::failed("no member is attached", "try again")),
            },
            Step::RemoveSelf => down::remove_self(self, aim).await,
            Step::SeeRemoval => down::see_removal(self, aim).await,
            Step::Detach => self.detach().await,
            Step::Delete => self.delete().await,
            Step::Done => self.done(aim.to).await,
        }
    }

    /// Moves the endpoint, unless it is there.
    pub(super) async fn go_to(&mut self, to: Backend, aim: &Aim) -> StepResult {
        if same(&self.door.backend(), &to) {
            return Ok(());
        }
        let within = LEAVE_WITHIN.min(aim.deadline - self.env.now());
        match self.door.switch(to, within).await {
            Ok(()) => Ok(()),
            // The endpoint has moved; who does not leave in time was told so.
            Err(error @ SwitchError::Lingering { .. }) => {
                tracing::warn!(%error, "the endpoint has moved");
                Ok(())
            }
            Err(SwitchError::NotFit(why)) => Err(StepError::failed(
                format!("the member cannot answer clients yet: {why}"),
                "look at the cluster's health and try again",
            )),
        }
    }

    async fn done(&mut self, to: Mode) -> StepResult {
        let own = self.member.as_ref().map(|m| m.services().context.member());
        self.save(|journal| {
            journal.mode = to;
            journal.switching = None;
            match to {
                Mode::Client => {
                    journal.member = None;
                    journal.removal = Removal::NotAsked;
                }
                // One that an earlier clean-up asked for may still come into force.
                Mode::Server => {
                    journal.member = own.or(journal.member);
                    // What an earlier attempt left may be what became the host's own (seed 366 of hosts).
                    journal.leftover = journal.leftover.filter(|id| Some(*id) != journal.member);
                }
            }
        })
        .await?;
        if to == Mode::Server
            && let Some(remote) = self.remote.take()
        {
            remote.shutdown();
        }
        Ok(())
    }
}
