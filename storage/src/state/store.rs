//! Room storage, state: the public face of a member's replicated state.

use std::path::Path;
use tenon_env::{Env, sync::watch};
use tenon_proto::command::{CommandBatch, CommandResult};
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
}

/// Bounds of a store's memory and rhythm.
#[derive(Clone, Debug)]
pub struct StoreOptions {
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
    pub drain_interval: std::time::Duration,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            engine_cache_bytes: 32 << 20,
            recent_bytes_max: 64 << 20,
            read_cache_bytes_max: 8 << 20,
            undrained_bytes_max: 64 << 20,
            drain_bytes: 8 << 20,
            drain_interval: std::time::Duration::from_millis(100),
        }
    }
}

/// Bytes a store takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// On disk, length of the engine's file.
    pub allocated: u64,
    /// By records and rows that are still needed or not yet removed, with an allowance for the
    /// engine's own structure. Falls when compaction removes records.
    pub in_use: u64,
}

/// The replicated state of a member. Clones name the same state.
#[derive(Clone)]
pub struct Store {}

impl Store {
    /// Opens the state under `dir` (`<data>/member`), creating it when absent. Blocking.
    pub fn open(env: &Env, dir: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        let _ = (env, dir, options);
        unimplemented!("being written")
    }

    /// Starts the drain and compaction tasks of this store through `env`.
    pub fn start(&self, env: &Env) {
        let _ = env;
        unimplemented!("being written")
    }

    /// Drains what the WAL has flushed and ends the tasks. The store answers reads afterwards.
    pub async fn shutdown(&self) {
        unimplemented!("being written")
    }

    /// The newest applied entry.
    pub fn applied(&self) -> Option<LogId> {
        unimplemented!("being written")
    }

    /// Index of the newest entry whose effect is durable in the engine; 0 before any.
    pub fn engine_durable(&self) -> u64 {
        unimplemented!("being written")
    }

    /// Follows [`Store::engine_durable`].
    pub fn watch_engine_durable(&self) -> watch::Receiver<u64> {
        unimplemented!("being written")
    }

    /// Applies one entry's commands in order: memory only, a pure function of (state, id, commands).
    /// `id.index` must follow the applied one. After `Err` the state is to be given up.
    pub fn apply(&self, id: LogId, batch: &CommandBatch) -> Result<Vec<CommandResult>, Fatal> {
        let _ = (id, batch);
        unimplemented!("being written")
    }

    /// Applies an entry without content.
    pub fn apply_blank(&self, id: LogId) {
        let _ = id;
        unimplemented!("being written")
    }

    /// Applies a membership entry and creates the missing rows of the members table from it.
    pub fn apply_membership(&self, id: LogId, membership: &Membership) {
        let _ = (id, membership);
        unimplemented!("being written")
    }

    /// The newest applied membership and the entry that brought it.
    pub fn membership(&self) -> (Option<LogId>, Membership) {
        unimplemented!("being written")
    }

    /// Waits while more is applied and undrained than the options allow. Call before applying.
    pub async fn room(&self) {
        unimplemented!("being written")
    }

    /// Tells how far the WAL is flushed: the engine is never drained beyond it.
    pub fn set_wal_flushed(&self, index: u64) {
        let _ = index;
        unimplemented!("being written")
    }

    /// The reason this store gave up, once it has.
    pub fn watch_fatal(&self) -> watch::Receiver<Option<Fatal>> {
        unimplemented!("being written")
    }

    /// The current revision; 1 for an empty store.
    pub fn revision(&self) -> i64 {
        unimplemented!("being written")
    }

    /// The newest compaction's revision; -1 before any.
    pub fn compact_revision(&self) -> i64 {
        unimplemented!("being written")
    }

    /// Bytes taken.
    pub fn size(&self) -> StoreSize {
        unimplemented!("being written")
    }
}
