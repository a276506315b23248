//! Room storage, state: the public face of a member's replicated state.

use super::agree::{self, Disagreement};
use super::core::Inner;
use super::install::SnapshotReceiver;
use super::measures::Measures;
use super::members::Member;
use super::read::RangeCursor;
use super::rows::Meta;
use super::snapshot::SnapshotView;
use super::sums::HashKvSum;
use super::{apply, checkpoint, compact, flush, install, open, read, sums};
use crate::engine::{Durability, EngineError, Table};
use crate::lease::Lessor;
use crate::wal::Recovery;
use crate::watch::{History, WatchHub, WatchOptions};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenon_env::{Env, Lane, Task, sync::watch};
use tenon_proto::command::{CommandBatch, CommandResult};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::{
    AlarmMember, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use tenon_proto::ids::{LogIndex, MemberId, Revision};
use tenon_proto::log::{LogId, Membership};

/// An environment error that ends the member: disk gone, sync failed, file damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage failed: {0}")]
pub struct Fatal(pub String);

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine's file cannot be opened, read or understood.
    #[error("cannot open the store: {0}")]
    Engine(#[from] crate::engine::EngineError),
    /// The engine asked for is not part of this build.
    #[error(
        "the storage engine sled is not part of this build: build it with the cargo feature engine-sled"
    )]
    NotBuilt,
    /// The folder was written by another engine: the one found, the one asked for.
    #[error(
        "the data directory was written by the storage engine {0}, not {1}: start with it, or give the \
         data to a new directory (tenon util snapshot restore, or a new member of the cluster)"
    )]
    OtherEngine(&'static str, &'static str),
    /// Engine and log do not belong together.
    #[error("{0}")]
    Disagreement(#[from] Disagreement),
}

/// Which engine stands behind a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// redb, on disk.
    #[default]
    Redb,
    /// sled, on disk, beside a checkpoint; needs the feature `engine-sled` and a real disk.
    Sled,
    /// Memory, beside a checkpoint on disk.
    Memory,
}

impl EngineKind {
    /// Every engine, by its name in `--storage-engine`.
    pub const NAMES: [(&'static str, EngineKind); 3] = [
        ("redb", EngineKind::Redb),
        ("sled", EngineKind::Sled),
        ("memory", EngineKind::Memory),
    ];

    /// The engine of that name, if this build has it.
    ///
    /// # Errors
    /// What is wrong with the name, or which feature is missing.
    pub fn read(name: &str) -> Result<EngineKind, String> {
        let known = EngineKind::NAMES.iter().find(|(known, _)| *known == name);
        match known {
            Some((_, EngineKind::Sled)) if !cfg!(feature = "engine-sled") => {
                Err(OpenError::NotBuilt.to_string())
            }
            Some((_, kind)) => Ok(*kind),
            None => Err("it must be redb, sled or memory".into()),
        }
    }
}

/// Bounds of a store's memory and rhythm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The engine.
    pub engine: EngineKind,
    /// Page cache of the engine, bytes.
    pub engine_cache_bytes: usize,
    /// Recently written records kept in memory, bytes, beyond those not yet in the engine.
    pub recent_bytes_max: usize,
    /// Records read back from the engine kept in memory, bytes.
    pub read_cache_bytes_max: usize,
    /// Applied and not yet in the engine, bytes, at which [`Store::room`] makes the caller wait.
    pub undrained_bytes_max: usize,
    /// Undrained bytes that start a drain at once.
    pub drain_bytes: usize,
    /// Longest time applied entries wait for a drain.
    pub drain_interval: Duration,
    /// For an engine that keeps nothing itself: bytes drained after which a checkpoint is written, at
    /// least; a large state waits for half its own size.
    pub checkpoint_bytes: u64,
    /// Applies and reads that take longer are logged and counted.
    pub warn_apply: Duration,
    /// Keys a sweep after a compaction looks at while it holds the lock once; at least 1.
    pub sweep_keys: usize,
    /// Pause between two steps of a sweep, for readers and writers.
    pub sweep_pause: Duration,
    /// Bounds of the watches.
    pub watch: WatchOptions,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            engine: EngineKind::Redb,
            engine_cache_bytes: 32 << 20,
            recent_bytes_max: 64 << 20,
            read_cache_bytes_max: 8 << 20,
            undrained_bytes_max: 64 << 20,
            drain_bytes: 8 << 20,
            drain_interval: Duration::from_millis(100),
            checkpoint_bytes: 64 << 20,
            warn_apply: Duration::from_millis(100),
            sweep_keys: 1_000,
            sweep_pause: Duration::from_millis(10),
            watch: WatchOptions::default(),
        }
    }
}

/// Bytes a store takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// On disk, length of the engine's file. It does not shrink.
    pub allocated: u64,
    /// By records, drained or not, with an allowance for the engine's own structure. Falls when
    /// compaction removes records: what a quota is judged by.
    pub in_use: u64,
}

/// The replicated state of a member. Clones name the same state.
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<Inner>,
    tasks: Arc<Mutex<Vec<Task>>>,
}

