//! Room `sim`, test of room `raft`: three members under kills, torn disks, cuts and pauses. Every writer owns a
//! register and writes rising numbers through random members; what was acknowledged is never lost, and a
//! linearizable read never shows less than was acknowledged before it began.

use crate::world::World;
use std::cell::RefCell;
use std::time::Duration;
use tenon_proto::ids::LogIndex;
use tenon_raft::{ProposeError, Reason};

const THREE: [u64; 3] = [1, 2, 3];
const WRITERS: usize = 4;
const ROUNDS: u64 = 10;

/// What one writer knows of its register.
#[derive(Clone, Default)]
struct Ledger {
    /// Counts registers: a write of unknown fate ends one.
    epoch: u64,
    tried: u64,
    acknowledged: u64,
    reads: u64,
    writes: u64,
}

impl Ledger {
    fn key(&self, writer: usize) -> String {
        format!("register{writer}.{}", self.epoch)
    }

    fn begin_anew(&mut self) {
        self.epoch += 1;
        self.tried = 0;
        self.acknowledged = 0;
    }
}

impl World {
    /// What a member answers, unless it is paused and keeps nobody's deadline.
    async fn patiently<F: Future>(&self, within: Duration, answer: F) -> Option<F::Output> {
        let silence = self.sim.sleep(within + Duration::from_secs(2));
        let (answer, silence) = (std::pin::pin!(answer), std::pin::pin!(silence));
        match futures_util::future::select(answer, silence).await {
            futures_util::future::Either::Left((answer, _)) => Some(answer),
            futures_util::future::Either::Right(_) => None,
        }
    }

    /// One writer, for `simulated` time, over the members that live.
    async fn writer(&self, writer: usize, ledger: &RefCell<Ledger>, simulated: Duration) {
        let mut rng = self
            .sim
            .rng(&format!("writer {writer} at {:?}", self.sim.now()));
        let end = self.sim.now() + simulated;
        while self.sim.now() < end {
            let key = ledger.borrow().key(writer);
            let alive = self.alive();
            let via = self.member(alive[rng.below(alive.len() as u64) as usize]);
            let within = Duration::from_millis(500 + rng.below(1500));
            if rng.below(3) == 0 {
                let floor = ledger.borrow().acknowledged;
                let read = via.raft.read_index(via.env.now() + within);
                if let Some(Ok(_)) = self.patiently(within, read).await {
                    let seen = via
                        .get(&key)
                        .map_or(0, |value| value.parse().expect("a number"));
                    let seed = self.sim.seed();
                    assert!(
                        seen >= floor,
                        "seed {seed}: {key} read as {seen} after {floor}"
                    );
                    assert!(
                        seen <= ledger.borrow().tried,
                        "seed {seed}: {seen} was never written"
                    );
                    ledger.borrow_mut().reads += 1;
                }
            } else {
                ledger.borrow_mut().tried += 1;
                let value = ledger.borrow().tried;
                let text = value.to_string();
                let put = via.put(&key, &text, within);
                let silent = Err(ProposeError::Unknown(Reason::Timeout));
                match self.patiently(within, put).await.unwrap_or(silent) {
                    Ok(_) => {
                        let mut ledger = ledger.borrow_mut();
                        ledger.acknowledged = value;
                        ledger.writes += 1;
                    }
                    // It may still come, after newer ones: from now on another register.
                    Err(ProposeError::Unknown(_)) => ledger.borrow_mut().begin_anew(),
                    Err(ProposeError::NotProposed(_)) => {}
                }
            }
            self.sim.sleep(Duration::from_millis(rng.below(50))).await;
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_dies() {
    for seed in 100..102 {
        let mut world = World::new(seed, 3);
        world.leader(&THREE);
        let ledgers: Vec<_> = (0..WRITERS)
            .map(|_| RefCell::new(Ledger::default()))
            .collect();
        let mut rng = world.sim.rng("nemesis");
        for _ in 0..ROUNDS {
            let victim = 1 + rng.below(3);
            let other = 1 + (victim + rng.below(2)) % 3;
            match rng.below(4) {
                0 => world.kill(victim),
                1 => world.sim.cut(victim, other),
                2 => THREE
                    .iter()
                    .filter(|id| **id != victim)
                    .for_each(|id| world.sim.cut(victim, *id)),
                _ => world.sim.pause(victim),
            }
            let busy = (0..WRITERS).map(|w| world.writer(w, &ledgers[w], Duration::from_secs(4)));
            world.run(futures_util::future::join_all(busy));
            world.sim.resume(victim);
            THREE.iter().for_each(|id| world.sim.mend(victim, *id));
            if !world.sim.is_alive(victim) {
                world.restart(victim);
            }
        }
        world.leader(&THREE);
        let last = world.put(1, "end", "1").expect("a put");
        world.applied(&THREE, LogIndex(last.index));
        world.agree(&THREE);
        for (writer, ledger) in ledgers.iter().enumerate() {
            let ledger = ledger.borrow();
            let value = world.get(2, &ledger.key(writer));
            let value: u64 = value.map_or(0, |v| v.parse().expect("a number"));
            assert!(
                value >= ledger.acknowledged && value <= ledger.tried,
                "seed {seed}"
            );
            assert!(
                ledger.writes > 20 && ledger.reads > 10,
                "seed {seed}: nothing was tested"
            );
        }
    }
}
