//! Room storage, state: checkpoints, for an engine that keeps nothing over a crash. One task; its reading
//! and writing in short steps on the snapshots' lane, so that drains, reads and writes go on.
//!
//! ```text
//! view at the engine's position ──► checkpoint.new (written, synced) ──► rename, sync of the folder ──► E
//! ```
//!
//! - E ([`Inner::durable`]) moves only once the file has its name durably; the log keeps what is above.
//! - The rename happens under the drain's gate and never takes E back: a snapshot that was taken over
//!   meanwhile has brought a newer checkpoint.
//! - A refused write has promised nothing: the file is removed and tried again later, while the log grows.
//!   A failed sync or rename ends the store.

use super::core::Inner;
use super::home;
use crate::archive::{ArchiveFile, Progress, SaveError};
use crate::engine::redb::put_in_place;
use crate::state::SnapshotView;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenon_env::sync::Notify;
use tenon_env::{Lane, sync};
use tenon_proto::ids::LogIndex;

/// Pause before a refused checkpoint is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// The log is never left to grow by more than this before a checkpoint, however large the state.
const DUE_BYTES_MAX: u64 = 512 << 20;

/// When a checkpoint is due: once as much was drained as keeps the cost of writing the whole state again
/// within a constant factor of it.
pub(crate) struct Rhythm {
    at_least: u64,
    counts: Mutex<Counts>,
    due: Notify,
}

#[derive(Default)]
struct Counts {
    drained: u64,
    /// Length of the newest checkpoint.
    length: u64,
}

impl Rhythm {
    /// After a start with a checkpoint of `length` bytes.
    pub(crate) fn new(length: u64, at_least: u64) -> Rhythm {
        let counts = Mutex::new(Counts { drained: 0, length });
        Rhythm {
            at_least,
            counts,
            due: Notify::new(),
        }
    }

    /// Something was drained.
    pub(crate) fn count(&self, bytes: u64) {
        self.counts.lock().drained += bytes;
        if self.is_due() {
            self.due.notify_one();
        }
    }

    fn is_due(&self) -> bool {
        let counts = self.counts.lock();
        let by_size = (counts.length / 2).min(DUE_BYTES_MAX);
        counts.drained > 0 && counts.drained >= self.at_least.max(by_size)
    }

    /// Bytes drained so far; what comes later is not in a checkpoint begun now.
    fn begin(&self) -> u64 {
        self.counts.lock().drained
    }

    /// The state was replaced, and its checkpoint with it.
    pub(crate) fn restart(&self, length: u64) {
        *self.counts.lock() = Counts { drained: 0, length };
    }

    fn done(&self, begun: u64, length: u64) {
        let mut counts = self.counts.lock();
        counts.drained = counts.drained.saturating_sub(begun);
        counts.length = length;
    }
}

/// The task: a checkpoint whenever one is due, until the store stops.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut stopping = inner.stopping.subscribe();
    loop {
        let due = pin!(inner.checkpoint.due.notified());
        if *stopping.borrow_and_update() || inner.is_lost() {
            return;
        }
        if !inner.checkpoint.is_due() {
            select(due, pin!(stopping.changed())).await;
            continue;
        }
        match write(&inner, &mut stopping).await {
            Ok(()) => {}
            Err(SaveError::Refused(path, error)) => {
                tracing::error!(path = %path.display(), %error, "cannot write a checkpoint; \
                    the log grows until that is possible");
                let retry = inner.env.sleep(RETRY);
                if *stopping.borrow_and_update() {
                    return;
                }
                if let Either::Right(_) = select(retry, pin!(stopping.changed())).await {
                    return;
                }
            }
            Err(SaveError::Failed(reason)) => {
                inner.give_up(super::Fatal(reason));
                return;
            }
        }
    }
}

/// One checkpoint. Given up without trace when the store stops meanwhile.
async fn write(
    inner: &Arc<Inner>,
    stopping: &mut sync::watch::Receiver<bool>,
) -> Result<(), SaveError> {
    let begun = inner.checkpoint.begin();
    let Some(view) = SnapshotView::take(inner) else {
        return Ok(());
    };
    let path = home::unfinished_checkpoint(&inner.dir);
    let disk = inner.env.disk.clone();
    let create = move || ArchiveFile::create(&*disk, &path, view);
    let Ok(created) = inner.env.blocking(Lane::Snapshot, create).await else {
        return Ok(());
    };
    let mut file = created?;
    loop {
        if *stopping.borrow_and_update() || inner.is_lost() {
            return Ok(());
        }
        let step = move || {
            let progress = file.step();
            (file, progress)
        };
        let Ok((stepped, progress)) = inner.env.blocking(Lane::Snapshot, step).await else {
            return Ok(());
        };
        file = stepped;
        match progress {
            Ok(Progress::More) => {}
            Ok(Progress::Whole) => break,
            Err(error) => {
                // Room for whoever needs it more; the next start removes it otherwise.
                let path = home::unfinished_checkpoint(&inner.dir);
                let disk = inner.env.disk.clone();
                let remove = move || disk.remove_file(&path);
                let _ = inner.env.blocking(Lane::Snapshot, remove).await;
                return Err(error);
            }
        }
    }
    let keeper = inner.clone();
    let finish = move || finish(&keeper, &file, begun);
    match inner.env.blocking(Lane::Engine, finish).await {
        Ok(finished) => finished,
        Err(_gone) => Ok(()),
    }
}

/// Gives a whole file its name, unless the state has a newer one. Blocking; on the engine's lane.
fn finish(inner: &Inner, file: &ArchiveFile, begun: u64) -> Result<(), SaveError> {
    let _gate = inner.drain_gate.lock();
    let index = file.header().id.index;
    if index <= inner.durable.borrow().get() {
        inner.checkpoint.done(begun, file.bytes());
        return Ok(());
    }
    assert!(
        index <= inner.flushed(),
        "checkpoint {index} would pass the flushed log {}",
        inner.flushed()
    );
    let from = home::unfinished_checkpoint(&inner.dir);
    let to = home::durable_file(&inner.dir, inner.options.engine);
    put_in_place(&*inner.env.disk, &from, &to)?;
    inner.checkpoint.done(begun, file.bytes());
    inner.durable.send_replace(LogIndex(index));
    Ok(())
}

/// A checkpoint now, for tests.
#[cfg(test)]
pub(crate) fn write_now(inner: &Inner) -> Result<(), SaveError> {
    let begun = inner.checkpoint.begin();
    let Some(view) = SnapshotView::take(inner) else {
        return Ok(());
    };
    let path = home::unfinished_checkpoint(&inner.dir);
    let mut file = ArchiveFile::create(&*inner.env.disk, &path, view)?;
    file.write_all()?;
    finish(inner, &file, begun)
}
