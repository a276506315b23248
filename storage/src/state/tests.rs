//! Room storage, state: tests. No real time, threads or files; drains and sweeps happen when a test says
//! so, or through the tasks in a world moved by hand.

mod archive;
mod checkpoints;
mod crash;
mod golden;
mod install;
mod model;
mod random;
mod refusals;
#[cfg(feature = "engine-sled")]
mod sled;
mod tasks;

use super::checkpoint;
use super::compact;
use super::flush::{Drained, drain};
use super::{EngineKind, Store, StoreOptions};
use crate::mvcc::index::Swept;
use crate::wal::tests::disk::FakeDisk;
use crate::wal::tests::world::{Hands, node};
use std::path::Path;
use tenon_env::Env;
use tenon_proto::command::command::Body;
use tenon_proto::command::{Command, CommandBatch, CommandResult};
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::*;
use tenon_proto::ids::LogIndex;
use tenon_proto::log::LogId;

pub(super) const DIR: &str = "/data/member";

/// A store on a disk that tests can break.
pub(super) struct Life {
    pub disk: FakeDisk,
    pub env: Env,
    pub hands: Hands,
    pub store: Store,
    pub options: StoreOptions,
}

pub(super) fn small() -> StoreOptions {
    StoreOptions {
        engine_cache_bytes: 1 << 20,
        recent_bytes_max: 2_000,
        read_cache_bytes_max: 64 << 10,
        ..StoreOptions::default()
    }
}

/// The same with another engine.
pub(super) fn small_on(engine: EngineKind) -> StoreOptions {
    StoreOptions { engine, ..small() }
}

pub(super) fn id(term: u64, index: u64) -> LogId {
    LogId {
        term,
        node_id: 1,
        index,
    }
}

impl Life {
    pub(super) fn new() -> Life {
        Life::on(FakeDisk::default(), small())
    }

    pub(super) fn on(disk: FakeDisk, options: StoreOptions) -> Life {
        let (env, hands) = node(&disk, 1);
        let store = Store::open(&env, Path::new(DIR), options).expect("the store opens");
        Life {
            disk,
            env,
            hands,
            store,
            options,
        }
    }

    /// Closes and opens again on the same disk, which keeps everything.
    pub(super) fn reopened(self) -> Life {
        let Life {
            disk,
            store,
            hands,
            env,
            options,
        } = self;
        hands.kill();
        drop((store, env));
        Life::on(disk, options)
    }

    pub(super) fn next_id(&self) -> LogId {
        let applied = self.store.applied().map_or(0, |id| id.index);
        id(1, applied + 1)
    }

    pub(super) fn run(&self, body: impl Into<Body>) -> CommandResult {
        let command = Command {
            body: Some(body.into()),
            ..Command::default()
        };
        let batch = CommandBatch {
            commands: vec![command],
        };
        let mut results = self
            .store
            .apply(self.next_id(), &batch)
            .expect("no fatal error");
        results.remove(0)
    }

    /// Runs a command that must succeed.
    pub(super) fn must<T>(&self, body: impl Into<Body>) -> T
    where
        T: TryFrom<CommandResult, Error = Error>,
    {
        T::try_from(self.run(body)).expect("the command succeeds")
    }

    /// Runs a command that must be refused.
    pub(super) fn refused(&self, body: impl Into<Body>) -> Error {
        self.run(body)
            .into_result()
            .expect_err("the command is refused")
    }

    pub(super) fn put(&self, key: &str, value: &str) -> PutResponse {
        self.must(put(key, value))
    }

    /// Says that the WAL has everything and drains until nothing is left.
    pub(super) fn drain(&self) {
        let applied = self.store.applied().map_or(0, |id| id.index);
        self.store.set_wal_flushed(LogIndex(applied));
        while drain(&self.store.inner).expect("the engine works") == Drained::Some {}
        if self.options.engine != EngineKind::Redb {
            checkpoint::write_now(&self.store.inner).expect("the disk works");
        }
    }

    /// Sweeps the index for the newest compaction; the removals wait for the next drain.
    pub(super) fn sweep(&self) {
        let (at, by) = {
            let state = self.store.inner.state.read();
            (state.compacted, state.compacted_by)
        };
        let mut after = None;
        while let Swept::Until(key) = compact::step(&self.store.inner, after.as_deref(), at, by) {
            after = Some(key);
        }
        self.store.inner.state.write().pending.finish_sweep(at);
    }

    pub(super) fn all(&self) -> RangeResponse {
        self.store
            .range(&range("\0", "\0"))
            .expect("a range of everything")
    }
}

pub(super) fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..PutRequest::default()
    }
}

pub(super) fn delete(key: &str, end: &str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        prev_kv: false,
    }
}

pub(super) fn range(key: &str, end: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        ..RangeRequest::default()
    }
}

pub(super) fn compaction(revision: i64) -> CompactionRequest {
    CompactionRequest {
        revision,
        physical: false,
    }
}

pub(super) fn op(request: request_op::Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}
