//! Room `server/host`: the host's one task. Modes are an enum consumed by a loop: the old role goes in, the next
//! comes out. A switch runs inside its role and hears orders meanwhile.

use super::automatic::Vigil;
use super::core::{Aim, Core, StepError, position};
use super::edges::{Mode, Step};
use super::journal::Switching;
use super::orders::{ChangeError, ChangeOptions, Ended, Order, Plan};
use super::steps::{down, up};
use std::time::Duration;
use tenon_env::Instant;
use tenon_env::sync::{mpsc, oneshot, watch};
use tenon_proto::ids::MemberId;

/// Pause between attempts to remove what a failed switch left in the cluster.
const TIDY: Duration = Duration::from_secs(5);
/// Pause between attempts to bring the endpoint back to the member.
const HOMECOMING: Duration = Duration::from_secs(1);
/// How long an attempt to tidy may take.
const TIDY_WITHIN: Duration = Duration::from_secs(10);

/// How long a look for a learner of which this host never heard may take: orders wait for it.
const ORPHAN_WITHIN: Duration = Duration::from_secs(1);

/// What a host is, as its loop sees it.
pub(super) enum Role {
    /// Its member answers.
    Server,
    /// The members answer.
    Client,
    /// It goes no further.
    Ended(Ended),
    /// It was told to stop.
    Leaving(Option<oneshot::Sender<()>>),
}

impl Role {
    pub(super) fn of(mode: Mode) -> Role {
        match mode {
            Mode::Server => Role::Server,
            Mode::Client => Role::Client,
        }
    }
}

/// The task's state.
pub(super) struct Running {
    pub(super) core: Core,
    pub(super) orders: mpsc::Receiver<Order>,
    /// Where the end is told.
    pub(super) ended: watch::Sender<Option<Ended>>,
    /// What this host saw as a standby.
    pub(super) vigil: Vigil,
    /// When it may look for a place again.
    pub(super) rests_until: Instant,
}

impl Running {
    /// Lives until the end.
    pub(super) async fn run(mut self) {
        let mut role = Role::of(self.core.journal.mode);
        if let Some(switching) = self.core.journal.switching {
            role = self.resume(switching).await;
        }
        loop {
            role = match role {
                Role::Server => self.serve().await,
                Role::Client => self.forward().await,
                Role::Ended(why) => self.linger(why).await,
                Role::Leaving(farewell) => return self.close(farewell).await,
            };
        }
    }

    /// Tells the end, and keeps what runs until somebody asks to close it: clients are drained first.
    async fn linger(&mut self, why: Ended) -> Role {
        self.ended.send_replace(Some(why));
        loop {
            match self.orders.recv().await {
                None => return Role::Leaving(None),
                Some(Order::Shutdown(farewell)) => return Role::Leaving(Some(farewell)),
                // Dropping the rest tells whoever asks that the host is stopping.
                Some(_) => {}
            }
        }
    }

