//! Room `sim`: a node's disk. What was written is seen at once; what survives a crash is decided at the crash:
//! each operation that no sync covered is kept, dropped or torn, by [`CrashMode`] and seed.
//!
//! - Mutating operations are numbered from 1 over the disk's whole life, across restarts; reads are not.
//!   [`DiskControl::crash_at`] kills the node *during* operation n: its effect is pending, its caller gets an
//!   error, and so does every later call of that life.
//! - A disk outlives its node's lives; locks, open files and armed crashes do not.
//! - Files grow by pages; the capacity counts pages in use and reserved.
//!
//! What spoils durable bytes (bit rot, a misdirected write, a lying sync) counts as damage; an [`Atlas`] bounds it
//! to fewer members than a quorum needs. It does not reorder what a sync has covered.

mod atlas;
mod content;
mod control;
mod faults;
mod file;
#[cfg(test)]
mod tests;
mod tree;

use crate::NodeId;
use crate::chronicle::What;
use crate::executor::{Life, World};
use crate::rng::SimRng;
use crate::trace::{Kind, hash_bytes};
use faults::Faults;
use file::SimFile;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::{DirEntry, Disk, File, FileLock, OpenMode};
use tree::Tree;

pub use atlas::Atlas;
pub use control::DiskControl;
pub use faults::{DiskError, Op};

/// What a crash does to operations that no sync has covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashMode {
    /// The process was killed, the machine ran on: all is there, and what no sync has covered is still at the
    /// mercy of a later power cut.
    Kept,
    /// None survives: a power cut before anything was written back.
    Lost,
    /// Each survives, vanishes or survives in part, by seed: a power cut.
    Torn,
}

/// A node's disk, shared by its lives.
pub(crate) struct SimDisk {
    world: Arc<World>,
    node: NodeId,
    state: Mutex<State>,
}

struct State {
    tree: Tree,
    faults: Faults,
    rng: SimRng,
    /// Mutating operations so far.
    ops: u64,
    counts: BTreeMap<Op, u64>,
    locks: BTreeMap<PathBuf, u64>,
    next_lock: u64,
    /// Nanoseconds that the operations since [`SimDisk::start_step`] took.
    step_cost: u64,
    /// Faults so far that spoiled durable bytes.
    damaged: u64,
}

/// What a process is told whose power went.
pub(crate) const DEAD: &str = "the node is dead (simulated crash)";

fn dead() -> io::Error {
    io::Error::other(DEAD)
}

impl SimDisk {
    pub(crate) fn new(world: Arc<World>, node: NodeId) -> SimDisk {
        let state = State {
            tree: Tree::new(),
            faults: Faults::default(),
            rng: SimRng::fork(world.seed, "disk", node.0),
            ops: 0,
            counts: BTreeMap::new(),
            locks: BTreeMap::new(),
            next_lock: 0,
            step_cost: 0,
            damaged: 0,
        };
        SimDisk {
            world,
            node,
            state: Mutex::new(state),
        }
    }

    /// Notes for people what happens to the disk.
    fn tell(&self, text: String) {
        self.world.tell(What::Disk(self.node, text));
    }

    pub(crate) fn start_step(&self) {
        self.state.lock().step_cost = 0;
    }

    pub(crate) fn end_step(&self) -> u64 {
        1_000 + std::mem::take(&mut self.state.lock().step_cost)
    }

    /// Decides what survives. The node's life must be over.
    pub(crate) fn crash(&self, mode: CrashMode) {
        let mut state = self.state.lock();
        let State {
            tree,
            rng,
            locks,
            faults,
            ..
        } = &mut *state;
        tree.crash(mode, rng);
        locks.clear();
        faults.crash_at = None;
        self.world
            .note(Kind::Crash, &[self.node.0, mode as u64, state.ops]);
    }

