//! Room `server/host`: one switch from its order to its outcome: the steps run, orders are heard meanwhile, and after
//! a failure the host is cleaned up, or goes on where there is no way back.

use super::config::FaultTolerance;
use super::core::{Aim, StepError, position};
use super::edges::{Cleaning, Mode, Step};
use super::orders::{ChangeError, ChangeOptions, Ended, Order, Outcome};
use super::running::{Role, Running};
use super::steps::{down, up};
use std::time::Duration;
use tenon_env::sync::oneshot;

/// Time of its own for cleaning up after a failed switch.
const CLEANING: Duration = Duration::from_secs(30);

/// How a switch came to its end.
enum Cut {
    Over(Result<(), (Step, StepError)>),
    Aborted(oneshot::Sender<Outcome>),
    Shutdown(Option<oneshot::Sender<()>>),
    /// The member that still answers cannot go on.
    Failed(String),
}

impl Running {
    /// One switch, from the step at `first` on; the role that follows.
    pub(super) async fn switch(
        &mut self,
        to: Mode,
        options: ChangeOptions,
        first: usize,
        ended: Option<oneshot::Sender<Outcome>>,
    ) -> Role {
        let aim = self.aim(to, options);
        let steps = self.core.config.edges.steps(self.core.journal.mode, to);
        let steps = steps.map(<[Step]>::to_vec).unwrap_or_default();
        self.core.board.edit(|status| {
            status.error = None;
            status.warnings.clear();
        });
        let (outcome, fatal) = match self.drive(&aim, &steps, first).await {
            Cut::Shutdown(farewell) => return Role::Leaving(farewell),
            Cut::Over(Ok(())) => (Ok(()), None),
            Cut::Failed(why) => self.failed(&aim, why),
            Cut::Over(Err((step, error))) => self.undo(&aim, &steps, (step, error)).await,
            Cut::Aborted(answer) => {
                let step = self.step();
                let why = StepError::failed("it was aborted", "");
                let (outcome, fatal) = self.undo(&aim, &steps, (step, why)).await;
                let mode = self.core.journal.mode;
                let back = match mode == to {
                    false => Ok(()),
                    true => Err(self.refusal(to, "the switch was over before it could be aborted")),
                };
                let _ = answer.send(back);
                (outcome, fatal)
            }
        };
        self.announce(&outcome);
        if let Some(ended) = ended {
            let _ = ended.send(outcome);
        }
        match fatal {
            Some(why) => Role::Ended(Ended::Failed(why)),
            None => Role::of(self.core.journal.mode),
        }
    }

    /// The step of the switch under way.
    fn step(&self) -> Step {
        let progress = self.core.board.now().progress;
        progress.map_or(Step::Check, |p| p.step)
    }

    /// The host ends, as it would without a switch; the next start goes on.
    fn failed(&self, aim: &Aim, why: String) -> (Outcome, Option<String>) {
        let error = StepError::Fatal(why.clone());
        (Err(self.told(aim.to, self.step(), error)), Some(why))
    }

    fn announce(&self, outcome: &Outcome) {
        let mode = self.core.journal.mode;
        // A standby that found no place after all is nobody's error.
        let told = self.core.config.automatic.is_none();
        match outcome {
            Ok(()) => tracing::info!(%mode, "the switch is done"),
            Err(error) if !told => {
                tracing::warn!(%error, "stays what it is for now");
                self.core
                    .tell_automatic(format!("tries again soon: {error}"));
            }
            Err(error) => tracing::error!(%error, "the switch was not made"),
        }
        self.core.board.edit(|status| {
            let took = status
                .progress
                .take()
                .map(|p| self.core.env.now() - p.began);
            status.error = outcome
                .as_ref()
                .err()
                .filter(|_| told)
                .map(ToString::to_string);
            status.note = match (outcome, took) {
                (Ok(()), Some(took)) => format!("became a {mode} in {} ms", took.as_millis()),
                (Ok(()), None) => format!("is a {mode}"),
                (Err(_), _) => format!("stays a {mode}"),
            };
        });
    }

    /// Runs the steps, and hears orders meanwhile.
    async fn drive(&mut self, aim: &Aim, steps: &[Step], first: usize) -> Cut {
        let Running { core, orders, .. } = self;
        let (board, mode) = (core.board.clone(), core.journal.mode);
        // One that only learns fails its step, and one on its way out is asked nothing any more.
        let own = core.member.clone().filter(|_| aim.to == Mode::Client);
        let mut failed = std::pin::pin!(async {
            match &own {
                Some(member) => member.failed().await,
                None => std::future::pending().await,
            }
        });
        let mut has_failed = false;
        let mut driving = std::pin::pin!(core.drive(aim, steps, first));
        loop {
            let order = tokio::select! {
                biased;
                over = &mut driving => return Cut::Over(over),
                why = &mut failed, if !has_failed => {
                    has_failed = true;
                    let step = board.now().progress.map_or(Step::Check, |p| p.step);
                    if can_abort(steps, step) {
                        return Cut::Failed(why);
                    }
                    continue;
                }
                order = orders.recv() => order,
            };
            let to = aim.to;
            let step = board.now().progress.map_or(Step::Check, |p| p.step);
            let busy = |why: String| ChangeError {
                to,
                step: None,
                why,
                remedy: "wait for it, or `tenon host abort`".to_owned(),
                mode,
            };
            let under_way = format!("the switch to {to} is under way at step {}", step.name());
            match order {
                None => return Cut::Shutdown(None),
                Some(Order::Shutdown(farewell)) => return Cut::Shutdown(Some(farewell)),
                Some(Order::Change { accepted, .. }) => {
                    let _ = accepted.send(Err(busy(under_way)));
                }
                Some(Order::Plan { answer, .. }) => {
                    let _ = answer.send(Err(busy(under_way)));
                }
                Some(Order::Abort(answer)) => {
                    if can_abort(steps, step) {
                        return Cut::Aborted(answer);
                    }
                    let why = format!("{under_way}, and cannot be taken back any more");
                    let error = ChangeError {
                        remedy: "wait for it, then switch again".to_owned(),
                        ..busy(why)
                    };
                    let _ = answer.send(Err(error));
                }
            }
        }
    }

