//! Room `raft`: openraft's log and vote over `storage`'s WAL, with the newest entries kept decoded. May touch
//! the WAL, the store's notion of what is flushed, and nothing else.
//!
//! - Entries are readable when `append` returns; the callback says that they are durable.
//! - A vote is durable when `save_vote` returns; votes and appends share one order in the WAL.
//! - `save_committed` never waits: the WAL writes it unsynced.
//! - `get_log_state` reports what is physically gone, not what was asked to go: what the engine does not hold
//!   durably must still be found in the log after a crash.

use crate::recent::Recent;
use crate::sole::Sole;
use crate::types::{Body, Config, Entry, LogId, Vote, from_log_id, from_vote, to_log_id, to_vote};
use futures_util::Stream;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use tenon_env::sync::oneshot;
use tenon_proto::ids::LogIndex;
use tenon_storage::Store;
use tenon_storage::wal::{Done, Recovery, Wal, WalEntry, WalError};

/// Bytes of decoded entries kept for apply and replication.
const RECENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of one read from the log: one message to a peer, or one step of applying.
const READ_BYTES_MAX: usize = 2 << 20;

/// The log and the vote. Clones name the same log; openraft's readers are clones.
#[derive(Clone)]
pub(crate) struct LogStore(Arc<Shared>);

struct Shared {
    wal: Wal,
    store: Store,
    sole: Arc<Sole>,
    recent: Mutex<Recent>,
    vote: Mutex<Option<Vote>>,
    committed_at_start: Option<LogId>,
}

impl LogStore {
    pub(crate) fn new(wal: Wal, recovery: &Recovery, store: Store, sole: Arc<Sole>) -> LogStore {
        // What recovery found is durable. Without being told, the store could not drain while the log is
        // replayed, and a replay larger than its memory would wait for ever.
        store.set_wal_flushed(recovery.last.as_ref().map_or(0, |id| id.index));
        LogStore(Arc::new(Shared {
            wal,
            store,
            sole,
            recent: Mutex::new(Recent::new(RECENT_BYTES_MAX)),
            vote: Mutex::new(recovery.vote.as_ref().map(to_vote)),
            committed_at_start: recovery.committed.as_ref().map(to_log_id),
        }))
    }

    /// Entries of `start..end` from `start` on, as many as `bytes_max` allows and at least one; none when
    /// `start` is not in the log.
    async fn read_some(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        if start >= end {
            return Ok(Vec::new());
        }
        if let Some(found) = self.0.recent.lock().range(start, end, bytes_max) {
            return Ok(found);
        }
        let limit = usize::try_from(end - start).unwrap_or(usize::MAX);
        let frames = self.0.wal.fetch(LogIndex(start), limit, bytes_max).await?;
        frames
            .into_iter()
            .map(|(_, bytes)| Entry::decode(bytes).map_err(damaged))
            .collect()
    }

    async fn wait(&self, start: impl FnOnce(&Wal, Done)) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        start(&self.0.wal, Box::new(move |result| drop(tx.send(result))));
        match rx.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other("the write-ahead log is gone")),
        }
    }
}

fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the log holds {what}"))
}

/// `range` as `start..end`.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(n) => *n,
        Bound::Excluded(n) => n + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(n) => n + 1,
        Bound::Excluded(n) => *n,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<Config> for LogStore {
    async fn try_get_log_entries<R>(&mut self, range: R) -> io::Result<Vec<Entry>>
    where
        R: RangeBounds<u64> + Clone + Debug + Send,
    {
        let (start, end) = bounds(&range);
        let (_, last) = self.0.wal.log_state();
        let mut next = start.max(self.0.wal.first_index().0);
        let end = end.min(last.map_or(0, |id| id.index + 1));
        let mut found = Vec::new();
        while next < end {
            let some = self.read_some(next, end, READ_BYTES_MAX).await?;
            let Some(last) = some.last() else { break };
            next = last.id().index + 1;
            found.extend(some);
        }
        Ok(found)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read_some(start, end, READ_BYTES_MAX).await
    }

    async fn entries_stream<R>(&mut self, range: R) -> impl Stream<Item = io::Result<Entry>> + Send
    where
        R: RangeBounds<u64> + Clone + Debug + Send,
    {
        let (start, end) = bounds(&range);
        let state = (self.clone(), start, Vec::new().into_iter());
        futures_util::stream::try_unfold(state, move |(log, mut next, mut read)| async move {
            let mut entry: Option<Entry> = read.next();
            if entry.is_none() && next < end {
                read = log.read_some(next, end, READ_BYTES_MAX).await?.into_iter();
                entry = read.next();
            }
            next += 1;
            Ok(entry.map(|entry| (entry, (log, next, read))))
        })
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(*self.0.vote.lock())
    }
}

impl RaftLogStorage<Config> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<Config>> {
        let (purged, last) = self.0.wal.log_state();
        Ok(LogState {
            last_purged_log_id: purged.as_ref().map(to_log_id),
            last_log_id: last.as_ref().or(purged.as_ref()).map(to_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.0.sole.on_vote(
            vote.leader_id.term,
            vote.leader_id.voted_for,
            vote.committed,
        );
        self.wait(|wal, done| wal.save_vote(from_vote(vote), done))
            .await?;
        *self.0.vote.lock() = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        if let Some(id) = committed {
            self.0.wal.save_committed(from_log_id(id));
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let last = self.0.wal.log_state().1.as_ref().map(to_log_id);
        Ok(self.0.committed_at_start.min(last))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Config>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut frames = Vec::new();
        let mut last = 0;
        let mut recent = self.0.recent.lock();
        for mut entry in entries {
            let id = entry.id();
            last = id.index;
            if let Body::Membership(membership) = entry.body() {
                let voters: Vec<u64> = membership.voter_ids().collect();
                self.0.sole.on_membership(id.index, &voters);
            }
            let payload = entry.seal();
            recent.push(entry, payload.len());
            frames.push(WalEntry {
                id: from_log_id(id),
                payload,
            });
        }
        drop(recent);
        let store = self.0.store.clone();
        let done = move |result: Result<(), WalError>| {
            if result.is_ok() {
                store.set_wal_flushed(last);
            }
            callback.io_completed(result.map_err(io::Error::other));
        };
        self.0.wal.append(frames, Box::new(done));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let end = self.0.wal.log_state().1.as_ref().map(to_log_id);
        if last >= end {
            return Ok(());
        }
        self.0.sole.on_truncate();
        self.0
            .recent
            .lock()
            .drop_from(last.map_or(0, |id| id.index + 1));
        self.wait(|wal, done| wal.truncate_after(last.map(from_log_id), done))
            .await?;
        // What was flushed beyond the cut is no more. Appends that follow say when they are durable.
        self.0.store.set_wal_flushed(last.map_or(0, |id| id.index));
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.0.recent.lock().drop_through(upto.index);
        let last = self.0.wal.log_state().1;
        // By index: a log that ends before a snapshot may end in a higher term than the snapshot does.
        if last.is_some_and(|last| upto.index <= last.index) {
            self.0.wal.purge(from_log_id(upto));
            return Ok(());
        }
        self.0.recent.lock().clear();
        self.wait(|wal, done| wal.reset(from_log_id(upto), done))
            .await
    }
}
