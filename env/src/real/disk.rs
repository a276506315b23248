//! Room `env`: the real disk over `std::fs`: positioned reads and writes, `fdatasync`, `fallocate`.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that touches std::fs"
)]

use crate::{DirEntry, Disk, File, FileLock, OpenMode};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Everything stored is its owner's alone, as etcd keeps it: values are as secret as their readers' rights say.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The files of this machine. What it creates only the owner may read.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(fs::File);

impl File for RealFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len > 0 {
            match fallocate(&self.0, FallocateFlags::empty(), 0, len) {
                Ok(()) => {}
                // File systems without reservation: the length alone must do.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

struct RealLock {
    _locked: fs::File,
}

impl FileLock for RealLock {}

fn entry(name: String, meta: &fs::Metadata) -> DirEntry {
    let is_dir = meta.is_dir();
    DirEntry {
        name,
        is_dir,
        len: if is_dir { 0 } else { meta.len() },
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut how = fs::OpenOptions::new();
        how.read(true).write(mode != OpenMode::Read).mode(FILE_MODE);
        match mode {
            OpenMode::Read | OpenMode::ReadWrite => {}
            OpenMode::Create => {
                how.create(true);
            }
            OpenMode::CreateNew => {
                how.create_new(true);
            }
        }
        Ok(Arc::new(RealFile(how.open(path)?)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIR_MODE)
            .create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut found = Vec::new();
        for item in fs::read_dir(path)? {
            let item = item?;
            let name = item.file_name().into_string().map_err(|name| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("name {name:?} is not UTF-8"),
                )
            })?;
            match fs::metadata(item.path()) {
                Ok(meta) => found.push(entry(name, &meta)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        found.sort();
        Ok(found)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        match fs::metadata(path) {
            Ok(meta) => {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
                Ok(Some(entry(name.unwrap_or_default(), &meta)))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _locked: file })),
            Err(fs::TryLockError::WouldBlock) => {
                let text = format!("{} is locked by another process", path.display());
                Err(io::Error::new(io::ErrorKind::WouldBlock, text))
            }
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }
}
