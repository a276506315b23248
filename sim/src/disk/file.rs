//! Room `sim`: an open file of a simulated disk.

use super::tree::Ino;
use super::{Op, SimDisk, State, content};
use crate::executor::Life;
use crate::rng::SimRng;
use crate::trace::hash_bytes;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use tenon_env::File;

pub(super) struct SimFile {
    pub(super) disk: Arc<SimDisk>,
    pub(super) life: Life,
    pub(super) ino: Ino,
    pub(super) writable: bool,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFile({:?} of {:?})", self.ino, self.life)
    }
}

impl SimFile {
    fn change<T>(
        &self,
        op: Op,
        what: (u64, u64),
        effect: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.writable && op != Op::Sync {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "opened for reading only",
            ));
        }
        let ino = self.ino;
        self.disk.mutate(self.life, op, what, effect, |state| {
            if op == Op::Sync
                && let Ok(file) = state.tree.file(ino)
            {
                file.lose_pending();
            }
        })
    }
}

/// A place of the same file, whole pages away from the right one.
fn wrong_place(len: u64, offset: u64, rng: &mut SimRng) -> u64 {
    let pages = (len / content::PAGE).max(2);
    let (page, within) = (offset / content::PAGE, offset % content::PAGE);
    let other = (page + rng.between(1, pages - 1)) % pages;
    other * content::PAGE + within
}

impl File for SimFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read(self.life, buf.len() as u64, |state| {
            let file = state.tree.file(self.ino)?;
            if offset + buf.len() as u64 > file.len() {
                return Err(io::Error::from(ErrorKind::UnexpectedEof));
            }
            file.read(buf, offset);
            Ok(())
        })
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let what = (hash_bytes(data) ^ offset.rotate_left(17), data.len() as u64);
        self.change(Op::Write, what, |state| {
            let needed = state
                .tree
                .file(self.ino)?
                .pages_needed(offset, data.len() as u64);
            state.room(needed)?;
            match state.faults.goes_astray() {
                true => {
                    let file = state.tree.file(self.ino)?;
                    let wrong = wrong_place(file.len(), offset, &mut state.rng);
                    file.write_astray(data, offset, wrong);
                    state.damaged += 1;
                    self.disk
                        .tell(format!("misdirected write, {offset} to {wrong}"));
                }
                false => state.tree.file(self.ino)?.write(data, offset),
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.disk
            .read(self.life, 0, |state| Ok(state.tree.file(self.ino)?.len()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Op::SetLen, (len, 0), |state| {
            state.tree.file(self.ino)?.set_len(len);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(Op::Allocate, (len, 0), |state| {
            let needed = state.tree.file(self.ino)?.pages_to_reserve(len);
            state.room(needed)?;
            let file = state.tree.file(self.ino)?;
            file.reserve(len);
            file.set_len(len);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.change(Op::Sync, (0, 0), |state| {
            if !state.faults.lies {
                state.tree.file(self.ino)?.sync();
            }
            Ok(())
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.disk.world.is_alive(self.life) {
            self.disk.state.lock().tree.closed(self.ino);
        }
    }
}
