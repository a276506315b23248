//! Room `sim`, L2: a disk in memory that outlives its host's lives. All that was written stays, as when a process is
//! killed on a machine that runs on; disks that lose something are L1's matter.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::{DirEntry, Disk, File, FileLock, OpenMode};

const PAGE: usize = 4096;

/// The pages written so far; all others are zeros, so that preallocated files cost nothing.
#[derive(Debug, Default)]
struct Content {
    len: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

#[derive(Debug, Default)]
struct State {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    locks: BTreeSet<PathBuf>,
    life: u64,
}

/// The disk. Clones name the same.
#[derive(Clone, Debug, Default)]
pub struct MemDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct MemFile(Arc<Mutex<Content>>);

struct Held {
    disk: MemDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

impl FileLock for Held {}

impl MemDisk {
    /// The next life of the host: locks of the one before are gone.
    pub fn begin_life(&self) -> u64 {
        let mut state = self.0.lock();
        state.locks.clear();
        state.life += 1;
        state.life
    }
}

/// The part of each page that a stretch of a file covers: page, place in it, length.
fn stretch(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let part = (PAGE - within).min(len - done);
        done += part;
        (part > 0).then_some((at / PAGE as u64, within, part))
    })
}

impl File for MemFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.0.lock();
        if offset + buf.len() as u64 > content.len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut rest = buf;
        for (page, within, part) in stretch(offset, rest.len()) {
            let (here, after) = rest.split_at_mut(part);
            match content.pages.get(&page) {
                Some(bytes) => here.copy_from_slice(&bytes[within..within + part]),
                None => here.fill(0),
            }
            rest = after;
        }
        Ok(())
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let mut rest = data;
        for (page, within, part) in stretch(offset, data.len()) {
            let empty = || vec![0; PAGE].into_boxed_slice();
            let bytes = content.pages.entry(page).or_insert_with(empty);
            bytes[within..within + part].copy_from_slice(&rest[..part]);
            rest = &rest[part..];
        }
        content.len = content.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        if len < content.len {
            content.pages.split_off(&len.div_ceil(PAGE as u64));
            let (page, within) = (len / PAGE as u64, (len % PAGE as u64) as usize);
            if let Some(bytes) = content.pages.get_mut(&page) {
                bytes[within..].fill(0);
            }
        }
        content.len = len;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("no {}", path.display()))
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        let there = state.files.get(path).cloned();
        let content = match (there, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(content), _) => content,
            (None, OpenMode::Read | OpenMode::ReadWrite) => return Err(missing(path)),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let content = Arc::<Mutex<Content>>::default();
                state.files.insert(path.to_owned(), content.clone());
                content
            }
        };
        Ok(Arc::new(MemFile(content)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.dirs.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        let place = |path: &Path| path.strip_prefix(from).map(|rest| moved(to, rest)).ok();
        let files: Vec<PathBuf> = state.files.keys().cloned().collect();
        let mut any = false;
        for (old, new) in files.iter().filter_map(|p| Some((p, place(p)?))) {
            let content = state.files.remove(old).expect("just listed");
            state.files.insert(new, content);
            any = true;
        }
        let dirs: Vec<PathBuf> = state.dirs.iter().cloned().collect();
        for (old, new) in dirs.iter().filter_map(|p| Some((p, place(p)?))) {
            state.dirs.remove(old);
            state.dirs.insert(new);
            any = true;
        }
        any.then_some(()).ok_or_else(|| missing(from))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let removed = self.0.lock().files.remove(path);
        removed.map(|_| ()).ok_or_else(|| missing(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.files.retain(|file, _| !file.starts_with(path));
        state.dirs.retain(|dir| !dir.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.0.lock();
        if !state.dirs.contains(path) {
            return Err(missing(path));
        }
        let dirs = state.dirs.iter().map(|dir| (dir, true, 0));
        let files = state.files.iter().map(|(f, c)| (f, false, c.lock().len));
        let inside = dirs.chain(files).filter(|(p, ..)| p.parent() == Some(path));
        let mut entries: Vec<DirEntry> = inside
            .filter_map(|(p, is_dir, len)| entry(p, is_dir, len))
            .collect();
        entries.sort();
        Ok(entries)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        let state = self.0.lock();
        if state.dirs.contains(path) {
            return Ok(entry(path, true, 0));
        }
        let file = state.files.get(path);
        Ok(file.and_then(|content| entry(path, false, content.lock().len)))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.0.lock();
        if !state.locks.insert(path.to_owned()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.files.entry(path.to_owned()).or_default();
        Ok(Box::new(Held {
            disk: self.clone(),
            path: path.to_owned(),
            life: state.life,
        }))
    }
}

/// `to/rest`, and `to` itself when nothing is left: a join would end it with a slash.
fn moved(to: &Path, rest: &Path) -> PathBuf {
    match rest.as_os_str().is_empty() {
        true => to.to_owned(),
        false => to.join(rest),
    }
}

fn entry(path: &Path, is_dir: bool, len: u64) -> Option<DirEntry> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(DirEntry { name, is_dir, len })
}