    /// A reading operation.
    fn read<T>(
        &self,
        life: Life,
        bytes: u64,
        f: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.world.is_alive(life) {
            return Err(dead());
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.step_cost += state.faults.cost(None, bytes, &mut state.rng);
        if state.rng.chance(state.faults.read_errors_ppm) {
            return Err(DiskError::Io.error());
        }
        f(state)
    }

    /// A mutating operation: counts it, lets it fail or crash as armed, and does `effect` otherwise.
    /// `lost` is what a failure with [`DiskError::Io`] does; a crash during a sync has synced nothing.
    fn mutate<T>(
        &self,
        life: Life,
        op: Op,
        (what, bytes): (u64, u64),
        effect: impl FnOnce(&mut State) -> io::Result<T>,
        lost: impl FnOnce(&mut State),
    ) -> io::Result<T> {
        if !self.world.is_alive(life) {
            return Err(dead());
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.ops += 1;
        *state.counts.entry(op).or_default() += 1;
        self.world.note(
            Kind::Disk,
            &[self.node.0, op as u64, state.ops, what, bytes],
        );
        state.step_cost += state.faults.cost(Some(op), bytes, &mut state.rng);
        if let Some((n, mode)) = state.faults.crash_at
            && n <= state.ops
        {
            if !matches!(op, Op::Sync | Op::SyncDir) {
                let _ = effect(state);
            }
            drop(guard);
            self.tell(format!("crash in {op:?}, operation {n}"));
            self.world.end_life(life);
            self.world.tell(What::Died(self.node, mode));
            self.crash(mode);
            return Err(dead());
        }
        if let Some(error) = state.faults.of(state.ops, op, &mut state.rng) {
            let is_sync = matches!(op, Op::Sync | Op::SyncDir);
            match error {
                DiskError::Io if is_sync => self.tell("lost pages at a failed sync".to_owned()),
                DiskError::Io => self.tell(format!("EIO at {op:?}")),
                DiskError::Full => self.tell(format!("full at {op:?}")),
            }
            if error == DiskError::Io {
                lost(state);
            }
            return Err(error.error());
        }
        effect(state)
    }
}

impl State {
    /// Refuses to occupy `pages` more when the disk has no room for them.
    fn room(&self, pages: u64) -> io::Result<()> {
        let Some(capacity) = self.faults.capacity_pages else {
            return Ok(());
        };
        let used: u64 = self.tree.files().map(content::Content::pages).sum();
        if pages > 0 && used + pages > capacity {
            return Err(DiskError::Full.error());
        }
        Ok(())
    }
}

fn hash_path(path: &Path) -> u64 {
    hash_bytes(path.as_os_str().as_encoded_bytes())
}

/// The disk as one life of its node sees it.
pub(crate) struct LifeDisk {
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) life: Life,
}

impl LifeDisk {
    fn names(
        &self,
        op: Op,
        path: &Path,
        effect: impl FnOnce(&mut Tree) -> io::Result<()>,
    ) -> io::Result<()> {
        let what = (hash_path(path), 0);
        self.disk
            .mutate(self.life, op, what, |state| effect(&mut state.tree), |_| {})
    }
}

impl Disk for LifeDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let found = self
            .disk
            .read(self.life, 0, |state| state.tree.find(path))?;
        let exists = || io::Error::new(ErrorKind::AlreadyExists, format!("{}", path.display()));
        let ino = match (found, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(exists()),
            (Some(ino), _) => self.disk.read(self.life, 0, |state| {
                if state.tree.is_dir(ino) {
                    return Err(io::Error::from(ErrorKind::IsADirectory));
                }
                state.tree.opened(ino);
                Ok(ino)
            })?,
            (None, OpenMode::Read | OpenMode::ReadWrite) => {
                let text = format!("{} does not exist", path.display());
                return Err(io::Error::new(ErrorKind::NotFound, text));
            }
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let create = |state: &mut State| {
                    state.room(1)?;
                    let ino = state.tree.create_file(path)?;
                    state.tree.opened(ino);
                    Ok(ino)
                };
                self.disk
                    .mutate(self.life, Op::Create, (hash_path(path), 0), create, |_| {})?
            }
        };
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile {
            disk: self.disk.clone(),
            life: self.life,
            ino,
            writable,
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let found = self
            .disk
            .read(self.life, 0, |state| state.tree.find(path))?;
        if found.is_some() {
            return self.disk.read(self.life, 0, |state| {
                state.tree.create_dirs(path).map(|_| ())
            });
        }
        self.names(Op::Folders, path, |tree| tree.create_dirs(path).map(|_| ()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.names(Op::Rename, to, |tree| tree.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.names(Op::Remove, path, |tree| tree.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.names(Op::Remove, path, |tree| tree.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.names(Op::SyncDir, path, |tree| tree.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = self
            .disk
            .read(self.life, 0, |state| state.tree.list(path))?;
        let entry = |(name, is_dir, len)| DirEntry { name, is_dir, len };
        Ok(entries.into_iter().map(entry).collect())
    }

    fn stat(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        let name = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        self.disk.read(self.life, 0, |state| {
            let found = state
                .tree
                .find(path)?
                .map(|ino| state.tree.describe(&name, ino));
            Ok(found.map(|(name, is_dir, len)| DirEntry { name, is_dir, len }))
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        drop(self.open(path, OpenMode::Create)?);
        let token = self.disk.read(self.life, 0, |state| {
            if state.locks.contains_key(path) {
                let text = format!("{} is locked by another process", path.display());
                return Err(io::Error::new(ErrorKind::WouldBlock, text));
            }
            state.next_lock += 1;
            state.locks.insert(path.to_owned(), state.next_lock);
            Ok(state.next_lock)
        })?;
        Ok(Box::new(Held {
            disk: self.disk.clone(),
            path: path.to_owned(),
            token,
        }))
    }
}

struct Held {
    disk: Arc<SimDisk>,
    path: PathBuf,
    token: u64,
}

impl FileLock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.locks.get(&self.path) == Some(&self.token) {
            state.locks.remove(&self.path);
        }
    }
}
