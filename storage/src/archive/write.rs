//! Room storage, archives: a view of the state as the bytes of an archive, piece by piece. Pure but for
//! what the view reads. One piece is in memory.

use super::ArchiveHeader;
use super::frame::{
    self, ALIGN, END_BYTES, FRAME_HEAD, HASH_BYTES, HEADER_BYTES, Kind, RECORD_HEAD, ROW_HEAD,
};
use crate::engine::{EngineError, Table};
use crate::state::SnapshotView;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;

/// Payload bytes at which a frame is closed.
const PIECE_BYTES: usize = 256 << 10;
/// Frames looked at in one step of measuring.
const MEASURED_AT_ONCE: usize = 16;

/// Where in the archive a pass stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Head,
    /// In that table of [`Table::ALL`], after that key.
    Rows(usize, Option<Bytes>),
    /// From that record on.
    Records((i64, u32)),
    Hash,
    Done,
}

/// What a pass saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    rows: u64,
    records: u64,
    frames: u32,
    bytes: u64,
}

/// Makes the bytes of an archive. Blocking, in short steps: for a lane.
pub struct ArchiveWriter {
    view: SnapshotView,
    place: Place,
    counts: Counts,
    hash: Sha256,
    measuring: Option<(Place, Counts)>,
    total: u64,
}

impl ArchiveWriter {
    /// An archive of `view`. [`ArchiveWriter::measure`] comes first where the length is to be known.
    pub fn new(view: SnapshotView) -> ArchiveWriter {
        ArchiveWriter {
            view,
            place: Place::Head,
            counts: Counts::default(),
            hash: Sha256::new(),
            measuring: Some((Place::Head, Counts::default())),
            total: 0,
        }
    }

    /// The position the archive stands at.
    pub fn header(&self) -> ArchiveHeader {
        ArchiveHeader {
            id: self.view.log_id(),
            revision: self.view.revision().get(),
            compacted: self.view.compact_revision().get(),
        }
    }

    /// One step of finding out how long the archive will be; `None` when more steps are needed. The
    /// length, hash included, once it is known.
    ///
    /// # Errors
    /// What the engine says.
    pub fn measure(&mut self) -> Result<Option<u64>, EngineError> {
        let Some((mut place, mut counts)) = self.measuring.take() else {
            return Ok(Some(self.total));
        };
        for _ in 0..MEASURED_AT_ONCE {
            match place {
                Place::Head => {
                    counts.bytes += HEADER_BYTES as u64;
                    place = Place::Rows(0, None);
                }
                Place::Rows(..) | Place::Records(_) => {
                    place = self.frame(&place, &mut counts, &mut None)?;
                }
                Place::Hash => {
                    counts.bytes += HASH_BYTES as u64;
                    place = Place::Done;
                }
                Place::Done => {
                    self.total = counts.bytes;
                    return Ok(Some(self.total));
                }
            }
        }
        self.measuring = Some((place, counts));
        Ok(None)
    }

