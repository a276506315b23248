//! Room `storage`, WAL: finds the log on disk at start-up. Reads every segment once, builds the map of
//! entries, cuts a torn tail, removes what counts as removed. Refuses damage before it changes anything.
//!
//! The last segment with a good first frame is read first: its frames tell which segments count as removed
//! (a crash may bring them back in any combination), and its first frame where the segment before it ends, and
//! so on backwards. Nothing is ever written behind a recovered tail: the next write begins a new segment, so
//! what a torn write left behind the cut can never be read again.

use super::WalError;
use super::error::{Damage, is_no_space};
use super::frame::{HeaderFault, State, VERSION};
use super::map::LogMap;
use super::scan::{self, Cut, Extent, Scan, ScanFault};
use super::segment::{self, Segment};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tenon_env::{Disk, File, OpenMode};

/// Bytes that are written again at a time.
const PIECE: u64 = 1 << 20;

/// The log as found.
pub(super) struct Recovered {
    pub(super) map: LogMap,
    pub(super) state: State,
    /// The last segment, to be gone on with, and where its frames end.
    pub(super) last: Option<(Segment, u64)>,
    /// Number of the next segment.
    pub(super) next_seq: u64,
    /// Whether a torn tail was cut.
    pub(super) torn: bool,
}

/// What stands in the folder.
struct Listing {
    segments: BTreeSet<u64>,
    leftovers: Vec<String>,
}

/// Opens the log in `dir`, which is created when absent. The last segment gets `segment_bytes` again.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    segment_bytes: u64,
) -> Result<Recovered, WalError> {
    let show = dir.display();
    disk.create_dir_all(dir)
        .map_err(WalError::open(format!("create {show}")))?;
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent)
            .map_err(WalError::open(format!("sync the folder of {show}")))?;
    }
    let mut listing = list(disk, dir)?;
    let Some(newest) = newest(disk, dir, &mut listing)? else {
        clean(disk, dir, &listing, u64::MAX)?;
        return Ok(Recovered {
            map: LogMap::default(),
            state: State::default(),
            last: None,
            next_seq: 1,
            torn: false,
        });
    };
    let (state, end, torn) = (newest.state, newest.end, newest.torn);
    let unproven = newest.durable..end;
    let mut segment = Segment {
        seq: newest.run.seq,
        binding: newest.run.binding,
        file: newest.run.file.clone(),
        capacity: end,
    };
    let map = chain(disk, dir, &listing, newest)?;
    write_again(&segment, unproven)?;
    settle_tail(&mut segment, end, torn, segment_bytes)?;
    clean(disk, dir, &listing, state.floor)?;
    Ok(Recovered {
        map,
        state,
        next_seq: segment.seq + 1,
        last: Some((segment, end)),
        torn,
    })
}

fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing, WalError> {
    let mut listing = Listing {
        segments: BTreeSet::new(),
        leftovers: Vec::new(),
    };
    let entries = disk
        .list(dir)
        .map_err(WalError::open(format!("list {}", dir.display())))?;
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        match segment::seq_of(&entry.name) {
            Some(seq) => {
                listing.segments.insert(seq);
            }
            None if segment::is_leftover(&entry.name) => listing.leftovers.push(entry.name),
            None => {}
        }
    }
    Ok(listing)
}

fn open(disk: &dyn Disk, dir: &Path, seq: u64, mode: OpenMode) -> Result<Arc<dyn File>, WalError> {
    let path = dir.join(segment::name(seq));
    disk.open(&path, mode)
        .map_err(WalError::open(format!("open {}", path.display())))
}

/// The last segment that holds frames. A spare behind it moves from the segments to the leftovers.
fn newest(disk: &dyn Disk, dir: &Path, listing: &mut Listing) -> Result<Option<Scan>, WalError> {
    let Some(&last) = listing.segments.last() else {
        return Ok(None);
    };
    let file = open(disk, dir, last, OpenMode::ReadWrite)?;
    match scan::scan(&file, last, Extent::Open) {
        Ok(scan) => return Ok(Some(scan)),
        Err(ScanFault::Unstarted) => {}
        Err(fault) => return Err(refuse(last, fault)),
    }
    if last == 1 {
        listing.segments.clear();
        listing.leftovers.push(segment::name(last));
        return Ok(None);
    }
    // A spare is made only once its predecessor's first frame is durable, so there is one at most.
    let before = last - 1;
    if !listing.segments.contains(&before) {
        return Err(missing(before));
    }
    let file = open(disk, dir, before, OpenMode::ReadWrite)?;
    let scan = scan::scan(&file, before, Extent::Open).map_err(|fault| match fault {
        ScanFault::Unstarted => damaged(before, 0, "it holds no frame, and a later segment exists"),
        fault => refuse(before, fault),
    })?;
    listing.segments.remove(&last);
    listing.leftovers.push(segment::name(last));
    Ok(Some(scan))
}

