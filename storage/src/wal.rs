//! Room `storage`: the write-ahead log, where the replicated log and the member's vote are kept. May touch
//! `proto` and `env`; knows neither openraft nor what entries mean.
//!
//! The log is a chain of segment files in one folder (`docs/format.md` gives every byte). Everything, votes,
//! truncations and purges too, is a checksummed frame appended to the last segment, so one order on disk is the
//! order of durability, and recovery is reading it. Nothing written is ever changed in place.
//!
//! **Group commit.** Callers queue; one task takes all that is queued, encodes it into one buffer, writes it
//! with one call, syncs once and answers in order. What arrives meanwhile is the next batch. Entries can be read
//! as soon as they are queued, from the tail in memory; older ones are read back from their segment through a
//! map of four bytes per entry.
//!
//! **Purge is an intent.** A segment goes only when all its entries are covered by the intent *and* by what the
//! storage engine holds durably; a durable frame says so before the file is removed. What a restart reports as
//! purged is this physical position, never the intent.
//!
//! **Torn and damaged.** The crash of a machine may leave any part of the last write. Recovery cuts it, durably,
//! before it goes on there, so it can never come back. Bad bytes anywhere else were durable once: the log refuses
//! to open and names segment, offset and index. Frames carry a checksum that begins with their segment's number
//! and a random salt, so neither a recycled file nor an older life of a block can pass for the present.
//!
//! **Errors.** A failed sync, and every failed write but one, is final: all later calls fail, [`Wal::fatal`]
//! tells the member, reads go on. A full disk is the exception: nothing is lost by it, so writing waits and
//! [`Wal::watch_space`] says so, first when there is no room for the *next* segment.
//!
//! It does not lock its folder against a second process (the member does, for the whole data directory), and it
//! does not decide when to purge.

mod core;
mod error;
mod frame;
mod map;
mod metrics;
mod read;
mod recover;
mod scan;
mod scribe;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use self::core::{Core, Found, Op};
use parking_lot::Mutex;
use scribe::Scribe;
use segment::Depot;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tenon_env::sync::{Notify, watch};
use tenon_env::{Env, Lane};
use tenon_proto::ids::LogIndex;
use tenon_proto::log::{LogId, Vote};
use writer::Writer;

pub use bytes::Bytes;
pub use error::{Damage, WalError};
pub use metrics::WalMetrics;

/// Called once with the fate of what was asked for, on the log's own task: it must be quick and must not block.
pub type Done = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// How a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Size of a segment, 4 KiB to 1 GiB. One segment is the unit of purging.
    pub segment_bytes: u64,
    /// Bytes of recent entries kept in memory once they are durable, for peers and for applying.
    pub tail_bytes: usize,
}

impl Default for WalOptions {
    fn default() -> WalOptions {
        WalOptions {
            segment_bytes: 64 << 20,
            tail_bytes: 8 << 20,
        }
    }
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalEntry {
    /// Where it stands.
    pub id: LogId,
    /// The encoded entry, at most 1 GiB, kept and returned byte for byte.
    pub payload: Bytes,
}

/// What [`Wal::open`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last vote saved.
    pub vote: Option<Vote>,
    /// The last committed position that reached the disk; may be older than the last one saved.
    pub committed: Option<LogId>,
    /// The log begins after this.
    pub purged: Option<LogId>,
    /// Id of the last entry; `purged` when there is none.
    pub last: Option<LogId>,
    /// Whether a write that a crash had interrupted was cut off.
    pub truncated_tail: bool,
    /// Whether the folder held a log at all, be it empty of entries.
    pub begun: bool,
}

/// Whether the disk has room for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// As far as is known.
    Enough,
    /// No room for a further segment of full size. What is left of the present one can still be written.
    Low,
    /// Writing waits for room. Nothing is acknowledged; reads go on.
    Out,
}

/// What the handles, the writer and its helpers share.
struct Shared {
    core: Mutex<Core>,
    wake: Notify,
    fatal: watch::Sender<Option<String>>,
    space: watch::Sender<Space>,
    ended: watch::Sender<bool>,
    metrics: Arc<WalMetrics>,
}

impl Shared {
    /// Ends the log: fails what is queued, then `ops`, which were on their way to disk.
    fn fail(&self, error: WalError, ops: Vec<Op>) {
        let queued = self.core.lock().fail(error.clone());
        for op in ops.into_iter().chain(queued) {
            if let Op::Done(done) = op {
                done(Err(error.clone()));
            }
        }
        self.wake.notify_one();
    }

    /// As [`Shared::fail`] for an error of the disk, which the member must learn of.
    fn fail_fatally(&self, text: String, ops: Vec<Op>) {
        tracing::error!("the write-ahead log failed, the member must stop: {text}");
        self.fail(WalError::Fatal(text.as_str().into()), ops);
        self.fatal.send_if_modified(|held| {
            let first = held.is_none();
            held.get_or_insert(text);
            first
        });
    }