    /// The next bytes, about 256 KiB and at least one record; `None` behind the last.
    ///
    /// # Errors
    /// What the engine says.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, EngineError> {
        match self.place.clone() {
            Place::Head => {
                let bytes = frame::header(&self.header());
                self.counts.bytes += bytes.len() as u64;
                self.hash.update(&bytes);
                self.place = Place::Rows(0, None);
                Ok(Some(bytes.into()))
            }
            place @ (Place::Rows(..) | Place::Records(_)) => {
                let mut counts = self.counts;
                let mut out = Some(vec![0; FRAME_HEAD]);
                self.place = self.frame(&place, &mut counts, &mut out)?;
                self.counts = counts;
                let bytes = out.expect("a pass that writes");
                self.hash.update(&bytes);
                Ok(Some(bytes.into()))
            }
            Place::Hash => {
                self.place = Place::Done;
                self.counts.bytes += HASH_BYTES as u64;
                let hash = std::mem::take(&mut self.hash).finalize();
                Ok(Some(Bytes::copy_from_slice(&hash)))
            }
            Place::Done => Ok(None),
        }
    }

    /// Bytes given by [`ArchiveWriter::next`] so far.
    pub fn written(&self) -> u64 {
        self.counts.bytes
    }

    /// One frame from `place` on: counted, and put into `out` when it is given. Where the next begins.
    fn frame(
        &self,
        place: &Place,
        counts: &mut Counts,
        out: &mut Option<Vec<u8>>,
    ) -> Result<Place, EngineError> {
        let before = counts.bytes;
        let (kind, next) = match place {
            Place::Rows(at, after) => match self.rows(*at, after.as_ref(), counts, out)? {
                Some(next) => (Kind::Rows, next),
                None => match self.records((0, 0), counts, out)? {
                    Some(from) => (Kind::Records, Place::Records(from)),
                    None => (Kind::End, Place::Hash),
                },
            },
            Place::Records(from) => match self.records(*from, counts, out)? {
                Some(from) => (Kind::Records, Place::Records(from)),
                None => (Kind::End, Place::Hash),
            },
            Place::Head | Place::Hash | Place::Done => unreachable!("no frame stands there"),
        };
        counts.bytes += FRAME_HEAD as u64;
        if kind == Kind::End {
            let bare = counts.bytes + END_BYTES as u64;
            counts.bytes = bare.next_multiple_of(ALIGN);
            if let Some(out) = out {
                out.extend_from_slice(&counts.rows.to_le_bytes());
                out.extend_from_slice(&counts.records.to_le_bytes());
                let whole = counts.bytes - before;
                out.resize(usize::try_from(whole).expect("a short frame"), 0);
            }
        }
        if let Some(out) = out {
            frame::seal(out, kind, counts.frames);
        }
        counts.frames += 1;
        Ok(next)
    }

    /// Rows of one frame, over tables' borders; `None` when there are no more.
    fn rows(
        &self,
        mut at: usize,
        after: Option<&Bytes>,
        counts: &mut Counts,
        out: &mut Option<Vec<u8>>,
    ) -> Result<Option<Place>, EngineError> {
        let mut after = after.cloned();
        let mut bytes = 0;
        while let Some(table) = Table::ALL.get(at).copied() {
            let mut last = None;
            let visit = &mut |key: &[u8], value: &[u8]| {
                bytes += ROW_HEAD + key.len() + value.len();
                counts.rows += 1;
                if let Some(out) = out {
                    frame::put_row(out, table, key, value);
                }
                if bytes < PIECE_BYTES {
                    return ControlFlow::Continue(());
                }
                last = Some(Bytes::copy_from_slice(key));
                ControlFlow::Break(())
            };
            self.view.scan_rows(table, after.as_deref(), visit)?;
            if last.is_some() {
                counts.bytes += bytes as u64;
                return Ok(Some(Place::Rows(at, last)));
            }
            after = None;
            at += 1;
        }
        counts.bytes += bytes as u64;
        Ok((bytes > 0).then_some(Place::Rows(at, None)))
    }

    /// Records of one frame; where the next begin, or `None` when there are no more.
    fn records(
        &self,
        from: (i64, u32),
        counts: &mut Counts,
        out: &mut Option<Vec<u8>>,
    ) -> Result<Option<(i64, u32)>, EngineError> {
        let mut bytes = 0;
        let mut next = None;
        self.view.scan(from, &mut |key, value| {
            bytes += RECORD_HEAD + value.len();
            counts.records += 1;
            if let Some(out) = out {
                frame::put_record(out, key, value);
            }
            next = Some((key.main, key.sub + 1));
            if bytes < PIECE_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        counts.bytes += bytes as u64;
        Ok(next)
    }
}

impl std::fmt::Debug for ArchiveWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArchiveWriter({:?}, {:?})", self.view, self.counts)
    }
}
