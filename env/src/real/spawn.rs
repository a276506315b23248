//! Room `env`: tasks on tokio, and lanes: one OS thread each, started at the first step asked of it and
//! ended once its node's last `Env` is dropped. A thread of our own rather than tokio's blocking pool,
//! because a lane keeps the order of its steps.

use crate::{BoxFuture, Lane, Spawn, Task};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

type Step = Box<dyn FnOnce() + Send>;

/// Starts a node's tasks and lanes.
pub(super) struct RealSpawn {
    runtime: Handle,
    lanes: Mutex<BTreeMap<Lane, mpsc::Sender<Step>>>,
}

impl RealSpawn {
    pub(super) fn new(runtime: Handle) -> RealSpawn {
        RealSpawn {
            runtime,
            lanes: Mutex::new(BTreeMap::new()),
        }
    }
}

fn start_lane(lane: Lane) -> std::io::Result<mpsc::Sender<Step>> {
    let (tx, rx) = mpsc::channel::<Step>();
    let name = match lane {
        Lane::Wal => "lane-wal",
        Lane::Engine => "lane-engine",
        Lane::Compaction => "lane-compaction",
        Lane::Snapshot => "lane-snapshot",
        Lane::Read => "lane-read",
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            while let Ok(step) = rx.recv() {
                // A step that panics is a bug that the panic hook has reported; its caller learns `Gone`.
                // The lane lives on so that the member can still stop in order.
                let _ = catch_unwind(AssertUnwindSafe(step));
            }
        })?;
    Ok(tx)
}

impl Spawn for RealSpawn {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let running = self.runtime.spawn(future);
        let abort = running.abort_handle();
        let done = async move {
            let _ = running.await;
        };
        Task::new(Box::new(move || abort.abort()), Box::pin(done))
    }

    fn blocking(&self, lane: Lane, job: Step) -> BoxFuture<'static, ()> {
        let (tx, rx) = oneshot::channel();
        let step: Step = Box::new(move || {
            job();
            let _ = tx.send(());
        });
        let mut lanes = self.lanes.lock();
        let sender = match lanes.get(&lane) {
            Some(sender) => sender,
            None => match start_lane(lane) {
                Ok(sender) => lanes.entry(lane).or_insert(sender),
                // No thread: the step is dropped unrun, which its caller sees as `Gone`.
                Err(_) => return Box::pin(std::future::ready(())),
            },
        };
        let _ = sender.send(step);
        Box::pin(async move {
            let _ = rx.await;
        })
    }
}
