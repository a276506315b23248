//! Room storage, archives: a whole state in one file: what `Maintenance.Snapshot` sends, what `tenon util`
//! restores, and what stands behind an engine that keeps nothing itself (a checkpoint). May use engines'
//! types, views of the state and env's `Disk`; no task, no socket.
//!
//! ```text
//! header (64 bytes) │ frame │ frame │ … │ end frame │ SHA-256 (32 bytes)
//!                     rows …  records …   up to a multiple of 512
//! ```
//!
//! - Every byte up to the hash is under some crc32c, so damage is found where it is, and before anything
//!   behind it is believed; the hash covers all of it, for whoever carried the file.
//! - The length without the hash is a multiple of 512, and with it not: so etcd's tools, which look at
//!   nothing else, take the file for one that carries its hash.
//! - The end frame counts rows and records: a file cut at a frame's end is seen.
//! - Frames carry their number: none can be missing, doubled or out of place.
//! - Its length is known before the first byte is written ([`ArchiveWriter::measure`]).
//!
//! `docs/format.md` has it byte by byte.
//!
//! What this does not do: decide when an archive is made, or what of it counts in another cluster.

mod frame;
mod load;
mod read;
mod save;
mod survey;
mod write;

pub use load::load;
pub use read::{ArchiveError, ArchiveReader, HashCheck, Piece};
pub use save::{ArchiveFile, Progress, SaveError};
pub use survey::{ArchiveSurvey, survey};
pub use write::ArchiveWriter;

use tenon_proto::log::LogId;

/// What an archive says of itself at its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveHeader {
    /// The newest entry it covers.
    pub id: LogId,
    /// The store's revision then.
    pub revision: i64,
    /// The newest compaction then; -1 = never.
    pub compacted: i64,
}
