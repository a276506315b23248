//! Room `storage`, WAL: reads entries back from segments. Payloads are slices of the one buffer a stretch was
//! read into. Every frame is checked again: what a disk returns today need not be what it returned at start.

use super::frame::{self, HEAD_LEN, Head, Kind};
use super::map::Region;
use super::segment;
use bytes::Bytes;
use std::io;
use tenon_proto::log::LogId;

/// The entries of a stretch.
pub(super) fn read(region: &Region) -> io::Result<Vec<(LogId, Bytes)>> {
    let first = region.offsets[0];
    let last = *region.offsets.last().expect("a stretch is never empty");
    let known = (last - first) as usize + HEAD_LEN;
    let mut bytes = vec![0; known];
    region.file.read_exact_at(&mut bytes, u64::from(first))?;
    let head = Head::parse(&bytes[known - HEAD_LEN..], region.binding)
        .ok_or_else(|| damaged(region, last))?;
    bytes.resize(known - HEAD_LEN + head.frame_len(), 0);
    region
        .file
        .read_exact_at(&mut bytes[known..], u64::from(first) + known as u64)?;

    let bytes = Bytes::from(bytes);
    let mut entries = Vec::with_capacity(region.offsets.len());
    for (nth, &offset) in region.offsets.iter().enumerate() {
        let at = (offset - first) as usize;
        let head = Head::parse(&bytes[at..], region.binding)
            .filter(|head| head.kind == Kind::Entry)
            .filter(|head| head.id.index == region.first + nth as u64)
            .filter(|head| at + head.frame_len() <= bytes.len())
            .filter(|head| frame::verify(&bytes[at..at + head.frame_len()], region.binding))
            .ok_or_else(|| damaged(region, offset))?;
        let payload = at + HEAD_LEN..at + HEAD_LEN + head.len;
        entries.push((head.id, bytes.slice(payload)));
    }
    Ok(entries)
}

fn damaged(region: &Region, offset: u32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "the write-ahead log is damaged: segment {} at offset {offset} no longer holds the entry that was \
             written there",
            segment::name(region.seq)
        ),
    )
}