/// Reads the segments before `newest` that still count, and joins them all.
fn chain(disk: &dyn Disk, dir: &Path, listing: &Listing, newest: Scan) -> Result<LogMap, WalError> {
    let (state, last_seq, end) = (newest.state, newest.run.seq, newest.end);
    let mut scans = vec![newest];
    for seq in (state.floor + 1..last_seq).rev() {
        if !listing.segments.contains(&seq) {
            return Err(missing(seq));
        }
        let next = scans.last().expect("it begins with the newest").start;
        let file = open(disk, dir, seq, OpenMode::Read)?;
        let scan = scan::scan(&file, seq, Extent::Sealed(next.previous_end))
            .map_err(|fault| refuse(seq, fault))?;
        if scan.state != next.state {
            let what = "the next segment begins with another state than this one ends with";
            return Err(damaged(seq, scan.end, what));
        }
        scans.push(scan);
    }
    let mut map = LogMap::default();
    for scan in scans.into_iter().rev() {
        match scan.cut {
            Some(Cut::After(id)) => map.cut_after(id),
            Some(Cut::All) => map.clear(),
            None => {}
        }
        map.push_run(scan.run);
    }
    match map.broken_at(state.purged.map(|id| id.index + 1), state.last) {
        None => Ok(map),
        Some(index) => {
            let what = format!("the entry of index {index} is nowhere in the log");
            Err(damaged(last_seq, end, &what))
        }
    }
}

/// Writes the frames again of which none says that they were durable. After a sync that failed the system may keep
/// their pages as if they were on the disk: they are read back, a later sync passes them over, and the power takes
/// them, with frames behind them that are durable. Written again they are part of the next sync.
fn write_again(segment: &Segment, frames: Range<u64>) -> Result<(), WalError> {
    let name = segment::name(segment.seq);
    let mut at = frames.start;
    let mut bytes = Vec::new();
    while at < frames.end {
        let piece = (frames.end - at).min(PIECE);
        bytes.resize(usize::try_from(piece).expect("a piece is small"), 0);
        let file = &segment.file;
        let read = file.read_exact_at(&mut bytes, at);
        read.map_err(WalError::open(format!("read {name} at {at}")))?;
        let written = file.write_all_at(&bytes, at);
        written.map_err(WalError::open(format!("write {name} at {at}")))?;
        at += piece;
    }
    Ok(())
}

/// Cuts what stands behind the tail, reserves room anew, and makes all of it durable; the tail too, for frames
/// that a killed process wrote but never synced are about to be reported as kept.
fn settle_tail(
    segment: &mut Segment,
    end: u64,
    torn: bool,
    segment_bytes: u64,
) -> Result<(), WalError> {
    let name = segment::name(segment.seq);
    if torn {
        tracing::warn!(
            segment = name,
            offset = end,
            "the write-ahead log ends in a write that a crash interrupted; it was never acknowledged and is cut"
        );
    }
    let file = &segment.file;
    let cut = || WalError::open(format!("cut {name} at {end}"));
    file.set_len(end).map_err(cut())?;
    if end < segment_bytes {
        match file.allocate(segment_bytes) {
            Ok(()) => segment.capacity = segment_bytes,
            // Then the next write needs a new segment, and waits for room.
            Err(e) if is_no_space(&e) => file.set_len(end).map_err(cut())?,
            Err(e) => return Err(WalError::open(format!("reserve room for {name}"))(e)),
        }
    }
    file.sync().map_err(WalError::open(format!("sync {name}")))
}

/// Removes leftovers and the segments up to `floor`, and makes the folder as it is now durable.
fn clean(disk: &dyn Disk, dir: &Path, listing: &Listing, floor: u64) -> Result<(), WalError> {
    let gone = listing.segments.iter().filter(|seq| **seq <= floor);
    let names = gone.map(|seq| segment::name(*seq));
    for name in names.chain(listing.leftovers.iter().cloned()) {
        disk.remove_file(&dir.join(&name))
            .map_err(WalError::open(format!("remove {name}")))?;
    }
    disk.sync_dir(dir)
        .map_err(WalError::open(format!("sync {}", dir.display())))
}

fn refuse(seq: u64, fault: ScanFault) -> WalError {
    let name = segment::name(seq);
    match fault {
        ScanFault::Io(source) => WalError::open(format!("read {name}"))(source),
        ScanFault::Header(HeaderFault::Version(version)) => WalError::Version {
            segment: name.into(),
            version,
            known: VERSION,
        },
        ScanFault::Header(HeaderFault::NotASegment) => damaged(
            seq,
            0,
            "it does not begin with the header of a segment of this number",
        ),
        ScanFault::Unstarted => damaged(seq, 0, "it holds no frame"),
        ScanFault::Damaged {
            offset,
            after,
            what,
        } => WalError::Damaged(Arc::new(Damage {
            segment: name,
            offset,
            after,
            what,
        })),
    }
}

fn damaged(seq: u64, offset: u64, what: &str) -> WalError {
    WalError::Damaged(Arc::new(Damage {
        segment: segment::name(seq),
        offset,
        after: None,
        what: what.to_owned(),
    }))
}

fn missing(seq: u64) -> WalError {
    damaged(seq, 0, "the file is missing")
}
