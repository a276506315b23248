//! Room `sim`, cluster: a storm: one drawn fault after another, never more at a time than the cluster can bear.

use super::Cluster;
use crate::NodeId;
use crate::disk::CrashMode;
use crate::rng::SimRng;
use crate::world::State;
use std::time::Duration;

/// A kind of fault that a storm draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A member is killed, its disk keeps what it may, and it starts again later.
    Crash,
    /// A member stands still.
    Pause,
    /// A member is cut off from the others.
    Isolate,
    /// What one member sends to another arrives late.
    Clog,
    /// A client stands still.
    PauseClient,
    /// A client cannot reach a member.
    CutClient,
}

/// What a storm may do.
#[derive(Clone, Debug)]
pub struct Storm {
    /// How long it lasts.
    pub lasts: Duration,
    /// Longest calm between two faults.
    pub calm: Duration,
    /// Longest fault.
    pub fault: Duration,
    /// What is drawn from; a kind that stands twice comes twice as often.
    pub faults: Vec<Fault>,
    /// Clients that may be hit; without any, their faults are left out.
    pub clients: Vec<NodeId>,
}

impl Default for Storm {
    /// Thirty seconds of all faults, of up to eight seconds each.
    fn default() -> Storm {
        Storm {
            lasts: Duration::from_secs(30),
            calm: Duration::from_secs(2),
            fault: Duration::from_secs(8),
            faults: vec![
                Fault::Crash,
                Fault::Pause,
                Fault::Isolate,
                Fault::Clog,
                Fault::PauseClient,
                Fault::CutClient,
            ],
            clients: Vec::new(),
        }
    }
}

fn span(rng: &mut SimRng, most: Duration) -> Duration {
    Duration::from_nanos(rng.between(1_000_000, (most.as_nanos() as u64).max(1_000_001)))
}

impl Cluster {
    /// Draws faults from the seed for a while, one at a time. Afterwards everything is whole and every member serves.
    ///
    /// # Panics
    /// When there is no fault to draw.
    pub async fn storm(&self, storm: Storm) {
        let mut rng = SimRng::fork(self.seed(), "storm", self.now().as_nanos() as u64);
        let end = self.now() + storm.lasts;
        let hits_client = |fault: &Fault| matches!(fault, Fault::PauseClient | Fault::CutClient);
        let mut faults = storm.faults.clone();
        faults.retain(|fault| !storm.clients.is_empty() || !hits_client(fault));
        assert!(!faults.is_empty(), "a storm without a fault to draw");
        while self.now() < end {
            self.sleep(span(&mut rng, storm.calm)).await;
            let member = *rng.pick(&self.members());
            let lasts = span(&mut rng, storm.fault);
            match rng.pick(&faults) {
                Fault::Crash => self.crash_for(member, &mut rng, lasts).await,
                Fault::Pause => self.pause_for(member, lasts).await,
                Fault::Isolate => {
                    self.isolate(member);
                    self.sleep(lasts).await;
                    self.mend_members();
                }
                Fault::Clog => {
                    let other = *rng.pick(&self.members());
                    self.control().clog(member, other, lasts);
                }
                Fault::PauseClient => self.pause_for(*rng.pick(&storm.clients), lasts).await,
                Fault::CutClient => {
                    let client = *rng.pick(&storm.clients);
                    self.control().cut(client, member);
                    self.sleep(lasts).await;
                    self.control().mend(client, member);
                }
            }
        }
        self.heal();
        for member in self.members() {
            self.restart(member);
            self.world().until_serving(member).await;
        }
    }

    async fn crash_for(&self, member: NodeId, rng: &mut SimRng, lasts: Duration) {
        let mode = *rng.pick(&[CrashMode::Kept, CrashMode::Lost, CrashMode::Torn]);
        self.crash(member, mode);
        self.sleep(lasts).await;
        self.restart(member);
        // The next fault would otherwise find two members away.
        while self.world().state(member) != State::Serving {
            self.sleep(Duration::from_millis(10)).await;
        }
    }

    async fn pause_for(&self, node: NodeId, lasts: Duration) {
        self.pause(node);
        self.sleep(lasts).await;
        self.resume(node);
    }

    fn mend_members(&self) {
        let members = self.members();
        self.partition(&[&members]);
    }
}