impl Store {
    /// Opens the state under `dir` (`<data>/member`), creating it when absent. Blocking: reads every
    /// record once.
    ///
    /// # Errors
    /// What the disk says; damage; another version's format.
    pub fn open(env: &Env, dir: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        let inner = Arc::new(open::open(env, dir, options)?);
        Ok(Store {
            inner,
            tasks: Arc::default(),
        })
    }

    /// Starts the drain and compaction tasks of this store through `env`.
    pub fn start(&self, env: &Env) {
        let drain = env.spawn("storage drain", flush::run(self.inner.clone()));
        let sweep = env.spawn("storage compaction", compact::run(self.inner.clone()));
        self.tasks.lock().extend([drain, sweep]);
        if self.inner.engine().durability() == Durability::Checkpoint {
            let checkpoints = env.spawn("storage checkpoint", checkpoint::run(self.inner.clone()));
            self.tasks.lock().push(checkpoints);
        }
    }

    /// Drains what the WAL has flushed, ends the tasks and closes the engine, so that the same folder may
    /// be opened again even while clones of this store are still held somewhere. Reads that need the
    /// engine answer `Stopped` afterwards; nothing may be applied any more.
    pub async fn shutdown(&self) {
        self.inner.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.ended().await;
        }
        let engine = self.inner.engine();
        let closed = self
            .inner
            .env
            .blocking(Lane::Engine, move || engine.close())
            .await;
        if let Ok(Err(error)) = closed {
            tracing::warn!(%error, "the storage engine did not close in order");
        }
    }

    /// Whether the log found beside this freshly opened store is the one it was filled from; to be asked
    /// before anything is written to either.
    ///
    /// # Errors
    /// [`OpenError::Disagreement`]; what the disk says.
    pub fn check_log(&self, log: &Recovery) -> Result<(), OpenError> {
        let state = self.inner.state.read();
        let rows = state.view.rows(Table::Meta)?;
        let meta = Meta::read(&rows).map_err(|row| EngineError::Damaged(format!("row {row}")))?;
        Ok(agree::check(state.applied, meta.received, log)?)
    }

    /// The newest applied entry.
    pub fn applied(&self) -> Option<LogId> {
        self.inner.state.read().applied
    }

    /// The newest entry whose effect is durable in the engine; 0 before any.
    pub fn engine_durable(&self) -> LogIndex {
        *self.inner.durable.borrow()
    }

    /// The newest entry whose effect the engine shows: what [`Store::snapshot`] covers.
    pub fn drained(&self) -> LogIndex {
        let state = self.inner.state.read();
        LogIndex(state.engine_mark.map_or(0, |mark| mark.id.index))
    }

    /// Waits until the engine shows everything that is applied now; returns early for a store that is lost
    /// or stops.
    pub async fn wait_drained(&self) {
        self.inner.wait_drained().await;
    }

    /// Follows [`Store::engine_durable`].
    pub fn watch_engine_durable(&self) -> watch::Receiver<LogIndex> {
        self.inner.durable.subscribe()
    }

    /// Tells how far the WAL is flushed: the engine is never drained beyond it. May fall when the log
    /// is truncated.
    pub fn set_wal_flushed(&self, index: impl Into<LogIndex>) {
        self.inner
            .wal_flushed
            .store(index.into().get(), Ordering::Release);
        self.inner.work.notify_one();
    }

    /// Waits while more is applied and undrained than the options allow. Call before applying.
    pub async fn room(&self) {
        self.inner.wait_for_room().await;
    }

    /// The reason this store gave up, once it has.
    pub fn watch_fatal(&self) -> watch::Receiver<Option<Fatal>> {
        self.inner.fatal.subscribe()
    }

    /// Whether the engine's writes wait for the disk (no room, or it refuses writes). Reads go on.
    pub fn is_stalled(&self) -> bool {
        self.inner.stalled.lock().is_some()
    }
}

/// Applying, in the order of the log.
impl Store {
    /// Applies one entry's commands in order: memory only, a pure function of (state, id, commands).
    ///
    /// # Errors
    /// Only when the disk failed while a command needed an older value; the store is lost then.
    ///
    /// # Panics
    /// When `id` does not follow the applied entry.
    pub fn apply(&self, id: LogId, batch: &CommandBatch) -> Result<Vec<CommandResult>, Fatal> {
        apply::batch(&self.inner, id, batch)
    }

    /// Applies an entry without content.
    pub fn apply_blank(&self, id: LogId) {
        apply::blank(&self.inner, id);
    }

    /// Applies a membership entry and creates the missing rows of the members table from it.
    pub fn apply_membership(&self, id: LogId, membership: &Membership) {
        apply::membership(&self.inner, id, membership);
    }
}

/// Reading keys.
impl Store {
    /// The current revision; 1 for an empty store.
    pub fn revision(&self) -> Revision {
        Revision(self.inner.state.read().revision)
    }

    /// The newest compaction's revision; -1 before any.
    pub fn compact_revision(&self) -> Revision {
        Revision(self.inner.state.read().compacted)
    }

