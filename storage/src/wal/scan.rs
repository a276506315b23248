//! Room `storage`, WAL: reads one segment from end to end at start-up, through a bounded window, and judges
//! where its frames stop: at a clean end, at a torn tail, or at damage. Changes nothing.
//!
//! A write that a crash interrupted may leave any part of itself, so a bad frame with good ones behind it
//! proves nothing by itself. But each frame says up to where its segment was durable when it was written: a
//! good frame that says so of an offset *behind* the bad one proves that the bad one had been durable.

use super::frame::{
    self, HEAD_LEN, HEADER_LEN, Head, HeaderFault, Kind, SegmentHeader, Start, State,
};
use super::map::Run;
use std::io;
use std::sync::Arc;
use tenon_env::File;
use tenon_proto::log::LogId;

/// Bytes read at once.
const WINDOW: usize = 1 << 20;
/// The search for frames behind the end of the good ones is given up after so many bytes without a head: two
/// of the writer's writes. Damage that wiped out more than that reads as an end.
const QUIET: u64 = 8 << 20;

/// How much of a segment counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A later segment says that the frames end here: nothing before may be bad.
    Sealed(u64),
    /// The last segment: frames end where they end.
    Open,
}

/// What a segment does to the entries of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    After(LogId),
    All,
}

/// One segment, read.
pub(super) struct Scan {
    pub(super) start: Start,
    /// State of the log where the frames end.
    pub(super) state: State,
    pub(super) run: Run,
    pub(super) cut: Option<Cut>,
    /// Offset after the last good frame.
    pub(super) end: u64,
    /// Everything before this offset was durable when the last good frame was written.
    pub(super) durable: u64,
    /// Whether part of a frame of this segment stands after `end`.
    pub(super) torn: bool,
}

/// Why a segment cannot be used.
#[derive(Debug)]
pub(super) enum ScanFault {
    Io(io::Error),
    Header(HeaderFault),
    /// The header is good and no frame was ever durable: a spare.
    Unstarted,
    Damaged {
        offset: u64,
        after: Option<LogId>,
        what: String,
    },
}

impl From<io::Error> for ScanFault {
    fn from(error: io::Error) -> ScanFault {
        ScanFault::Io(error)
    }
}

/// The header of the segment in `file`, which must be number `seq`.
pub(super) fn read_header(file: &dyn File, seq: u64) -> Result<SegmentHeader, ScanFault> {
    let mut bytes = [0; HEADER_LEN];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(ScanFault::Header(HeaderFault::NotASegment));
        }
        Err(e) => return Err(e.into()),
    }
    let header = SegmentHeader::decode(&bytes).map_err(ScanFault::Header)?;
    if header.seq != seq {
        return Err(ScanFault::Header(HeaderFault::NotASegment));
    }
    Ok(header)
}

/// Reads segment `seq`.
pub(super) fn scan(file: &Arc<dyn File>, seq: u64, extent: Extent) -> Result<Scan, ScanFault> {
    let header = read_header(&**file, seq)?;
    let len = file.len()?;
    let limit = match extent {
        Extent::Sealed(end) if end > len => {
            return Err(ScanFault::Damaged {
                offset: len,
                after: None,
                what: format!("the file has {len} bytes, its frames end at {end}"),
            });
        }
        Extent::Sealed(end) => end,
        Extent::Open => len,
    };
    let mut window = Window::new(&**file, limit);
    let mut scan = match first(&mut window, &header, file)? {
        Some(scan) => scan,
        None => return Err(unstarted(&mut window, &header, extent)?),
    };
    while let Some(at) = step(&mut scan, &mut window, &header)? {
        scan.end = at;
    }
    judge_end(scan, &mut window, &header, extent)
}

