//! Room `storage`, WAL: the task that carries batches to the WAL lane and answers. While one batch is being
//! synced the next gathers in [`Core`](super::core::Core); that is the whole of group commit.
//!
//! A full disk makes it wait and try again, since nothing was lost; any other error, and every failed sync, is
//! final.

use super::core::{Batch, Op, Taken};
use super::map::Run;
use super::scribe::Scribe;
use super::segment::{Depot, Fault, Prepared};
use super::{Shared, Space, WalError};
use std::sync::Arc;
use std::time::Duration;
use tenon_env::{Env, Lane};

/// How long to wait for room on a full disk before the next try.
const NO_SPACE_PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Writer {
    shared: Arc<Shared>,
    env: Env,
    depot: Arc<Depot>,
    /// Whether a task is preparing the next segment, or has.
    prepared: bool,
}

/// Says that the writer is gone, however it went.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.core.lock().close();
        self.0.ended.send_replace(true);
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, env: Env, depot: Arc<Depot>) -> Writer {
        Writer {
            shared,
            env,
            depot,
            prepared: false,
        }
    }

    /// Writes until the log is closed or fails.
    pub(super) async fn run(mut self, mut scribe: Scribe) {
        let _ended = Ended(self.shared.clone());
        let mut batch = Batch::default();
        loop {
            let taken = self.shared.core.lock().take(&mut batch.ops);
            match taken {
                Taken::Work => {}
                Taken::Nothing => {
                    self.shared.wake.notified().await;
                    continue;
                }
                Taken::End => return,
            }
            (scribe, batch) = match self.write(scribe, batch).await {
                Some(back) => back,
                None => return,
            };
        }
    }

    /// Brings one batch to disk and answers. `None` when that was the last.
    async fn write(&mut self, mut scribe: Scribe, mut batch: Batch) -> Option<(Scribe, Batch)> {
        let mut stalled = false;
        loop {
            let step = move || {
                let result = scribe.run(&mut batch);
                (scribe, batch, result)
            };
            let Ok(back) = self.env.blocking(Lane::Wal, step).await else {
                self.shared.fail(WalError::Closed, Vec::new());
                return None;
            };
            let result;
            (scribe, batch, result) = back;
            self.settle(&mut batch);
            match result {
                Ok(()) => {
                    if stalled {
                        tracing::info!("the write-ahead log found room on the disk and goes on");
                        self.shared.set_space(Space::Low);
                    }
                    return Some((scribe, batch));
                }
                Err(Fault::Fatal(text)) => {
                    self.shared.fail_fatally(text, batch.ops);
                    return None;
                }
                Err(Fault::NoSpace(text)) => {
                    if !self.wait_for_space(&text, &mut stalled).await {
                        self.shared.fail(WalError::Closed, batch.ops);
                        return None;
                    }
                }
            }
        }
    }

    /// Takes in what the lane has settled, then answers in order.
    fn settle(&mut self, batch: &mut Batch) {
        if !batch.rolls.is_empty() {
            self.prepared = false;
        }
        let removed = self.shared.core.lock().settle(batch);
        let settled = std::mem::take(&mut batch.settled);
        let mut entries = 0;
        for op in batch.ops.drain(..settled) {
            match op {
                Op::Done(done) => done(Ok(())),
                Op::Entry(_) => entries += 1,
                _ => {}
            }
        }
        self.shared.metrics.on_entries(entries);
        if !removed.is_empty() {
            self.retire(removed);
        }
        if batch.nearly_full && !self.prepared {
            self.prepared = true;
            self.prepare();
        }
    }

    /// Pauses until the next try on a full disk. `false` when the log is being closed.
    async fn wait_for_space(&self, text: &str, stalled: &mut bool) -> bool {
        if !*stalled {
            *stalled = true;
            self.shared.metrics.on_stall();
            self.shared.set_space(Space::Out);
            tracing::error!(
                "the disk is full: {text}; nothing was lost, writes wait for room, reads go on"
            );
        }
        if self.shared.core.lock().is_closing() {
            return false;
        }
        self.env.sleep(NO_SPACE_PAUSE).await;
        true
    }

    /// Removes segments that count as removed already; what fails here is removed at the next start.
    fn retire(&self, removed: Vec<Run>) {
        let (env, depot, shared) = (self.env.clone(), self.depot.clone(), self.shared.clone());
        let task = async move {
            let step = move || {
                for run in removed {
                    let (seq, file) = (run.seq, run.file);
                    depot.retire(seq, file)?;
                }
                Ok(())
            };
            match env.blocking(Lane::Read, step).await {
                Ok(Err(Fault::Fatal(text))) => shared.fail_fatally(text, Vec::new()),
                Ok(Err(Fault::NoSpace(text))) => tracing::warn!("the disk is full: {text}"),
                Ok(Ok(())) | Err(_) => {}
            }
        };
        self.env.spawn("wal-retire", task);
    }

    /// Makes the next segment ahead of need.
    fn prepare(&self) {
        let (env, depot, shared) = (self.env.clone(), self.depot.clone(), self.shared.clone());
        let task = async move {
            let mut told = false;
            while !shared.core.lock().is_closing() {
                let depot = depot.clone();
                match env.blocking(Lane::Read, move || depot.prepare()).await {
                    Ok(Ok(Prepared::Full)) => return shared.set_space(Space::Enough),
                    Ok(Ok(Prepared::Small)) => return shared.set_space(Space::Low),
                    Ok(Ok(Prepared::TooEarly)) | Err(_) => return,
                    Ok(Err(Fault::Fatal(text))) => return shared.fail_fatally(text, Vec::new()),
                    Ok(Err(Fault::NoSpace(text))) if !told => {
                        told = true;
                        shared.set_space(Space::Low);
                        tracing::warn!(
                            "the disk is nearly full, no room for the next log segment: {text}"
                        );
                    }
                    Ok(Err(Fault::NoSpace(_))) => {}
                }
                env.sleep(NO_SPACE_PAUSE).await;
            }
        };
        self.env.spawn("wal-prepare", task);
    }
}
