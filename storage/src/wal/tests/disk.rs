//! Room `storage`, WAL tests: a disk in memory that keeps apart what is durable and what is not, dies at a
//! chosen step, and comes back with any part of what was not.

use super::world::Dice;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::{DirEntry, Disk, File, FileLock, OpenMode};

const SECTOR: usize = 512;

/// What a crash leaves of writes, lengths and names that no sync had made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    Everything,
    /// Each sector, each name by the dice.
    Pieces,
    /// A beginning of each write, down to the byte.
    Beginnings,
    /// Everything, and it is still not durable: only the process died, if the machine has not.
    Cached,
}

/// A kind of step that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Write,
    Sync,
    Allocate,
    SyncDir,
    Remove,
}

enum Pending {
    Write(u64, Vec<u8>),
    Len(u64),
}

#[derive(Default)]
struct Inode {
    durable: Vec<u8>,
    now: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Default)]
struct State {
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// Counts lives: handles of an earlier one are dead.
    life: u64,
    steps: u64,
    crash_at: Option<u64>,
    dead: bool,
    fail: Option<(StepKind, io::ErrorKind)>,
    capacity: Option<usize>,
    dice: Dice,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct FakeDisk(Arc<Mutex<State>>);

struct Handle {
    state: Arc<Mutex<State>>,
    inode: u64,
    life: u64,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "inode {}", self.inode)
    }
}

fn dead() -> io::Error {
    io::Error::other("the machine is down")
}

impl State {
    /// Counts one step. `Ok(false)`: this is the step at which the machine dies without doing it.
    fn step(&mut self, kind: Option<StepKind>) -> io::Result<bool> {
        if self.dead {
            return Err(dead());
        }
        if let Some((failing, error)) = self.fail
            && Some(failing) == kind
        {
            return Err(error.into());
        }
        self.steps += 1;
        if self.crash_at == Some(self.steps) {
            self.dead = true;
            return Ok(self.dice.coin());
        }
        Ok(true)
    }

    fn after(&self) -> io::Result<()> {
        if self.dead { Err(dead()) } else { Ok(()) }
    }

    fn room(&self, inode: u64, len: usize) -> io::Result<()> {
        let others = self.inodes.iter().filter(|(id, _)| **id != inode);
        let live = |id: &u64| self.names.values().any(|named| named == id);
        let used: usize = others
            .filter(|(id, _)| live(id))
            .map(|(_, i)| i.now.len())
            .sum();
        let grows = len > self.inodes[&inode].now.len();
        match self.capacity {
            Some(capacity) if grows && used + len > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Pending::Len(len) => bytes.resize(*len as usize, 0),
            Pending::Write(at, data) => write(bytes, *at, data),
        }
    }

    /// Applies the part of it that survives.
    fn apply_part(&self, bytes: &mut Vec<u8>, left: Left, dice: &mut Dice) {
        let (at, data) = match (self, left) {
            (_, Left::Nothing) => return,
            (_, Left::Everything | Left::Cached) => return self.apply(bytes),
            (Pending::Len(_), _) => {
                if dice.coin() {
                    self.apply(bytes);
                }
                return;
            }
            (Pending::Write(at, data), _) => (*at, data),
        };
        if left == Left::Beginnings {
            let kept = dice.below(data.len() as u64 + 1) as usize;
            return write(bytes, at, &data[..kept]);
        }
        let all = dice.below(3);
        let mut from = 0;
        while from < data.len() {
            let sector_end = SECTOR - (at as usize + from) % SECTOR;
            let to = data.len().min(from + sector_end);
            if all == 0 || (all == 1 && dice.coin()) {
                write(bytes, at + from as u64, &data[from..to]);
            }
            from = to;
        }
    }
}

fn write(bytes: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at as usize..end].copy_from_slice(data);
}

