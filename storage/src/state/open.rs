//! Room storage, state: rebuilding the memory from the engine at start: one sequential scan, values
//! stepped over.

use super::alarms::Alarms;
use super::core::{Inner, State};
use super::home;
use super::members::Members;
use super::pending::{Mark, Pending};
use super::rows::{self, Meta};
use super::store::{OpenError, StoreOptions};
use crate::engine::{Batch, Engine, EngineError, RECORD_COST, RecordKey, Table, View};
use crate::lease::Lessor;
use crate::mvcc::entry::KeyEntry;
use crate::mvcc::index::Index;
use crate::mvcc::read_cache::ReadCache;
use crate::mvcc::recent::Recent;
use crate::mvcc::record::{Writer, decode_head};
use crate::watch::WatchHub;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tenon_env::Env;
use tenon_env::sync::{Notify, watch};
use tenon_proto::ids::{LogIndex, Revision};

/// Records gathered and sorted at once; bounds the memory of the rebuild.
const SORTED_AT_ONCE: usize = 256 << 10;

/// A record as the index wants it.
struct Loaded {
    key: Box<[u8]>,
    record: RecordKey,
    created: i64,
    version: i64,
    lease: i64,
}

/// Opens the engine under `dir` and rebuilds the memory.
pub(crate) fn open(env: &Env, dir: &Path, options: StoreOptions) -> Result<Inner, OpenError> {
    let (engine, checkpoint) = home::open(env, dir, &options)?;
    prepare(&*engine)?;
    let (state, lessor) = rebuild(env, &*engine, &options)?;
    let durable = state.engine_mark.map_or(0, |mark| mark.id.index);
    Ok(Inner {
        env: env.clone(),
        dir: dir.to_owned(),
        engine: RwLock::new(Arc::from(engine)),
        drain_gate: Mutex::new(()),
        read_cache: ReadCache::new(options.read_cache_bytes_max),
        lessor,
        watches: WatchHub::new(state.revision, state.compacted, options.watch),
        pins: Arc::default(),
        checkpoint: super::checkpoint::Rhythm::new(checkpoint, options.checkpoint_bytes),
        measures: super::measures::Measures::new(options.warn_apply),
        wal_flushed: AtomicU64::new(0),
        durable: watch::Sender::new(LogIndex(durable)),
        swept: watch::Sender::new(Revision(state.swept)),
        fatal: watch::Sender::new(None),
        stopping: watch::Sender::new(false),
        stalled: Mutex::new(None),
        work: Notify::new(),
        urgent: Notify::new(),
        compact: Notify::new(),
        drained: Notify::new(),
        state: RwLock::new(state),
        options,
    })
}

/// The memory as the engine's content says.
pub(crate) fn rebuild(
    env: &Env,
    engine: &dyn Engine,
    options: &StoreOptions,
) -> Result<(State, Lessor), EngineError> {
    let view = engine.view()?;
    let damaged = |what: &str| EngineError::Damaged(format!("row {what}"));
    let meta = Meta::read(&view.rows(Table::Meta)?).map_err(damaged)?;
    let (index, loaded) = load(&*view)?;
    let state = state_of(&meta, view, index, loaded, options)?;
    let lessor = leases(env, &state)?;
    Ok((state, lessor))
}

/// Checks that an engine carries our format; a new engine is marked.
fn prepare(engine: &dyn Engine) -> Result<(), EngineError> {
    let meta = engine.view()?.rows(Table::Meta)?;
    match Meta::read(&meta).map(|meta| meta.format) {
        Ok(Some(rows::FORMAT)) => Ok(()),
        Ok(None) if meta.is_empty() => {
            let rows = vec![rows::format()];
            engine.commit(&Batch {
                rows,
                ..Batch::default()
            })
        }
        Ok(format) => Err(EngineError::Damaged(format!(
            "format {} of the store; this version reads format {}",
            format.unwrap_or(0),
            rows::FORMAT
        ))),
        Err(row) => Err(EngineError::Damaged(format!("row {row}"))),
    }
}

/// What the scan learns beside the index.
#[derive(Default)]
struct Sums {
    last_main: i64,
    bytes: u64,
}

