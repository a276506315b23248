//! Room `storage`, WAL: what can go wrong with the log, in words an operator can act on.

use std::fmt;
use std::io;
use std::sync::Arc;
use tenon_proto::log::LogId;

/// Why the write-ahead log cannot do what it was asked for. Cheap to clone: one failure answers many callers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// A write or sync failed. What was not acknowledged may or may not be on disk; the log takes nothing
    /// more and the member must stop.
    #[error("the write-ahead log failed and takes nothing more: {0}")]
    Fatal(Arc<str>),
    /// The log was closed before this was durable.
    #[error("the write-ahead log is closed")]
    Closed,
    /// Bytes that were durable are no longer what was written. Nothing was changed on disk.
    #[error("{0}")]
    Damaged(Arc<Damage>),
    /// The disk refused a step while the log was being opened.
    #[error("cannot open the write-ahead log: {step}: {source}")]
    Open {
        /// What was being done, and to which file.
        step: Arc<str>,
        /// The disk's answer.
        source: Arc<io::Error>,
    },
    /// A segment was written by a version of this program that this one does not know.
    #[error(
        "segment {segment} of the write-ahead log has format version {version}, this program knows version \
         {known}; start the newer program on this data directory"
    )]
    Version {
        /// File name of the segment.
        segment: Arc<str>,
        /// Version found.
        version: u32,
        /// Version known.
        known: u32,
    },
}

impl WalError {
    pub(super) fn open(step: impl Into<Arc<str>>) -> impl FnOnce(io::Error) -> WalError {
        let step = step.into();
        move |source| WalError::Open {
            step,
            source: Arc::new(source),
        }
    }
}

/// Where the log is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File name of the segment.
    pub segment: String,
    /// Offset in it of the first byte that cannot be used.
    pub offset: u64,
    /// Last entry before the damage, when known.
    pub after: Option<LogId>,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the write-ahead log is damaged: segment {} at offset {}",
            self.segment, self.offset
        )?;
        if let Some(id) = self.after {
            write!(f, ", after log index {} of term {}", id.index, id.term)?;
        }
        write!(
            f,
            ": {}. Nothing was changed; bring the file back, or replace this member from its peers or a snapshot",
            self.what
        )
    }
}

impl std::error::Error for Damage {}

/// Whether the disk is full, which may pass, unlike every other error.
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
