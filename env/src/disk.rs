//! Room `env`: the disk, synchronous because redb's `StorageBackend` is (DESIGN §3). Blocking steps run on
//! lanes ([`crate::Env::blocking`]). Durability is explicit: data after [`File::sync`], a created, renamed or
//! removed name after [`Disk::sync_dir`] of its folder.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How [`Disk::open`] treats a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing file, read only.
    Read,
    /// Existing file, read and write.
    ReadWrite,
    /// Read and write; created empty when absent, kept when present.
    Create,
    /// Read and write; must not exist yet.
    CreateNew,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// File name without its folder.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Length in bytes; 0 for a folder.
    pub len: u64,
}

/// An open file. Shared freely; every call names its offset.
pub trait File: Send + Sync + std::fmt::Debug + 'static {
    /// Reads exactly `buf.len()` bytes at `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `data` at `offset`, growing the file when needed. Not durable before [`File::sync`].
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file holds no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or grows (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves room so that writes up to `len` bytes need no new blocks; length becomes `len`.
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
    /// Makes all written data and the length durable (`fdatasync`). An error is final: the pages may be lost,
    /// so the caller stops the member and never retries.
    fn sync(&self) -> io::Result<()>;
}

/// Held while a data folder is in use; released on drop or when the process dies.
pub trait FileLock: Send + Sync + 'static {}

/// One node's disk. Paths are taken as given.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Creates a folder and its missing parents.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Renames a file or folder, replacing a file of that name at once.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all it holds.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// What stands at `path`, or `None`.
    fn stat(&self, path: &Path) -> io::Result<Option<DirEntry>>;
    /// Takes an exclusive lock on `path` (created when absent); `WouldBlock` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Creates a folder and its missing parents and makes the whole path durable. Folders that stand already
    /// are synced too, because an earlier run may have been killed between creating and syncing them; those
    /// that may not be opened are passed over, for whoever made them is not us.
    fn create_dir_all_synced(&self, path: &Path) -> io::Result<()> {
        self.create_dir_all(path)?;
        for dir in path.ancestors().skip(1) {
            let dir = if dir.as_os_str().is_empty() {
                Path::new(".")
            } else {
                dir
            };
            match self.sync_dir(dir) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// The whole of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, OpenMode::Read)?;
        let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
        let mut buf = vec![0; len];
        file.read_exact_at(&mut buf, 0)?;
        Ok(buf)
    }

    /// Writes `data` under `path` so that after a crash either the old or the new content stands there:
    /// `<path>.tmp`, sync, rename, sync of the folder.
    fn write_atomic(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut tmp = path.as_os_str().to_owned();
        tmp.push(".tmp");
        let tmp = std::path::PathBuf::from(tmp);
        let file = self.open(&tmp, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_all_at(data, 0)?;
        file.sync()?;
        drop(file);
        self.rename(&tmp, path)?;
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }
}