fn load(view: &dyn View) -> Result<(Index, Sums), EngineError> {
    let mut index = Index::default();
    let mut sums = Sums::default();
    let mut gathered: Vec<Loaded> = Vec::new();
    let mut damaged = None;
    view.scan((0, 0), (i64::MAX, u32::MAX), &mut |record, value| {
        let Some(head) = decode_head(value) else {
            damaged = Some(record);
            return ControlFlow::Break(());
        };
        sums.last_main = record.main;
        sums.bytes += value.len() as u64 + RECORD_COST;
        gathered.push(Loaded {
            key: head.key.into(),
            record,
            created: head.created,
            version: head.version,
            lease: head.lease,
        });
        if gathered.len() == SORTED_AT_ONCE {
            merge(&mut index, &mut gathered);
        }
        ControlFlow::Continue(())
    })?;
    if let Some(record) = damaged {
        return Err(EngineError::Damaged(format!(
            "record {}/{}",
            record.main, record.sub
        )));
    }
    merge(&mut index, &mut gathered);
    Ok((index, sums))
}

/// Adds gathered records to the index, in key order for the sake of the processor's caches.
fn merge(index: &mut Index, gathered: &mut Vec<Loaded>) {
    gathered.sort_unstable_by(|a, b| {
        a.key
            .cmp(&b.key)
            .then_with(|| a.record.position().cmp(&b.record.position()))
    });
    let mut fresh: Vec<(Box<[u8]>, KeyEntry)> = Vec::new();
    let all_new = index.is_empty();
    for Loaded {
        key,
        record,
        created,
        version,
        lease,
    } in gathered.drain(..)
    {
        let known = match fresh.last_mut() {
            Some((last, entry)) if *last == key => Some(entry),
            _ if all_new => None,
            _ => index.get_mut(&key),
        };
        match known {
            Some(entry) => entry.restore(record, created, version, lease),
            None => fresh.push((key, KeyEntry::restored(record, created, version, lease))),
        }
    }
    index.extend_sorted(fresh);
}

fn state_of(
    meta: &Meta,
    view: Arc<dyn View>,
    index: Index,
    sums: Sums,
    options: &StoreOptions,
) -> Result<State, EngineError> {
    let position = &meta.position;
    let revision = position.revision.max(1);
    if sums.last_main > revision {
        let text = format!("record of revision {} above {revision}", sums.last_main);
        return Err(EngineError::Damaged(text));
    }
    let damaged = |table: &str| EngineError::Damaged(format!("table {table}"));
    let members = Members::from_rows(&view.rows(Table::Members)?);
    let alarms = Alarms::from_rows(&view.rows(Table::Alarms)?);
    let compacted = position.compacted_next - 1;
    let engine_mark = position
        .applied
        .map(|id| Mark::durable(id, revision, compacted));
    Ok(State {
        index,
        recent: Recent::new(options.recent_bytes_max),
        writer: Writer::default(),
        revision,
        compacted,
        compacted_by: position.applied.map_or(0, |id| id.index),
        swept: position.swept_next - 1,
        applied: position.applied,
        membership_id: meta.membership.id,
        membership: meta.membership.membership.clone().unwrap_or_default(),
        members: members.map_err(|_| damaged("members"))?,
        alarms: alarms.map_err(|_| damaged("alarm"))?,
        cluster_version: meta.cluster_version.clone(),
        pending: Pending::default(),
        in_view: State::after(revision),
        view,
        engine_mark,
        record_bytes: sums.bytes,
    })
}

fn leases(env: &Env, state: &State) -> Result<Lessor, EngineError> {
    let rows = state.view.rows(Table::Leases)?;
    let everything = crate::mvcc::index::Interval::new(b"\0", b"\0");
    let attached = state
        .index
        .range(everything)
        .filter(|(_, entry)| entry.lease() != 0);
    let attached = attached.map(|(key, entry)| (Bytes::copy_from_slice(key), entry.lease()));
    Lessor::restore(
        env.clock.clone(),
        rows.iter().map(|(_, value)| &**value),
        attached,
    )
    .map_err(|_| EngineError::Damaged("table lease".into()))
}