    fn set_space(&self, space: Space) {
        self.space.send_if_modified(|held| {
            let changed = *held != space;
            *held = space;
            changed
        });
    }
}

/// Closes the log when the last handle goes.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.core.lock().close();
        self.0.wake.notify_one();
    }
}

/// The write-ahead log of one member. Clones name the same log; it closes when the last is dropped.
///
/// - Whatever is asked for becomes durable in the order of the calls.
/// - `begin ≤ flushed + 1 ≤ last + 1`: see [`Wal::flushed`].
/// - Entries have consecutive indexes; a gap is a bug of the caller and panics.
#[derive(Clone)]
pub struct Wal {
    shared: Arc<Shared>,
    env: Env,
    _handle: Arc<Handle>,
}

impl Wal {
    /// Opens the log in `dir` and starts its task. Blocking; reads every segment once, in a bounded window.
    /// What is reported is durable when this returns.
    ///
    /// # Errors
    /// [`WalError::Damaged`], [`WalError::Version`] and [`WalError::Open`].
    pub fn open(env: &Env, dir: &Path, options: WalOptions) -> Result<(Wal, Recovery), WalError> {
        assert!(
            (4 << 10..=1 << 30).contains(&options.segment_bytes),
            "segments of {} bytes",
            options.segment_bytes
        );
        let found = recover::recover(&*env.disk, dir, options.segment_bytes)?;
        let state = found.state;
        let recovery = Recovery {
            vote: state.vote,
            committed: state.committed,
            purged: state.purged,
            last: state.last,
            truncated_tail: found.torn,
            begun: found.last.is_some(),
        };
        let metrics = Arc::new(WalMetrics::default());
        let shared = Arc::new(Shared {
            core: Mutex::new(Core::new(&state, found.map, options.tail_bytes)),
            wake: Notify::new(),
            fatal: watch::Sender::new(None),
            space: watch::Sender::new(Space::Enough),
            ended: watch::Sender::new(false),
            metrics: metrics.clone(),
        });
        let depot = Depot::new(
            env,
            dir,
            options.segment_bytes,
            found.next_seq,
            metrics.clone(),
        );
        let depot = Arc::new(depot);
        let clock = env.clock.clone();
        let scribe = Scribe::new(depot.clone(), clock, metrics, env.plant, state, found.last);
        let writer = Writer::new(shared.clone(), env.clone(), depot);
        env.spawn("wal", writer.run(scribe));
        let wal = Wal {
            _handle: Arc::new(Handle(shared.clone())),
            shared,
            env: env.clone(),
        };
        Ok((wal, recovery))
    }

    fn submit(&self, done: Done, queue: impl FnOnce(&mut Core, Done)) {
        let mut core = self.shared.core.lock();
        match core.admit() {
            Ok(()) => queue(&mut core, done),
            Err(error) => {
                drop(core);
                return done(Err(error));
            }
        }
        drop(core);
        self.shared.wake.notify_one();
    }

    /// Appends entries, which follow the last one without a gap (any index may begin an empty log). They can
    /// be read at once; `done` is called when they are durable. Without entries, `done` waits for what was
    /// asked for before.
    pub fn append(&self, entries: Vec<WalEntry>, done: Done) {
        self.submit(done, |core, done| core.append(entries, done));
    }

    /// Saves the vote; `done` is called when it is durable.
    pub fn save_vote(&self, vote: Vote, done: Done) {
        self.submit(done, |core, done| core.save_vote(vote, done));
    }

    /// Notes the last committed position. Written soon, in order with the rest, and not waited for.
    pub fn save_committed(&self, id: LogId) {
        self.submit(Box::new(|_| ()), |core, _| core.save_committed(id));
    }

    /// Drops the entries after `keep`, which is in the log or is the purged position; all with `None`. They
    /// are gone at once; `done` is called when that is durable, and no entry appended later is durable before.
    /// [`Wal::flushed`] falls at once.
    pub fn truncate_after(&self, keep: Option<LogId>, done: Done) {
        self.submit(done, |core, done| core.truncate_after(keep, done));
    }

    /// Allows entries up to `upto`, which is not behind the last, to go. Segments are removed once
    /// [`Wal::set_engine_durable`] allows it too.
    pub fn purge(&self, upto: LogId) {
        self.submit(Box::new(|_| ()), |core, _| core.purge(upto));
    }

    /// The storage engine holds everything up to `index` durably. Never goes back.
    pub fn set_engine_durable(&self, index: LogIndex) {
        self.submit(Box::new(|_| ()), |core, _| core.set_engine_durable(index));
    }

    /// Drops all entries and counts the log as purged up to `to`, after a snapshot that is durable in the
    /// engine. The log is empty at once; `done` is called when that is durable.
    pub fn reset(&self, to: LogId, done: Done) {
        self.submit(done, |core, done| core.reset(to, done));
    }