    /// A range, as etcd answers it. The header has the revision only.
    ///
    /// # Errors
    /// Static checks ([`crate::check`]); `FutureRev`, `Compacted`; `Stopped` for a lost store.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        read::range(&self.inner, request)
    }

    /// A range in pieces at one revision, for streams and long scans: pairs in key order up to the
    /// limit. Sort and filters of the request are ignored.
    ///
    /// # Errors
    /// As [`Store::range`].
    pub fn range_cursor(&self, request: &RangeRequest) -> Result<RangeCursor, Error> {
        read::cursor(&self.inner, request)
    }

    /// A read-only transaction, all of it at one revision.
    ///
    /// # Errors
    /// As [`Store::range`].
    ///
    /// # Panics
    /// When it is not read-only ([`check::txn_is_read_only`]).
    pub fn read_txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        read::txn(&self.inner, request)
    }

    /// HashKV at a revision, 0 = now. Blocking and long: reads every record.
    ///
    /// # Errors
    /// `FutureRev`, `Compacted`; `Stopped` for a lost store.
    pub fn hash_kv(&self, revision: Revision) -> Result<HashKvSum, Error> {
        let began = self.inner.env.now();
        let sum = sums::hash_kv(&self.inner, revision.get());
        let took = self.inner.env.now() - began;
        self.inner.measures.hashes_of_revisions.observe(took);
        sum
    }

    /// A sum over everything stored, for tests. Blocking and long.
    ///
    /// # Errors
    /// `Stopped` for a lost store.
    pub fn hash(&self) -> Result<u32, Error> {
        let began = self.inner.env.now();
        let sum = sums::hash(&self.inner);
        self.inner
            .measures
            .hashes
            .observe(self.inner.env.now() - began);
        sum
    }

    /// Waits until this member's engine has removed what the compaction at `revision` passed
    /// (`physical` of a compaction). Returns early when the store stops.
    pub async fn wait_compacted(&self, revision: Revision) {
        self.inner.wait_swept(revision.get()).await;
    }

    /// Keys in the index: the live ones, and deleted ones that compaction has not passed yet.
    pub fn key_count(&self) -> usize {
        self.inner.state.read().index.len()
    }

    /// What is counted and timed for metrics.
    pub fn measures(&self) -> &Measures {
        &self.inner.measures
    }

    /// Bytes taken.
    pub fn size(&self) -> StoreSize {
        let engine = self.inner.engine().size();
        let recorded = self.inner.state.read().record_bytes;
        StoreSize {
            allocated: engine.allocated,
            in_use: recorded.saturating_sub(engine.removed_bytes),
        }
    }
}

/// What stands beside the keys.
impl Store {
    /// Leases.
    pub fn leases(&self) -> &Lessor {
        &self.inner.lessor
    }

    /// Watches.
    pub fn watches(&self) -> &WatchHub {
        &self.inner.watches
    }

    /// Past changes, for watches.
    pub fn history(&self) -> Arc<dyn History> {
        self.inner.clone()
    }

    /// Raised alarms, by member, then type.
    pub fn alarms(&self) -> Vec<AlarmMember> {
        self.inner.state.read().alarms.list()
    }

    /// Current members, by id.
    pub fn members(&self) -> Vec<Member> {
        let state = self.inner.state.read();
        state.members.list(&state.membership)
    }

    /// Ids that were members once and are no more; they never return.
    pub fn removed_members(&self) -> Vec<MemberId> {
        self.inner.state.read().members.removed()
    }

    /// The newest applied membership and the entry that brought it.
    pub fn membership(&self) -> (Option<LogId>, Membership) {
        let state = self.inner.state.read();
        (state.membership_id, state.membership.clone())
    }

    /// The cluster's version `X.Y.Z`; empty until it was decided.
    pub fn cluster_version(&self) -> String {
        self.inner.state.read().cluster_version.clone()
    }

    /// The state where the engine's content stands, for snapshots; `None` before anything was drained.
    pub fn snapshot(&self) -> Option<SnapshotView> {
        SnapshotView::take(&self.inner)
    }

    /// Begins to receive a snapshot beside the running state. One at a time: a new one throws an
    /// unfinished one away. Blocking, for a lane.
    ///
    /// # Errors
    /// What the disk says.
    pub fn receive_snapshot(&self) -> Result<SnapshotReceiver, EngineError> {
        SnapshotReceiver::new(&self.inner)
    }

    /// Takes over a received snapshot ([`SnapshotReceiver::finish`]): the engine is durable at its
    /// position when this returns, reads and watches go on from it. Blocking (rebuilds the index), for
    /// [`tenon_env::Lane::Engine`]; nothing may be applied meanwhile.
    ///
    /// # Errors
    /// What the disk says, which ends the store.
    ///
    /// # Panics
    /// When the snapshot is older than what is applied.
    pub fn install_snapshot(&self, snapshot: &SnapshotView) -> Result<(), Fatal> {
        install::install(&self.inner, snapshot)
    }

    /// Name of the engine, as in `--storage-engine`.
    pub fn engine_name(&self) -> &'static str {
        self.inner.engine().name()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.inner.engine().name())
    }
}
