//! Room `sim`, L1: clients: each makes its calls one after another, whatever the member's lives.

use super::host::Host;
use crate::history::{History, Outcome};
use crate::workload::requests::{Draw, carry_out_at};
use crate::workload::seen::Seen;
use std::time::Duration;
use tenon_env::Env;

/// How long a client waits for one answer before it counts the outcome as unknown.
const PATIENCE: Duration = Duration::from_secs(10);

/// One client's work.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) env: Env,
    pub(super) host: Host,
    pub(super) history: History,
    pub(super) seen: Seen,
    pub(super) draw: Draw,
    pub(super) calls: u64,
    pub(super) think: Duration,
}

impl Client {
    pub(super) async fn work(mut self) {
        for _ in 0..self.calls {
            let pause = self.draw.rng.below(self.think.as_nanos() as u64 + 1);
            self.env.sleep(Duration::from_nanos(pause)).await;
            if self.host.running().await.is_none() {
                return;
            }
            self.call().await;
        }
    }

    async fn call(&mut self) {
        let sim = self.host.sim.clone();
        let now = || sim.now().as_nanos() as u64;
        let (seen, compaction) = (self.history.seen(), self.history.compaction());
        let watched = self.seen.last();
        let draw = &mut self.draw;
        let (id, request) = self.history.begin(self.number, now(), |id| {
            draw.request(id, seen, compaction, watched)
        });
        // The way to the member.
        self.env
            .sleep(Duration::from_nanos(self.draw.rng.below(300_000)))
            .await;
        let call = self.host.call(|services| carry_out_at(services, request));
        let answer = self.env.timeout(PATIENCE, call).await;
        let outcome = answer.flatten().map_or(Outcome::Unknown, Outcome::of);
        self.history.end(id, now(), outcome);
    }
}