impl FakeDisk {
    /// Steps that change something, so far in this life.
    pub(crate) fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// The machine dies at step `at` of this life.
    pub(crate) fn crash_at(&self, at: u64) {
        self.0.lock().crash_at = Some(at);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    /// Every step of this kind fails from now on.
    pub(crate) fn fail(&self, fail: Option<(StepKind, io::ErrorKind)>) {
        self.0.lock().fail = fail;
    }

    pub(crate) fn set_capacity(&self, capacity: Option<usize>) {
        self.0.lock().capacity = capacity;
    }

    /// The machine goes down (if it has not) and comes up again.
    pub(crate) fn restart(&self, left: Left, seed: u64) {
        let mut state = self.0.lock();
        let alive = left == Left::Cached && !state.dead;
        state.life += 1;
        (state.steps, state.crash_at, state.dead) = (0, None, false);
        (state.fail, state.capacity) = (None, None);
        if alive {
            return;
        }
        let mut dice = Dice::new(seed);
        let mut names = state.durable_names.clone();
        let all: BTreeSet<_> = names.keys().chain(state.names.keys()).cloned().collect();
        for path in all {
            let keep = match left {
                Left::Nothing => false,
                Left::Everything | Left::Cached => true,
                Left::Pieces | Left::Beginnings => dice.coin(),
            };
            if keep {
                match state.names.get(&path) {
                    Some(inode) => names.insert(path, *inode),
                    None => names.remove(&path),
                };
            }
        }
        for inode in state.inodes.values_mut() {
            for pending in std::mem::take(&mut inode.pending) {
                pending.apply_part(&mut inode.durable, left, &mut dice);
            }
            inode.now = inode.durable.clone();
        }
        state.names = names.clone();
        state.durable_names = names;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let state = self.0.lock();
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        state.names.keys().filter_map(name).collect()
    }

    /// Changes the bytes of a file behind everybody's back.
    pub(crate) fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        let inode = state.names[path];
        let inode = state.inodes.get_mut(&inode).expect("a name has an inode");
        change(&mut inode.now);
        inode.durable = inode.now.clone();
        inode.pending.clear();
    }

    pub(crate) fn bytes(&self, path: &Path) -> Vec<u8> {
        let state = self.0.lock();
        state.inodes[&state.names[path]].now.clone()
    }
}

impl Handle {
    fn change(&self, kind: StepKind, pending: Pending) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.life != self.life {
            return Err(dead());
        }
        let end = match &pending {
            Pending::Write(at, data) => *at as usize + data.len(),
            Pending::Len(len) => *len as usize,
        };
        state.room(self.inode, end)?;
        if state.step(Some(kind))? {
            let inode = state.inodes.get_mut(&self.inode).expect("open file");
            pending.apply(&mut inode.now);
            inode.pending.push(pending);
        }
        state.after()
    }
}

impl File for Handle {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.state.lock();
        if state.dead || state.life != self.life {
            return Err(dead());
        }
        let from = state.inodes[&self.inode].now.get(offset as usize..);
        match from.and_then(|from| from.get(..buf.len())) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(StepKind::Write, Pending::Write(offset, data.to_vec()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().inodes[&self.inode].now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(StepKind::Write, Pending::Len(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(StepKind::Allocate, Pending::Len(len))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.life != self.life {
            return Err(dead());
        }
        if state.step(Some(StepKind::Sync))? {
            let inode = state.inodes.get_mut(&self.inode).expect("open file");
            inode.pending.clear();
            inode.durable = inode.now.clone();
        }
        state.after()
    }
}

struct Lock;
impl FileLock for Lock {}

impl Disk for FakeDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        let known = state.names.get(path).copied();
        let inode = match (known, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::Read | OpenMode::ReadWrite) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            (Some(inode), _) => inode,
            (None, _) => {
                if !state.step(None)? {
                    return Err(dead());
                }
                state.next_inode += 1;
                let inode = state.next_inode;
                state.inodes.insert(inode, Inode::default());
                state.names.insert(path.to_owned(), inode);
                inode
            }
        };
        state.after()?;
        Ok(Arc::new(Handle {
            state: self.0.clone(),
            inode,
            life: state.life,
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.lock().dirs.insert(path.to_owned());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.step(None)? {
            let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            state.names.insert(to.to_owned(), inode);
        }
        state.after()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.step(Some(StepKind::Remove))? {
            state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        }
        state.after()
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.step(Some(StepKind::SyncDir))? {
            state.durable_names = state.names.clone();
        }
        state.after()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.0.lock();
        state.after()?;
        let inside = state
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(path));
        Ok(inside
            .map(|(name, inode)| DirEntry {
                name: name
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned(),
                is_dir: false,
                len: state.inodes[inode].now.len() as u64,
            })
            .collect())
    }

    fn stat(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        let state = self.0.lock();
        let inode = state.names.get(path);
        Ok(inode.map(|inode| DirEntry {
            name: path.to_string_lossy().into_owned(),
            is_dir: false,
            len: state.inodes[inode].now.len() as u64,
        }))
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(Lock))
    }
}
