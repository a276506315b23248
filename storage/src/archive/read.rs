//! Room storage, archives: reading one from a file, frame by frame, with everything checked that can be.
//! Uses env's `Disk`. One frame is in memory.

use super::ArchiveHeader;
use super::frame::{self, ALIGN, END_BYTES, FRAME_HEAD, HASH_BYTES, HEADER_BYTES, Kind};
use crate::engine::{RecordKey, Table};
use bytes::{Buf, Bytes};
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tenon_env::{Disk, File, OpenMode};

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The disk.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not an archive, of another version, or damaged; the text says where.
    #[error("{0}")]
    Damaged(String),
    /// The hash at the end is missing.
    #[error("snapshot missing hash but --skip-hash-check=false")]
    NoHash,
    /// The hash at the end is another than the content's: the two in the order expected, got.
    #[error("expected sha256 {}, got {}", go_bytes(.0), go_bytes(.1))]
    WrongHash(Vec<u8>, Vec<u8>),
}

/// As etcd's tools show bytes.
fn go_bytes(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    format!("[{}]", numbers.join(" "))
}

/// Whether the hash at the end must fit. Each part's own checksum is looked at in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashCheck {
    /// It must.
    Verify,
    /// It may be missing or wrong.
    Skip,
}

/// A part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Rows, by table and key.
    Rows(Vec<(Table, Bytes, Bytes)>),
    /// Records, in ascending order over all pieces.
    Records(Vec<(RecordKey, Bytes)>),
}

/// An open archive. Blocking; for a lane.
pub struct ArchiveReader {
    file: Arc<dyn File>,
    length: u64,
    at: u64,
    header: ArchiveHeader,
    frames: u32,
    rows: u64,
    records: u64,
    last: (i64, u32),
    hash: Sha256,
    check: HashCheck,
    sum: Option<[u8; HASH_BYTES]>,
}

impl ArchiveReader {
    /// Opens the file and reads its head.
    ///
    /// # Errors
    /// What the disk says; not an archive; another version; without a hash when it is to be checked.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        check: HashCheck,
    ) -> Result<ArchiveReader, ArchiveError> {
        let file = disk.open(path, OpenMode::Read)?;
        let length = file.len()?;
        if length < HEADER_BYTES as u64 {
            let text = format!("it has {length} bytes; a snapshot of tenon has more");
            return Err(ArchiveError::Damaged(text));
        }
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let header = frame::read_header(&bytes).map_err(ArchiveError::Damaged)?;
        if check == HashCheck::Verify && length % ALIGN != HASH_BYTES as u64 {
            return Err(ArchiveError::NoHash);
        }
        let mut hash = Sha256::new();
        hash.update(&bytes);
        Ok(ArchiveReader {
            file,
            length,
            at: HEADER_BYTES as u64,
            header,
            frames: 0,
            rows: 0,
            records: 0,
            last: (0, 0),
            hash,
            check,
            sum: None,
        })
    }

    /// What it says of itself.
    pub fn header(&self) -> ArchiveHeader {
        self.header
    }

    /// Length of the file, bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The SHA-256 of what stands before the hash, once all of it was read.
    pub fn sum(&self) -> Option<[u8; HASH_BYTES]> {
        self.sum
    }

    /// The next piece; `None` once everything was read and found whole.
    ///
    /// # Errors
    /// What the disk says, or what is damaged and where.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, ArchiveError> {
        if self.sum.is_some() {
            return Ok(None);
        }
        let (kind, mut payload) = self.frame()?;
        match kind {
            Kind::Rows => {
                let rows = frame::rows(payload).ok_or_else(|| self.damaged("rows"))?;
                self.rows += rows.len() as u64;
                Ok(Some(Piece::Rows(rows)))
            }
            Kind::Records => {
                let records = frame::records(payload).ok_or_else(|| self.damaged("records"))?;
                for (key, _) in &records {
                    if key.position() <= self.last || key.main > self.header.revision {
                        return Err(self.damaged("records out of order"));
                    }
                    self.last = key.position();
                }
                self.records += records.len() as u64;
                Ok(Some(Piece::Records(records)))
            }
            Kind::End => {
                if payload.len() < END_BYTES {
                    return Err(self.damaged("the end"));
                }
                let counted = (payload.get_u64_le(), payload.get_u64_le());
                if counted != (self.rows, self.records) {
                    return Err(self.damaged("the count of what it holds"));
                }
                self.end()?;
                Ok(None)
            }
        }
    }

    fn damaged(&self, what: &str) -> ArchiveError {
        ArchiveError::Damaged(format!("{what} before byte {}: damaged", self.at))
    }

    fn frame(&mut self) -> Result<(Kind, Bytes), ArchiveError> {
        let cut = || ArchiveError::Damaged("it ends before its end: it was cut".into());
        let left = self.length - self.at;
        if left < FRAME_HEAD as u64 {
            return Err(cut());
        }
        let mut bytes = vec![0; FRAME_HEAD];
        self.file.read_exact_at(&mut bytes, self.at)?;
        let head = frame::read_head(&bytes).ok_or_else(|| self.damaged("the frame that begins"))?;
        if ((FRAME_HEAD + head.length) as u64) > left {
            return Err(cut());
        }
        bytes.resize(FRAME_HEAD + head.length, 0);
        self.file
            .read_exact_at(&mut bytes[FRAME_HEAD..], self.at + FRAME_HEAD as u64)?;
        if crc32c::crc32c(&bytes[4..]) != head.sum || head.number != self.frames {
            return Err(self.damaged("the frame that begins"));
        }
        self.frames += 1;
        self.at += bytes.len() as u64;
        self.hash.update(&bytes);
        Ok((head.kind, Bytes::from(bytes).split_off(FRAME_HEAD)))
    }

    /// Behind the end frame stands the hash, and nothing else.
    fn end(&mut self) -> Result<(), ArchiveError> {
        let got: [u8; HASH_BYTES] = std::mem::take(&mut self.hash).finalize().into();
        self.sum = Some(got);
        if self.check == HashCheck::Skip {
            return Ok(());
        }
        if self.length - self.at != HASH_BYTES as u64 {
            return Err(self.damaged("what stands behind the end"));
        }
        let mut found = vec![0; HASH_BYTES];
        self.file.read_exact_at(&mut found, self.at)?;
        if found != got {
            return Err(ArchiveError::WrongHash(found, got.to_vec()));
        }
        Ok(())
    }
}