/// Reads the start frame.
fn first(
    window: &mut Window<'_>,
    header: &SegmentHeader,
    file: &Arc<dyn File>,
) -> Result<Option<Scan>, ScanFault> {
    let Some((head, bytes)) = window.frame(HEADER_LEN as u64, header)? else {
        return Ok(None);
    };
    let start = match head.kind {
        Kind::Start => Start::decode(&bytes[HEAD_LEN..HEAD_LEN + head.len]),
        _ => None,
    };
    let Some(start) = start else {
        return Err(ScanFault::Damaged {
            offset: HEADER_LEN as u64,
            after: None,
            what: "the segment does not begin with a start frame".to_owned(),
        });
    };
    Ok(Some(Scan {
        start,
        state: start.state,
        run: Run::new(header.seq, file.clone(), header.binding()),
        cut: None,
        end: (HEADER_LEN + head.frame_len()) as u64,
        durable: HEADER_LEN as u64,
        torn: false,
    }))
}

/// A segment without a good first frame: a spare, or damaged.
fn unstarted(
    window: &mut Window<'_>,
    header: &SegmentHeader,
    extent: Extent,
) -> Result<ScanFault, ScanFault> {
    let offset = HEADER_LEN as u64;
    let proven = extent != Extent::Open || rest(window, offset, header)?.proof.is_some();
    Ok(if proven {
        ScanFault::Damaged {
            offset,
            after: None,
            what: "its first frame fails its checksum".to_owned(),
        }
    } else {
        ScanFault::Unstarted
    })
}

/// Takes in the frame at the end reached so far. Returns the offset behind it, or `None` where frames stop.
fn step(
    scan: &mut Scan,
    window: &mut Window<'_>,
    header: &SegmentHeader,
) -> Result<Option<u64>, ScanFault> {
    let offset = scan.end;
    let Some((head, bytes)) = window.frame(offset, header)? else {
        return Ok(None);
    };
    let payload = &bytes[HEAD_LEN..HEAD_LEN + head.len];
    let after = scan.state.last;
    if !scan.state.on_frame(head.kind, head.id, payload, header.seq) {
        return Err(ScanFault::Damaged {
            offset,
            after,
            what: format!("a frame of kind {:?} cannot stand here", head.kind),
        });
    }
    scan.durable = u64::from(head.durable);
    match head.kind {
        Kind::Entry => {
            let at = u32::try_from(offset).map_err(io::Error::other)?;
            scan.run.push(head.id, at);
        }
        Kind::Truncate => {
            scan.run.cut_after(head.id);
            let lower = match scan.cut {
                None => true,
                Some(Cut::After(id)) => head.id.index < id.index,
                Some(Cut::All) => false,
            };
            if lower {
                scan.cut = Some(Cut::After(head.id));
            }
        }
        Kind::TruncateAll | Kind::Reset => {
            scan.run.clear();
            scan.cut = Some(Cut::All);
        }
        _ => {}
    }
    Ok(Some(offset + head.frame_len() as u64))
}

/// Decides what it means that the frames stop at `scan.end`.
fn judge_end(
    mut scan: Scan,
    window: &mut Window<'_>,
    header: &SegmentHeader,
    extent: Extent,
) -> Result<Scan, ScanFault> {
    scan.run.bytes = scan.end;
    let what = match extent {
        Extent::Sealed(end) if end == scan.end => return Ok(scan),
        Extent::Sealed(end) => {
            format!("a frame fails its checksum; the next segment says that frames go on to {end}")
        }
        Extent::Open => {
            let rest = rest(window, scan.end, header)?;
            scan.torn = rest.torn;
            match rest.proof {
                None => return Ok(scan),
                Some(at) => format!(
                    "a frame fails its checksum though it was durable before the frame at {at} was written"
                ),
            }
        }
    };
    Err(ScanFault::Damaged {
        offset: scan.end,
        after: scan.state.last,
        what,
    })
}

/// What stands after the last good frame.
struct Rest {
    /// Part of a frame of this segment.
    torn: bool,
    /// Offset of a good frame which says that the bytes at the end had been durable.
    proof: Option<u64>,
}

