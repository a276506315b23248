//! Room storage, engines: redb's storage backend over `env`'s disk. It may hold writes back in memory;
//! it decides nothing about content.
//!
//! redb gives up for good after one failed write, reads included. A full disk must not end reads, and
//! a write that failed before any sync has lost nothing. So after the first refused write this backend
//! *holds back*: that write and everything after it, lengths and syncs included, queue up in memory in
//! their order, reads see them, and the file stays as the last complete commit left it. [`settle`]
//! plays the queue against the file, sync by sync, once the disk takes writes again. A crash meanwhile
//! finds the last complete commit.
//!
//! - Nothing reaches the file out of order: redb's two-phase commit keeps its meaning.
//! - A failed sync is never held back and never retried: the pages may be gone.
//! - The queue is bounded by one commit, because the engine commits nothing more before it settled.
//!
//! [`settle`]: DiskBackend::settle

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tenon_env::File;

#[derive(Debug)]
enum Held {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
    Sync,
}

#[derive(Debug, Default)]
struct Queue {
    held: VecDeque<Held>,
    cause: Option<(io::ErrorKind, String)>,
}

#[derive(Debug)]
struct Inner {
    file: Arc<dyn File>,
    /// Length as redb knows it; the file's own is behind while writes are held back.
    len: AtomicU64,
    holding: AtomicBool,
    queue: Mutex<Queue>,
}

/// redb's file. Clones name the same file.
#[derive(Clone, Debug)]
pub struct DiskBackend(Arc<Inner>);

impl DiskBackend {
    /// A backend over an open file.
    pub fn new(file: Arc<dyn File>) -> io::Result<DiskBackend> {
        let len = AtomicU64::new(file.len()?);
        let (holding, queue) = (AtomicBool::new(false), Mutex::default());
        Ok(DiskBackend(Arc::new(Inner {
            file,
            len,
            holding,
            queue,
        })))
    }

    /// The error that made this backend hold writes back, while it does.
    pub fn held_back(&self) -> Option<io::Error> {
        if !self.0.holding.load(Ordering::Acquire) {
            return None;
        }
        let queue = self.0.queue.lock();
        queue
            .cause
            .as_ref()
            .map(|(kind, text)| io::Error::new(*kind, text.clone()))
    }

    /// Length of the file as redb knows it, bytes.
    pub fn length(&self) -> u64 {
        self.0.len.load(Ordering::Acquire)
    }

    /// Plays what was held back against the file. `Ok(Err(_))`: the disk still refuses writes, try
    /// again later. `Err(_)`: a sync failed, which is final.
    pub fn settle(&self) -> io::Result<Result<(), io::Error>> {
        let mut queue = self.0.queue.lock();
        while let Some(held) = queue.held.front() {
            let done = match held {
                Held::Write { offset, data } => self.0.file.write_all_at(data, *offset),
                Held::SetLen(len) => self.0.file.set_len(*len),
                Held::Sync => {
                    self.0.file.sync()?;
                    Ok(())
                }
            };
            if let Err(refused) = done {
                queue.cause = Some((refused.kind(), refused.to_string()));
                return Ok(Err(refused));
            }
            queue.held.pop_front();
        }
        queue.cause = None;
        self.0.holding.store(false, Ordering::Release);
        Ok(Ok(()))
    }

    /// Queues `held` when writes are held back, or from now on when `refused` says why.
    fn hold(&self, held: Held, refused: Option<io::Error>) {
        let mut queue = self.0.queue.lock();
        if let Some(cause) = refused {
            tracing::error!(error = %cause, "the disk refuses writes of the storage engine; \
                reads go on, writes wait in memory");
            queue.cause = Some((cause.kind(), cause.to_string()));
            self.0.holding.store(true, Ordering::Release);
        }
        queue.held.push_back(held);
    }

    fn holding(&self) -> bool {
        self.0.holding.load(Ordering::Acquire)
    }

    /// A read that has to see what is held back.
    fn read_through(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let queue = self.0.queue.lock();
        let on_file = self.0.file.len()?.saturating_sub(offset);
        let on_file = usize::try_from(on_file)
            .unwrap_or(usize::MAX)
            .min(out.len());
        self.0.file.read_exact_at(&mut out[..on_file], offset)?;
        out[on_file..].fill(0);
        for held in &queue.held {
            match held {
                Held::Write { offset: at, data } => overlay(offset, out, *at, data),
                Held::SetLen(len) => {
                    let kept = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
                    if let Some(beyond) = out.get_mut(kept..) {
                        beyond.fill(0);
                    }
                }
                Held::Sync => {}
            }
        }
        Ok(())
    }
}

/// Copies the part of `data`, standing at `at`, that falls into `out`, standing at `offset`.
fn overlay(offset: u64, out: &mut [u8], at: u64, data: &[u8]) {
    let start = offset.max(at);
    let end = (offset + out.len() as u64).min(at + data.len() as u64);
    if start >= end {
        return;
    }
    let len = (end - start) as usize;
    let (to, from) = ((start - offset) as usize, (start - at) as usize);
    out[to..to + len].copy_from_slice(&data[from..from + len]);
}

impl redb::StorageBackend for DiskBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.holding() {
            return self.read_through(offset, out);
        }
        self.0.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.holding() {
            self.hold(Held::SetLen(len), None);
        } else if let Err(refused) = self.0.file.set_len(len) {
            self.hold(Held::SetLen(len), Some(refused));
        }
        self.0.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.holding() {
            self.hold(Held::Sync, None);
            return Ok(());
        }
        self.0.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.holding() {
            self.hold(
                Held::Write {
                    offset,
                    data: data.to_vec(),
                },
                None,
            );
        } else if let Err(refused) = self.0.file.write_all_at(data, offset) {
            self.hold(
                Held::Write {
                    offset,
                    data: data.to_vec(),
                },
                Some(refused),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