    /// After a failure: back to the old mode, or on where there is no way back. What to tell, and why the host
    /// must end if it must.
    async fn undo(
        &mut self,
        aim: &Aim,
        steps: &[Step],
        (step, error): (Step, StepError),
    ) -> (Outcome, Option<String>) {
        if let StepError::Fatal(why) = &error {
            let why = why.clone();
            return (Err(self.told(aim.to, step, error)), Some(why));
        }
        tracing::warn!(?error, step = step.name(), "the switch fails; cleaning up");
        let cleaning = Aim {
            deadline: match self.core.config.edges.cleaning {
                Cleaning::OwnDeadline => self.core.env.now() + CLEANING,
                // What fails for want of time fails a moment before its deadline; that moment is not for cleaning.
                Cleaning::SharedDeadline => self.core.env.now(),
            },
            fault_tolerance: FaultTolerance::Warn,
            to: aim.to,
        };
        let undone = match aim.to {
            Mode::Server => up::undo(&mut self.core, &cleaning).await,
            Mode::Client => down::undo(&mut self.core, &cleaning).await,
        };
        match undone {
            Ok(down::Undone::Back) => (Err(self.told(aim.to, step, error)), None),
            Ok(down::Undone::GoOn) if aim.to == Mode::Server => {
                self.take_over(&cleaning, steps).await
            }
            Ok(down::Undone::GoOn) => self.go_on(&cleaning, steps).await,
            Err(StepError::Fatal(why)) => (Err(self.told(aim.to, step, error)), Some(why)),
            Err(StepError::Failed { why, .. }) => {
                let told = self.told(aim.to, step, error);
                let why = format!("{}; cleaning up: {why}", told.why);
                (Err(ChangeError { why, ..told }), None)
            }
        }
    }

    /// The member has its vote: what is left is that it answers. When it cannot yet, the host's loop tries again.
    async fn take_over(&mut self, aim: &Aim, steps: &[Step]) -> (Outcome, Option<String>) {
        let first = position(steps, Step::ToMember).unwrap_or(steps.len());
        let Err((step, error)) = self.core.drive(aim, steps, first).await else {
            return (Ok(()), None);
        };
        let fatal = match &error {
            StepError::Fatal(why) => Some(why.clone()),
            StepError::Failed { .. } => {
                let own = self.core.member.as_ref();
                let own = own.map(|m| m.services().context.member());
                match up::leave(&mut self.core, own).await {
                    Err(StepError::Fatal(why)) => Some(why),
                    _ => None,
                }
            }
        };
        (Err(self.told(aim.to, step, error)), fatal)
    }

    /// The member is removed: what is left of the switch needs nobody else.
    async fn go_on(&mut self, aim: &Aim, steps: &[Step]) -> (Outcome, Option<String>) {
        let first = position(steps, Step::Detach).or(position(steps, Step::Delete));
        let first = first.unwrap_or(steps.len());
        match self.core.drive(aim, steps, first).await {
            Ok(()) => (Ok(()), None),
            Err((step, error)) => {
                let told = self.told(aim.to, step, error);
                let why = format!("{told}; the next start goes on from here");
                (Err(told), Some(why))
            }
        }
    }
}

/// Whether a switch at this step can be taken back: nobody was asked to remove the member, and the endpoint has not
/// moved to a new one.
fn can_abort(steps: &[Step], step: Step) -> bool {
    let end = position(steps, Step::RemoveSelf).or(position(steps, Step::ToMember));
    let at = position(steps, step).unwrap_or(0);
    end.is_none_or(|end| at < end)
}

#[cfg(test)]
mod tests {
    use super::super::edges::Edges;
    use super::*;

    #[test]
    fn a_switch_can_be_aborted_until_it_binds_the_cluster() {
        let edges = Edges::default();
        let down = edges.steps(Mode::Server, Mode::Client).unwrap();
        for (step, expected) in [
            (Step::Check, true),
            (Step::HandOver, true),
            (Step::ToMembers, true),
            (Step::RemoveSelf, false),
            (Step::Delete, false),
        ] {
            assert_eq!(can_abort(down, step), expected, "{step:?}");
        }
        let up = edges.steps(Mode::Client, Mode::Server).unwrap();
        assert!(can_abort(up, Step::CatchUp));
        assert!(!can_abort(up, Step::ToMember));
    }
}