    /// Entries from `first` on, in order: at most `limit_entries`, and at most `limit_bytes` of payload unless
    /// the first alone is larger. Empty when the log ends before `first`. May read the disk: see
    /// [`Wal::fetch`] for tasks.
    ///
    /// # Errors
    /// `NotFound` when the log begins after `first`; what the disk says; `InvalidData` for damage.
    pub fn read(
        &self,
        first: LogIndex,
        limit_entries: usize,
        limit_bytes: usize,
    ) -> io::Result<Vec<(LogId, Bytes)>> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < limit_entries && (entries.is_empty() || bytes < limit_bytes) {
            let next = first.0 + entries.len() as u64;
            let left = limit_entries - entries.len();
            let found = self
                .shared
                .core
                .lock()
                .look(next, left, limit_bytes - bytes);
            let more = match found {
                Found::End => break,
                Found::Purged if entries.is_empty() => return Err(self.purged_error(first)),
                Found::Purged => break,
                Found::Memory(more) => more,
                Found::Disk(region) => match read::read(&region) {
                    Ok(more) => more,
                    // The segment may have gone in the meantime.
                    Err(_) if next < self.first_index().0 => continue,
                    Err(error) => return Err(error),
                },
            };
            for (id, payload) in more {
                if bytes + payload.len() > limit_bytes && !entries.is_empty() {
                    return Ok(entries);
                }
                bytes += payload.len();
                entries.push((id, payload));
            }
        }
        Ok(entries)
    }

    /// As [`Wal::read`]; from memory where the entries are recent, on [`Lane::Read`] otherwise.
    ///
    /// # Errors
    /// As [`Wal::read`]; `Interrupted` when the node is shutting down.
    pub async fn fetch(
        &self,
        first: LogIndex,
        limit_entries: usize,
        limit_bytes: usize,
    ) -> io::Result<Vec<(LogId, Bytes)>> {
        let found = self
            .shared
            .core
            .lock()
            .look(first.0, limit_entries, limit_bytes);
        match found {
            Found::End => Ok(Vec::new()),
            Found::Purged => Err(self.purged_error(first)),
            Found::Memory(entries) => Ok(entries),
            Found::Disk(_) => {
                let wal = self.clone();
                let step = move || wal.read(first, limit_entries, limit_bytes);
                match self.env.blocking(Lane::Read, step).await {
                    Ok(result) => result,
                    Err(gone) => Err(io::Error::new(io::ErrorKind::Interrupted, gone)),
                }
            }
        }
    }

    fn purged_error(&self, first: LogIndex) -> io::Error {
        let begin = self.first_index();
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("log index {first} is purged, the log begins at {begin}"),
        )
    }

    /// The physical purge, which is what a restart would report, and the last entry, durable or not.
    pub fn log_state(&self) -> (Option<LogId>, Option<LogId>) {
        let core = self.shared.core.lock();
        (core.purged(), core.last())
    }

    /// How far the log may be purged, since this log was opened.
    pub fn purge_intent(&self) -> Option<LogId> {
        self.shared.core.lock().intent()
    }

    /// First index that can be read; one more than the last when the log is empty.
    pub fn first_index(&self) -> LogIndex {
        LogIndex(self.shared.core.lock().begin())
    }

    /// Everything up to this index is durable as it is now; 0 also when nothing is. Falls when entries are
    /// truncated, at the call, so that nothing derived from it may count a truncated entry as durable.
    pub fn flushed(&self) -> LogIndex {
        *self.shared.core.lock().flushed().borrow()
    }

    /// [`Wal::flushed`] as it changes. Values held by a receiver must be let go before the log is called.
    pub fn watch_flushed(&self) -> watch::Receiver<LogIndex> {
        self.shared.core.lock().flushed().subscribe()
    }

    /// Why the log failed, once it has.
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.shared.fatal.subscribe()
    }

    /// Whether the disk has room for the log.
    pub fn watch_space(&self) -> watch::Receiver<Space> {
        self.shared.space.subscribe()
    }

    /// Bytes of frames in the segments that count, and the number of these segments. The files take up to
    /// two segments more: what is reserved in the last, and the next.
    pub fn size(&self) -> (u64, usize) {
        let core = self.shared.core.lock();
        (core.bytes(), core.segments())
    }

    /// Counters for the shell.
    pub fn metrics(&self) -> &Arc<WalMetrics> {
        &self.shared.metrics
    }

    /// Takes nothing more, writes what is queued, and returns when the log's task has ended.
    pub async fn close(&self) {
        self.shared.core.lock().close();
        self.shared.wake.notify_one();
        let mut ended = self.shared.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (purged, last) = self.log_state();
        write!(f, "Wal(purged {purged:?}, last {last:?})")
    }
}
