//! Room `sim`: folders and names. A name that was created, moved or removed survives a power cut for sure only
//! after a sync of the folder it came to (or went from, when it was removed).
//!
//! - Each folder has its names as seen now and its names that would survive.
//! - `journal` holds the changes between them in order; at a crash either a prefix of it survives, as on a
//!   journalling file system, or any part of it, as POSIX allows.

use super::CrashMode;
use super::content::Content;
use crate::rng::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Component, Path};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ino(u64);

const ROOT: Ino = Ino(0);

#[derive(Debug)]
enum Inode {
    File(Content),
    Dir(Dir),
}

#[derive(Debug, Default)]
struct Dir {
    live: BTreeMap<String, Ino>,
    durable: BTreeMap<String, Ino>,
}

#[derive(Debug)]
struct NameOp {
    /// The folder whose sync makes this durable.
    by: Ino,
    changes: Vec<(Ino, String, Option<Ino>)>,
}

#[derive(Debug)]
pub(super) struct Tree {
    inodes: BTreeMap<Ino, Inode>,
    next: u64,
    journal: Vec<NameOp>,
    /// Files held open by a living node, with the number of handles.
    open: BTreeMap<Ino, u64>,
}

fn missing(path: &Path) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("{} does not exist", path.display()),
    )
}

fn parts(path: &Path) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => {
                parts.pop();
            }
            Component::RootDir | Component::CurDir => {}
            Component::Prefix(_) => return Err(Error::from(ErrorKind::InvalidInput)),
        }
    }
    Ok(parts)
}