    async fn close(&mut self, farewell: Option<oneshot::Sender<()>>) {
        if let Some(remote) = self.core.remote.take() {
            remote.shutdown();
        }
        if let Some(member) = self.core.member.clone() {
            member.shutdown().await;
        }
        self.core.attach(None);
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(Ended::Shutdown);
            first
        });
        if let Some(farewell) = farewell {
            let _ = farewell.send(());
        }
    }

    /// Goes on with a switch that a crash cut short.
    async fn resume(&mut self, switching: Switching) -> Role {
        let Switching { to, step } = switching;
        let from = self.core.journal.mode;
        let steps = match self.core.config.edges.steps(from, to) {
            Ok(steps) => steps.to_vec(),
            Err(why) => return Role::Ended(Ended::Failed(why)),
        };
        // Where the endpoint and the member are was decided anew at this start.
        let again = match step {
            Step::Attach | Step::CatchUp | Step::ToMember => Step::AddLearner,
            Step::Done if to == Mode::Server => Step::AddLearner,
            Step::HandOver | Step::ToMembers => Step::Reach,
            step => step,
        };
        let first = position(&steps, again).or(position(&steps, step));
        tracing::info!(%to, step = step.name(), "going on with the switch that was cut short");
        self.switch(to, ChangeOptions::default(), first.unwrap_or(0), None)
            .await
    }

    /// Server mode, until something happens.
    async fn serve(&mut self) -> Role {
        let Some(member) = self.core.member.clone() else {
            return Role::Ended(Ended::Failed("no member is attached".to_owned()));
        };
        self.core.tell_automatic("votes".to_owned());
        let (env, is_home) = (self.core.env.clone(), self.core.is_home());
        let home = async {
            match is_home {
                true => std::future::pending().await,
                false => env.sleep(HOMECOMING).await,
            }
        };
        tokio::select! {
            biased;
            why = member.failed() => Role::Ended(Ended::Failed(why)),
            why = member.removed() => self.on_removed(why).await,
            order = self.orders.recv() => self.obey(order, Role::Server).await,
            () = home => self.go_home().await,
        }
    }

    /// A switch failed while nobody had a quorum: the endpoint comes back to the member once that can answer.
    async fn go_home(&mut self) -> Role {
        let options = ChangeOptions {
            within: Some(HOMECOMING),
            ..ChangeOptions::default()
        };
        let aim = self.aim(Mode::Client, options);
        match down::undo(&mut self.core, &aim).await {
            Ok(down::Undone::Back) | Err(StepError::Failed { .. }) => Role::Server,
            Ok(down::Undone::GoOn) => self.on_removed("it was removed".to_owned()).await,
            Err(StepError::Fatal(why)) => Role::Ended(Ended::Failed(why)),
        }
    }

    /// Client mode, until something happens.
    async fn forward(&mut self) -> Role {
        let Some(remote) = self.core.remote.clone() else {
            return Role::Ended(Ended::Failed("no members are known".to_owned()));
        };
        let env = self.core.env.clone();
        let mut endpoints = remote.watch_endpoints();
        // One that a failed switch left and the cluster may count on.
        let own = self.core.member.clone();
        let failed = async {
            match own {
                Some(member) => member.failed().await,
                None => std::future::pending().await,
            }
        };
        let tidy = async {
            match self.core.journal.leftover {
                None if self.core.orphan_looks == 0 => std::future::pending().await,
                _ => env.sleep(TIDY).await,
            }
        };
        tokio::select! {
            biased;
            why = failed => Role::Ended(Ended::Failed(why)),
            order = self.orders.recv() => self.obey(order, Role::Client).await,
            changed = endpoints.changed() => match changed {
                Ok(()) => {
                    let now = remote.endpoints();
                    self.remember(now).await
                }
                Err(_) => Role::Ended(Ended::Failed("the client mode ended".to_owned())),
            },
            () = tidy => self.tidy().await,
            seen = self.core.next_look(self.rests_until) => self.on_look(seen).await,
        }
    }

    async fn remember(&mut self, endpoints: Vec<String>) -> Role {
        if endpoints.is_empty() {
            return Role::Client;
        }
        match self
            .core
            .save(|journal| journal.endpoints = endpoints)
            .await
        {
            Err(StepError::Fatal(why)) => Role::Ended(Ended::Failed(why)),
            _ => Role::Client,
        }
    }

    /// One more attempt to remove what an earlier switch left.
    async fn tidy(&mut self) -> Role {
        let Some(id) = self.core.journal.leftover else {
            return self.look_for_orphan().await;
        };
        if self.core.has_vote() {
            return self.take_up(id).await;
        }
        let deadline = self.core.env.now() + TIDY_WITHIN;
        match up::clean(&mut self.core, id, deadline).await {
            Ok(()) => {
                tracing::info!(member = %id, "removed what an earlier switch left");
                let saved = self.core.save(|journal| journal.leftover = None).await;
                match saved {
                    Err(StepError::Fatal(why)) => Role::Ended(Ended::Failed(why)),
                    _ => Role::Client,
                }
            }
            Err(StepError::Fatal(why)) => Role::Ended(Ended::Failed(why)),
            Err(StepError::Failed { why, .. }) => {
                tracing::warn!(member = %id, why, "an earlier switch left a member; trying again");
                Role::Client
            }
        }
    }

    /// Whether the cluster lists a learner of this host of which the host never heard; it is removed as others are.
    async fn look_for_orphan(&mut self) -> Role {
        let deadline = self.core.env.now() + ORPHAN_WITHIN;
        let Ok(found) = up::orphan(&self.core, deadline).await else {
            return Role::Client;
        };
        self.core.orphan_looks = self.core.orphan_looks.saturating_sub(1);
        if found.is_none() {
            return Role::Client;
        }
        match self.core.save(|journal| journal.leftover = found).await {
            Err(StepError::Fatal(why)) => Role::Ended(Ended::Failed(why)),
            _ => Role::Client,
        }
    }

    /// What an earlier switch left has a vote by now, and the cluster may need it: the host becomes the server that it
    /// was told to be.
    async fn take_up(&mut self, id: MemberId) -> Role {
        let (to, step) = (Mode::Server, Step::ToMember);
        let steps = self.core.config.edges.steps(Mode::Client, to);
        let first = steps.map_or(0, |s| position(s, step).unwrap_or(s.len()));
        let saved = self.core.save(|journal| {
            journal.switching = Some(Switching { to, step });
            journal.member = Some(id);
            journal.leftover = None;
        });
        if let Err(StepError::Fatal(why)) = saved.await {
            return Role::Ended(Ended::Failed(why));
        }
        tracing::warn!(member = %id, "what an earlier switch left has a vote by now");
        let options = ChangeOptions {
            within: Some(TIDY_WITHIN),
            ..ChangeOptions::default()
        };
        self.switch(to, options, first, None).await
    }

    async fn obey(&mut self, order: Option<Order>, role: Role) -> Role {
        match order {
            None => Role::Leaving(None),
            Some(Order::Shutdown(farewell)) => Role::Leaving(Some(farewell)),
            Some(Order::Abort(answer)) => {
                let none = self.refusal(self.core.journal.mode, "no switch is under way");
                let _ = answer.send(Err(none));
                role
            }
            Some(Order::Plan {
                to,
                options,
                answer,
            }) => {
                let _ = answer.send(self.plan(to, options).await);
                role
            }
            Some(Order::Change {
                to,
                options,
                accepted,
                ended,
            }) => {
                let from = self.core.journal.mode;
                if from == to {
                    self.core
                        .board
                        .edit(|status| status.note = format!("already a {to}"));
                    let _ = accepted.send(Ok(()));
                    let _ = ended.send(Ok(()));
                    return role;
                }
                if let Some(refused) = self.automatic_decides(to) {
                    let _ = accepted.send(Err(refused));
                    return role;
                }
                if let Err(why) = self.core.config.edges.steps(from, to) {
                    let _ = accepted.send(Err(self.refusal(to, &why)));
                    return role;
                }
                let _ = accepted.send(Ok(()));
                self.switch(to, options, 0, Some(ended)).await
            }
        }
    }

    pub(super) fn refusal(&self, to: Mode, why: &str) -> ChangeError {
        ChangeError {
            to,
            step: None,
            why: why.to_owned(),
            remedy: String::new(),
            mode: self.core.journal.mode,
        }
    }

    pub(super) fn aim(&self, to: Mode, options: ChangeOptions) -> Aim {
        let config = &self.core.config;
        let within = options.within.unwrap_or(config.change_within);
        Aim {
            to,
            deadline: self.core.env.now() + within,
            fault_tolerance: options.fault_tolerance.unwrap_or(config.fault_tolerance),
        }
    }

    /// What a switch would do. Looks, and touches nothing.
    async fn plan(&mut self, to: Mode, options: ChangeOptions) -> Result<Plan, ChangeError> {
        if let Some(refused) = self.automatic_decides(to) {
            return Err(refused);
        }
        let from = self.core.journal.mode;
        let steps = self.core.config.edges.steps(from, to);
        let steps = steps
            .map(<[Step]>::to_vec)
            .map_err(|why| self.refusal(to, &why))?;
        let aim = self.aim(to, options);
        let checked = match to {
            Mode::Server => up::check(&mut self.core, &aim).await,
            Mode::Client => down::check(&mut self.core, &aim).await,
        };
        checked.map_err(|error| self.told(to, Step::Check, error))?;
        let show = |step: &Step| format!("{}: {}", step.name(), step.does());
        Ok(Plan {
            steps: steps.iter().map(show).collect(),
            warnings: self.core.board.now().warnings,
        })
    }

    /// A step's error for whoever asked for the switch.
    pub(super) fn told(&self, to: Mode, step: Step, error: StepError) -> ChangeError {
        let (why, remedy) = match error {
            StepError::Failed { why, remedy } => (why, remedy),
            StepError::Fatal(why) => (why, "look at the disk; the host ends".to_owned()),
        };
        ChangeError {
            to,
            step: Some(step),
            why,
            remedy,
            mode: self.core.journal.mode,
        }
    }
}
