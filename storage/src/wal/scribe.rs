//! Room `storage`, WAL: the hand that writes. Runs on the WAL lane: encodes operations straight into one
//! buffer, writes it with one call, syncs once. It alone touches the segment in use, and it alone knows what of
//! it is durable.

use super::core::{Batch, Op, Roll};
use super::frame::{self, HEADER_LEN, Kind, START_FRAME_LEN, Start, State};
use super::map::Run;
use super::metrics::WalMetrics;
use super::segment::{self, Depot, Fault, Segment};
use std::sync::Arc;
use tenon_env::{Clock, Plant};
use tenon_proto::log::LogId;

/// The buffer is written out when it has grown to this.
const CHUNK: usize = 4 << 20;

pub(super) struct Scribe {
    depot: Arc<Depot>,
    clock: Arc<dyn Clock>,
    metrics: Arc<WalMetrics>,
    plant: Plant,
    /// The log as of the last frame encoded.
    state: State,
    active: Option<Active>,
    /// Frames encoded and not yet written.
    buf: Vec<u8>,
}

/// The segment in use.
struct Active {
    segment: Segment,
    /// End of what is written; `buf` goes here.
    offset: u64,
    /// End of what is durable.
    synced: u64,
}

impl Active {
    fn name(&self) -> String {
        segment::name(self.segment.seq)
    }
}

impl Scribe {
    /// Goes on with a log that ended in `state`, behind the frames of `last`, which end there durably.
    pub(super) fn new(
        depot: Arc<Depot>,
        clock: Arc<dyn Clock>,
        metrics: Arc<WalMetrics>,
        plant: Plant,
        state: State,
        last: Option<(Segment, u64)>,
    ) -> Scribe {
        Scribe {
            depot,
            clock,
            metrics,
            plant,
            state,
            active: last.map(|(segment, end)| Active {
                segment,
                offset: end,
                synced: end,
            }),
            buf: Vec::new(),
        }
    }

    /// Writes what of `batch` is not written yet and makes it as durable as it wants to be. After
    /// [`Fault::NoSpace`] it may be called again with the same batch and goes on where it stopped.
    pub(super) fn run(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        if self.plant == Plant::AcknowledgeBeforeSync && batch.ops.iter().any(Op::wants_sync) {
            self.sync()?;
        }
        loop {
            self.write(batch)?;
            if batch.offsets.len() == batch.ops.len() {
                break;
            }
            self.encode(batch)?;
        }
        if batch.ops[batch.settled..]
            .iter()
            .any(|op| self.waits_for(op))
        {
            self.sync()?;
        }
        batch.settled = batch.ops.len();
        Ok(())
    }

    /// Whether an operation's answer waits for the disk.
    fn waits_for(&self, op: &Op) -> bool {
        match self.plant {
            Plant::AcknowledgeBeforeSync => false,
            Plant::SkipVoteSync => op.wants_sync() && !matches!(op, Op::Vote(_) | Op::Done(_)),
            _ => op.wants_sync(),
        }
    }

    fn encode(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        while let Some(op) = batch.ops.get(batch.offsets.len()) {
            if let Op::Done(_) = op {
                batch.offsets.push(0);
                continue;
            }
            if self.buf.len() >= CHUNK {
                break;
            }
            if !self.fits(op.frame_len()) {
                if !self.buf.is_empty() {
                    break;
                }
                self.roll(batch)?;
            }
            // A frame larger than a whole segment gets a segment of its own, grown as needed.
            let op = &batch.ops[batch.offsets.len()];
            batch.offsets.push(self.encode_op(op));
        }
        Ok(())
    }

    fn fits(&self, len: usize) -> bool {
        self.active.as_ref().is_some_and(|active| {
            active.offset + (self.buf.len() + len) as u64 <= active.segment.capacity
        })
    }

    /// Returns the offset of the frame in its segment.
    fn encode_op(&mut self, op: &Op) -> u32 {
        let floor_bytes;
        let (kind, id, payload): (Kind, LogId, &[u8]) = match op {
            Op::Entry(entry) => (Kind::Entry, entry.id, &entry.payload),
            Op::Vote(vote) => (Kind::Vote, frame::vote_id(vote), &[]),
            Op::Committed(id) => (Kind::Committed, *id, &[]),
            Op::Truncate(Some(id)) => (Kind::Truncate, *id, &[]),
            Op::Truncate(None) => (Kind::TruncateAll, LogId::default(), &[]),
            Op::Reset(to) => (Kind::Reset, *to, &[]),
            Op::Purge { floor, id } => {
                floor_bytes = floor.to_le_bytes();
                let kind = if id.is_some() {
                    Kind::Purge
                } else {
                    Kind::Drop
                };
                (kind, id.unwrap_or_default(), &floor_bytes)
            }
            Op::Done(_) => unreachable!("a done mark has no frame"),
        };
        let active = self.active.as_ref().expect("a segment was taken");
        let fits = self.state.on_frame(kind, id, payload, active.segment.seq);
        assert!(
            fits,
            "a frame of kind {kind:?} and id {id:?} cannot follow {:?}",
            self.state
        );
        let at = offset32(active.offset + self.buf.len() as u64);
        let durable = offset32(active.synced);
        frame::encode(
            &mut self.buf,
            active.segment.binding,
            kind,
            id,
            durable,
            payload,
        );
        at
    }

    /// Begins the next segment. The one before is durable to its end first, for recovery takes a bad frame in
    /// any segment but the last for damage.
    fn roll(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        if self.active.is_some() {
            self.sync()?;
            batch.settled = batch.offsets.len();
        }
        let segment = self.depot.take()?;
        let previous_end = self.active.as_ref().map_or(0, |a| a.offset);
        let start = Start {
            previous_end,
            state: self.state,
        };
        let durable = HEADER_LEN as u32;
        frame::encode(
            &mut self.buf,
            segment.binding,
            Kind::Start,
            LogId::default(),
            durable,
            &start.encode(),
        );
        batch.rolls.push_back(Roll {
            first: batch.offsets.len(),
            run: Run::new(segment.seq, segment.file.clone(), segment.binding),
            previous_end,
        });
        self.active = Some(Active {
            segment,
            offset: HEADER_LEN as u64,
            synced: HEADER_LEN as u64,
        });
        Ok(())
    }

    fn write(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        let Some(active) = self.active.as_mut().filter(|_| !self.buf.is_empty()) else {
            return Ok(());
        };
        let began = self.clock.now();
        active
            .segment
            .file
            .write_all_at(&self.buf, active.offset)
            .map_err(|e| Fault::of(format_args!("write to {}", active.name()), e))?;
        active.offset += self.buf.len() as u64;
        self.metrics
            .on_write(self.buf.len(), self.clock.now() - began);
        self.buf.clear();
        self.buf.shrink_to(2 * CHUNK);
        batch.end = active.offset;
        batch.nearly_full = active.offset >= active.segment.capacity / 4 * 3;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let Some(active) = self.active.as_mut().filter(|a| a.synced < a.offset) else {
            return Ok(());
        };
        let began = self.clock.now();
        active
            .segment
            .file
            .sync()
            .map_err(|e| Fault::of_sync(format_args!("sync {}", active.name()), e))?;
        self.metrics.fsync.observe(self.clock.now() - began);
        if active.synced < (HEADER_LEN + START_FRAME_LEN) as u64 {
            self.depot.on_started();
        }
        active.synced = active.offset;
        Ok(())
    }
}

fn offset32(offset: u64) -> u32 {
    u32::try_from(offset).expect("a segment is far smaller than 4 GiB")
}
