//! Room storage, archives: one into a file, in short steps, so that a reader of the same lane need not
//! wait. The file gets its name only once it is whole and durable.

use super::{ArchiveHeader, ArchiveWriter};
use crate::engine::EngineError;
use crate::state::SnapshotView;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::{Disk, File, OpenMode};

/// Bytes written in one step, about.
const STEP_BYTES: u64 = 2 << 20;

/// Why an archive could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The disk took no more, before anything was promised: it may be tried again.
    #[error("cannot write {0}: {1}")]
    Refused(PathBuf, io::Error),
    /// A sync, a rename or a read failed: the disk is in doubt.
    #[error("{0}")]
    Failed(String),
}

impl From<EngineError> for SaveError {
    fn from(error: EngineError) -> SaveError {
        SaveError::Failed(error.to_string())
    }
}

/// Whether a file is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More steps are needed.
    More,
    /// Everything is durable under its unfinished name.
    Whole,
}

/// An archive on its way to a file. Blocking, in short steps: for a lane.
pub struct ArchiveFile {
    writer: ArchiveWriter,
    file: Arc<dyn File>,
    path: PathBuf,
}

impl ArchiveFile {
    /// Begins `<path>`, which is replaced when it stands there.
    ///
    /// # Errors
    /// What the disk says.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        view: SnapshotView,
    ) -> Result<ArchiveFile, SaveError> {
        let begin = || {
            if disk.stat(path)?.is_some() {
                disk.remove_file(path)?;
            }
            disk.open(path, OpenMode::CreateNew)
        };
        let file = begin().map_err(|error| SaveError::Refused(path.to_owned(), error))?;
        Ok(ArchiveFile {
            writer: ArchiveWriter::new(view),
            file,
            path: path.to_owned(),
        })
    }

    /// Writes some of it; syncs at the end.
    ///
    /// # Errors
    /// What the disk or the engine says.
    pub fn step(&mut self) -> Result<Progress, SaveError> {
        let start = self.writer.written();
        loop {
            let at = self.writer.written();
            if at - start >= STEP_BYTES {
                return Ok(Progress::More);
            }
            let Some(bytes) = self.writer.next_piece()? else {
                break;
            };
            let written = self.file.write_all_at(&bytes, at);
            written.map_err(|error| SaveError::Refused(self.path.clone(), error))?;
        }
        let synced = self.file.sync();
        synced.map_err(|error| SaveError::Failed(format!("sync of a checkpoint: {error}")))?;
        Ok(Progress::Whole)
    }

    /// All steps.
    ///
    /// # Errors
    /// As [`ArchiveFile::step`].
    pub fn write_all(&mut self) -> Result<(), SaveError> {
        while self.step()? == Progress::More {}
        Ok(())
    }

    /// The position it stands at.
    pub fn header(&self) -> ArchiveHeader {
        self.writer.header()
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.writer.written()
    }
}