fn rest(window: &mut Window<'_>, end: u64, header: &SegmentHeader) -> io::Result<Rest> {
    let binding = header.binding();
    let mut rest = Rest {
        torn: false,
        proof: None,
    };
    let (mut at, mut reach) = (end, end);
    while let Some(bytes) = window.stretch(at, HEAD_LEN)? {
        if at > reach + QUIET {
            break;
        }
        let Some(skip) = candidate(bytes) else {
            // The last bytes may be the beginning of a head that the next stretch holds whole.
            at += ((bytes.len() - HEAD_LEN) / frame::ALIGN + 1) as u64 * frame::ALIGN as u64;
            continue;
        };
        let found = Head::parse(&bytes[skip..], binding);
        at += skip as u64;
        if let Some(head) = found {
            rest.torn = true;
            reach = reach.max(at + head.frame_len() as u64);
            if u64::from(head.durable) > end && window.frame(at, header)?.is_some() {
                rest.proof = Some(at);
                return Ok(rest);
            }
        }
        at += frame::ALIGN as u64;
    }
    Ok(rest)
}

/// Where in `bytes` a head may begin: quick to pass over zeros, which the rest of a segment mostly is.
fn candidate(bytes: &[u8]) -> Option<usize> {
    const PAGE: usize = 512;
    let last = bytes.len() - HEAD_LEN;
    let mut at = 0;
    while at <= last {
        if bytes[at..].len() >= PAGE && bytes[at..at + PAGE].iter().all(|byte| *byte == 0) {
            // A head that begins in the last bytes says its kind behind the zeros.
            at += PAGE - frame::ALIGN;
            continue;
        }
        let end = (at + PAGE - HEAD_LEN).min(last + 1);
        match (at..end)
            .step_by(frame::ALIGN)
            .find(|at| frame::may_begin(&bytes[*at..]))
        {
            Some(found) => return Some(found),
            None => at += PAGE - HEAD_LEN,
        }
    }
    None
}

/// A bounded view that slides over a file.
struct Window<'a> {
    file: &'a dyn File,
    /// Nothing at or behind this offset is read.
    limit: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn File, limit: u64) -> Window<'a> {
        Window {
            file,
            limit,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// `len` bytes at `offset`, or `None` when they reach behind the limit.
    fn get(&mut self, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        let end = offset.saturating_add(len as u64);
        if end > self.limit {
            return Ok(None);
        }
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let left = self.limit - offset;
            let fill = usize::try_from(left)
                .map_or(WINDOW, |left| left.min(WINDOW))
                .max(len);
            self.bytes.resize(fill, 0);
            self.start = offset;
            self.file.read_exact_at(&mut self.bytes, offset)?;
        }
        let at = (offset - self.start) as usize;
        Ok(Some(&self.bytes[at..at + len]))
    }

    /// As many bytes at `offset` as are at hand, `least` at the least, or `None`.
    fn stretch(&mut self, offset: u64, least: usize) -> io::Result<Option<&[u8]>> {
        if self.get(offset, least)?.is_none() {
            return Ok(None);
        }
        Ok(Some(&self.bytes[(offset - self.start) as usize..]))
    }

    /// The good frame at `offset`, or `None`.
    fn frame(&mut self, offset: u64, header: &SegmentHeader) -> io::Result<Option<(Head, &[u8])>> {
        let binding = header.binding();
        let Some(bytes) = self.get(offset, HEAD_LEN)? else {
            return Ok(None);
        };
        let Some(head) = Head::parse(bytes, binding) else {
            return Ok(None);
        };
        if u64::from(head.durable) > offset {
            return Ok(None);
        }
        match self.get(offset, head.frame_len())? {
            Some(frame) if frame::verify(frame, binding) => Ok(Some((head, frame))),
            _ => Ok(None),
        }
    }
}
