//! Room `server/host`: what a host tells of itself, and the board that everybody who asks looks at. Pure but for
//! the clock.

use super::edges::{Mode, Step};
use super::journal::wire_mode;
use std::time::Duration;
use tenon_env::sync::watch;
use tenon_env::{Env, Instant};
use tenon_proto::host as pb;
use tenon_proto::ids::{ClusterId, MemberId};

/// A switch under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The mode to come.
    pub to: Mode,
    /// The step under way.
    pub step: Step,
    /// Its number from 1, and how many there are.
    pub number: (usize, usize),
    /// When the switch began.
    pub began: Instant,
    /// How long it should take in all, once that is known.
    pub expected: Option<Duration>,
    /// Catch-up: entries applied here, and committed in the cluster.
    pub entries: (u64, u64),
}

/// What a host is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// How it answers now.
    pub mode: Mode,
    /// The switch under way, if one is.
    pub progress: Option<Progress>,
    /// Its cluster; 0 until known.
    pub cluster: ClusterId,
    /// Its member, in server mode.
    pub member: Option<MemberId>,
    /// Client URLs of the members that it asks in client mode.
    pub endpoints: Vec<String>,
    /// Its own client URLs.
    pub client_urls: Vec<String>,
    /// What the newest look at the cluster warned of.
    pub warnings: Vec<String>,
    /// Why the newest switch failed.
    pub error: Option<String>,
    /// What happened last, in words.
    pub note: String,
    /// Learner of an earlier attempt that still has to be removed.
    pub leftover: Option<MemberId>,
    /// Voters that automatic membership aims at; 0 when it is off.
    pub voters_target: u32,
    /// What automatic membership does about this host, in words.
    pub automatic: String,
}

impl HostStatus {
    /// As clients are told. `leader` is asked of whoever knows.
    pub fn wire(&self, now: Instant, leader: Option<MemberId>) -> pb::StatusResponse {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let progress = self.progress.as_ref();
        pb::StatusResponse {
            mode: wire_mode(Some(self.mode)).into(),
            switching_to: wire_mode(progress.map(|p| p.to)).into(),
            step: progress.map_or_else(String::new, |p| p.step.name().to_owned()),
            step_number: progress.map_or(0, |p| count(p.number.0)),
            steps: progress.map_or(0, |p| count(p.number.1)),
            elapsed_ms: progress.map_or(0, |p| ms(now - p.began)),
            expected_ms: progress.and_then(|p| p.expected).map_or(0, ms),
            entries: progress.map_or(0, |p| p.entries.0),
            entries_total: progress.map_or(0, |p| p.entries.1),
            cluster_id: self.cluster.get(),
            member_id: self.member.map_or(0, MemberId::get),
            leader: leader.map_or(0, MemberId::get),
            endpoints: self.endpoints.clone(),
            client_urls: self.client_urls.clone(),
            warnings: self.warnings.clone(),
            error: self.error.clone().unwrap_or_default(),
            note: self.note.clone(),
            leftover_member: self.leftover.map_or(0, MemberId::get),
            name: self.name.clone(),
            voters_target: self.voters_target,
            automatic: self.automatic.clone(),
        }
    }
}

/// Where a host posts its status. Clones are the same board.
#[derive(Clone)]
pub(super) struct Board {
    env: Env,
    status: std::sync::Arc<watch::Sender<HostStatus>>,
}

impl Board {
    pub(super) fn new(env: &Env, status: HostStatus) -> Board {
        Board {
            env: env.clone(),
            status: std::sync::Arc::new(watch::Sender::new(status)),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<HostStatus> {
        self.status.subscribe()
    }

    pub(super) fn now(&self) -> HostStatus {
        self.status.borrow().clone()
    }

    pub(super) fn edit(&self, edit: impl FnOnce(&mut HostStatus)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            edit(status);
            *status != before
        });
    }

    /// A step of a switch begins.
    pub(super) fn begin(&self, to: Mode, step: Step, number: (usize, usize)) {
        let now = self.env.now();
        self.edit(|status| {
            let began = status.progress.as_ref().map_or(now, |p| p.began);
            status.progress = Some(Progress {
                to,
                step,
                number,
                began,
                expected: None,
                entries: (0, 0),
            });
        });
        tracing::info!(%to, step = step.name(), "switching: {}", step.does());
    }

    /// How far the catch-up is; from its pace follows how long the switch will take.
    pub(super) fn caught_up(&self, applied: u64, committed: u64) {
        let now = self.env.now();
        self.edit(|status| {
            let Some(progress) = &mut status.progress else {
                return;
            };
            progress.entries = (applied, committed);
            if applied > 0 && committed >= applied {
                let passed = (now - progress.began).as_secs_f64();
                let whole = passed * committed as f64 / applied as f64;
                // Steps of 100 ms, so that watchers are not woken for nothing.
                let tenths = (whole * 10.0).ceil().min(1e9) as u64;
                progress.expected = Some(Duration::from_millis(tenths * 100));
            }
        });
    }
}
