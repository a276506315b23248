//! Room `sim`, L1: the troubles of one life that do not end it: a pause, a jump of the clocks, a full disk.
//! Each is a task of the clients' node and stops when the life is over. While the disk is full reads must be
//! answered; once there is room again writes must be.

use super::host::{Host, MEMBER};
use super::plan::LifePlan;
use crate::check::Finding;
use crate::history::{History, Outcome, Request, tag};
use crate::sim::Control;
use crate::workload::requests::carry_out_at;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::Env;
use tenon_proto::etcdserverpb as pb;

/// How long a probe waits for its answer: longer than any pause and any disk.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often each happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) pauses: u64,
    pub(super) jumps: u64,
    pub(super) full: u64,
}

/// What the tasks need.
#[derive(Clone)]
pub(super) struct Troubles {
    pub(super) sim: Control,
    pub(super) clients: Env,
    pub(super) host: Host,
    pub(super) history: History,
    pub(super) finding: Arc<Mutex<Option<Finding>>>,
    pub(super) counts: Arc<Mutex<Counts>>,
    pub(super) life: u64,
}

impl Troubles {
    /// Starts the troubles of a life.
    pub(super) fn begin(&self, plan: &LifePlan) {
        if let Some((after, how_long)) = plan.pause {
            let me = self.clone();
            self.clients.spawn("pause", me.pause(after, how_long));
        }
        if let Some((after, forward)) = plan.jump {
            let me = self.clone();
            self.clients.spawn("jump", me.jump(after, forward));
        }
        if let Some((after, how_long)) = plan.full {
            let me = self.clone();
            self.clients.spawn("full", me.full(after, how_long));
        }
    }

    fn lasts(&self) -> bool {
        self.sim.is_alive(MEMBER) && self.host.life() == Some(self.life)
    }

    async fn pause(self, after: Duration, how_long: Duration) {
        self.sim.sleep(after).await;
        if self.lasts() {
            self.counts.lock().pauses += 1;
            self.sim.pause(MEMBER);
            self.sim.sleep(how_long).await;
            self.sim.resume(MEMBER);
        }
    }

    async fn jump(self, after: Duration, forward: Duration) {
        self.sim.sleep(after).await;
        if self.lasts() {
            self.counts.lock().jumps += 1;
            self.sim.jump(MEMBER, forward);
            let ms = forward.as_millis() as i64;
            self.sim.jump_wall(MEMBER, ms * 1_000 - 7_000_000);
        }
    }

    async fn full(mut self, after: Duration, how_long: Duration) {
        self.sim.sleep(after).await;
        if !self.lasts() {
            return;
        }
        self.counts.lock().full += 1;
        let disk = self.sim.disk(MEMBER);
        disk.capacity(Some(disk.used()));
        self.sim.sleep(how_long / 2).await;
        self.probe("a read while the disk was full", read).await;
        self.sim.sleep(how_long / 2).await;
        if self.lasts() {
            disk.capacity(None);
            self.probe("a write after the disk was full", write).await;
        }
    }

    /// Makes a call that must be answered within its time, unless the life is over by then.
    async fn probe(&mut self, what: &str, request: fn(crate::history::CallId) -> Request) {
        let now = || self.sim.now().as_nanos() as u64;
        let (id, request) = self.history.begin(0, now(), request);
        let mut host = self.host.clone();
        let call = host.call(|services| carry_out_at(services, request));
        let answer = self.clients.timeout(PATIENCE, call).await.flatten();
        let outcome = answer.map_or(Outcome::Unknown, Outcome::of);
        if matches!(outcome, Outcome::Unknown) && self.lasts() {
            let found = Finding(format!("{what} was not answered in {PATIENCE:?}"));
            self.finding.lock().get_or_insert(found);
        }
        self.history.end(id, now(), outcome);
    }
}

fn read(_: crate::history::CallId) -> Request {
    let all = Bytes::from_static(b"\0");
    Request::Range(pb::RangeRequest {
        key: all.clone(),
        range_end: all,
        ..Default::default()
    })
}

fn write(id: crate::history::CallId) -> Request {
    let (key, value) = (Bytes::from_static(b"k00"), Bytes::from(tag(id)));
    Request::Put(pb::PutRequest {
        key,
        value,
        ..Default::default()
    })
}