impl Tree {
    pub(super) fn new() -> Tree {
        let inodes = BTreeMap::from([(ROOT, Inode::Dir(Dir::default()))]);
        Tree {
            inodes,
            next: 1,
            journal: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    fn dir(&self, ino: Ino) -> Option<&Dir> {
        match self.inodes.get(&ino) {
            Some(Inode::Dir(dir)) => Some(dir),
            _ => None,
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> &mut Dir {
        match self.inodes.get_mut(&ino) {
            Some(Inode::Dir(dir)) => dir,
            other => panic!("{ino:?} is no folder but {other:?}"),
        }
    }

    pub(super) fn file(&mut self, ino: Ino) -> Result<&mut Content> {
        match self.inodes.get_mut(&ino) {
            Some(Inode::File(content)) => Ok(content),
            _ => Err(Error::new(ErrorKind::NotFound, "the file is gone")),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Content> {
        self.inodes.values().filter_map(|inode| match inode {
            Inode::File(content) => Some(content),
            Inode::Dir(_) => None,
        })
    }

    fn walk(&self, parts: &[String]) -> Option<Ino> {
        parts
            .iter()
            .try_fold(ROOT, |at, name| self.dir(at)?.live.get(name).copied())
    }

    /// What stands at `path`.
    pub(super) fn find(&self, path: &Path) -> Result<Option<Ino>> {
        Ok(self.walk(&parts(path)?))
    }

    fn dir_at(&self, path: &Path) -> Result<Ino> {
        let ino = self.find(path)?.ok_or_else(|| missing(path))?;
        match self.dir(ino) {
            Some(_) => Ok(ino),
            None => Err(Error::new(
                ErrorKind::NotADirectory,
                format!("{}", path.display()),
            )),
        }
    }

    fn parent(&self, path: &Path) -> Result<(Ino, String)> {
        let mut parts = parts(path)?;
        let name = parts
            .pop()
            .ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        let dir = self.walk(&parts).filter(|ino| self.dir(*ino).is_some());
        Ok((dir.ok_or_else(|| missing(path))?, name))
    }

    fn change(&mut self, by: Ino, changes: Vec<(Ino, String, Option<Ino>)>) {
        for (dir, name, ino) in &changes {
            let live = &mut self.dir_mut(*dir).live;
            match ino {
                Some(ino) => live.insert(name.clone(), *ino),
                None => live.remove(name),
            };
        }
        self.journal.push(NameOp { by, changes });
    }

    fn add(&mut self, inode: Inode) -> Ino {
        let ino = Ino(self.next);
        self.next += 1;
        self.inodes.insert(ino, inode);
        ino
    }

    pub(super) fn create_file(&mut self, path: &Path) -> Result<Ino> {
        let (dir, name) = self.parent(path)?;
        let ino = self.add(Inode::File(Content::default()));
        self.change(dir, vec![(dir, name, Some(ino))]);
        Ok(ino)
    }

    /// Creates the missing folders of `path`; true when there were some.
    pub(super) fn create_dirs(&mut self, path: &Path) -> Result<bool> {
        let (mut at, mut created) = (ROOT, false);
        for name in parts(path)? {
            let dir = self
                .dir(at)
                .ok_or_else(|| Error::from(ErrorKind::NotADirectory))?;
            at = match dir.live.get(&name) {
                Some(ino) => *ino,
                None => {
                    let ino = self.add(Inode::Dir(Dir::default()));
                    self.change(at, vec![(at, name, Some(ino))]);
                    created = true;
                    ino
                }
            };
        }
        self.dir(at)
            .ok_or_else(|| Error::from(ErrorKind::NotADirectory))?;
        Ok(created)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let ino = self.find(from)?.ok_or_else(|| missing(from))?;
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        if let Some(there) = self.find(to)? {
            let full = self.dir(there).is_some_and(|d| !d.live.is_empty());
            if full || self.dir(there).is_some() != self.dir(ino).is_some() {
                return Err(Error::new(
                    ErrorKind::DirectoryNotEmpty,
                    format!("{}", to.display()),
                ));
            }
        }
        if (from_dir, &from_name) == (to_dir, &to_name) {
            return Ok(());
        }
        self.change(
            to_dir,
            vec![(from_dir, from_name, None), (to_dir, to_name, Some(ino))],
        );
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> Result<()> {
        let ino = self.find(path)?.ok_or_else(|| missing(path))?;
        if self.dir(ino).is_some() {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                format!("{}", path.display()),
            ));
        }
        let (dir, name) = self.parent(path)?;
        self.change(dir, vec![(dir, name, None)]);
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<()> {
        self.dir_at(path)?;
        let (dir, name) = self.parent(path)?;
        self.change(dir, vec![(dir, name, None)]);
        Ok(())
    }

    /// Name, whether a folder, length; sorted.
    pub(super) fn list(&self, path: &Path) -> Result<Vec<(String, bool, u64)>> {
        let dir = self.dir(self.dir_at(path)?).expect("a folder");
        Ok(dir
            .live
            .iter()
            .map(|(name, ino)| self.describe(name, *ino))
            .collect())
    }

    pub(super) fn describe(&self, name: &str, ino: Ino) -> (String, bool, u64) {
        match &self.inodes[&ino] {
            Inode::Dir(_) => (name.to_owned(), true, 0),
            Inode::File(content) => (name.to_owned(), false, content.len()),
        }
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        self.dir(ino).is_some()
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        let dir = self.dir_at(path)?;
        let mut rest: Vec<NameOp> = Vec::new();
        for op in std::mem::take(&mut self.journal) {
            if op.by != dir {
                rest.push(op);
                continue;
            }
            // An older change of the same name is overtaken, wherever it waits.
            for older in &mut rest {
                older.changes.retain(|(d, n, _)| {
                    !op.changes
                        .iter()
                        .any(|(dir, name, _)| dir == d && name == n)
                });
            }
            self.commit(&op);
        }
        rest.retain(|op| !op.changes.is_empty());
        self.journal = rest;
        self.sweep();
        Ok(())
    }

    fn commit(&mut self, op: &NameOp) {
        for (dir, name, ino) in &op.changes {
            let Some(Inode::Dir(dir)) = self.inodes.get_mut(dir) else {
                continue;
            };
            match ino {
                Some(ino) => dir.durable.insert(name.clone(), *ino),
                None => dir.durable.remove(name),
            };
        }
    }

    pub(super) fn crash(&mut self, mode: CrashMode, rng: &mut SimRng) {
        if mode == CrashMode::Kept {
            self.open.clear();
            self.sweep();
            return;
        }
        let journal = std::mem::take(&mut self.journal);
        let in_order = rng.chance(500_000);
        let kept_first = rng.below(journal.len() as u64 + 1) as usize;
        for (i, op) in journal.iter().enumerate() {
            let kept = match mode {
                CrashMode::Kept => unreachable!("nothing is decided"),
                CrashMode::Lost => false,
                CrashMode::Torn if in_order => i < kept_first,
                CrashMode::Torn => rng.chance(500_000),
            };
            if kept {
                self.commit(op);
            }
        }
        self.open.clear();
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::Dir(dir) => dir.live = dir.durable.clone(),
                Inode::File(content) => content.crash(mode, rng),
            }
        }
        self.sweep();
    }

    pub(super) fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub(super) fn closed(&mut self, ino: Ino) {
        if let Some(n) = self.open.get_mut(&ino) {
            *n -= 1;
            if *n == 0 {
                self.open.remove(&ino);
            }
        }
    }

    /// Forgets what no name and no handle reaches any more.
    fn sweep(&mut self) {
        let mut reached = BTreeSet::new();
        let mut left: Vec<Ino> = self.open.keys().copied().collect();
        left.push(ROOT);
        left.extend(
            self.journal
                .iter()
                .flat_map(|op| op.changes.iter().filter_map(|c| c.2)),
        );
        while let Some(ino) = left.pop() {
            if reached.insert(ino)
                && let Some(dir) = self.dir(ino)
            {
                left.extend(dir.live.values().chain(dir.durable.values()));
            }
        }
        self.inodes.retain(|ino, _| reached.contains(ino));
    }
}
