//! Room storage: what the store costs without anything around it: time per put, memory per key, start,
//! reads, compaction. `cargo run --release -p tenon-storage --example store_costs -- [keys] [folder]`;
//! a second run with a third argument, `open`, opens what the first left and removes it.
//!
//! Prints a table; asserts nothing. Real disk; times are of the calling thread on a processor, but where it
//! waits for tasks.
#![expect(
    clippy::disallowed_methods,
    reason = "a measurement, not part of the store"
)]

use std::path::Path;
use std::time::{Duration, Instant};
use tenon_env::Env;
use tenon_proto::command::{Command, CommandBatch};
use tenon_proto::etcdserverpb::{CompactionRequest, PutRequest, RangeRequest};
use tenon_proto::log::LogId;
use tenon_storage::{Store, StoreOptions};

const COMMANDS: u64 = 256;

fn memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or("");
    let kb = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}

fn key(i: u64) -> bytes::Bytes {
    format!("/registry/pods/namespace/{i:010}").into()
}

fn batch(keys: impl Iterator<Item = u64>) -> CommandBatch {
    let value = bytes::Bytes::from(vec![b'v'; 256]);
    let put = |i| Command {
        body: Some(
            PutRequest {
                key: key(i),
                value: value.clone(),
                ..PutRequest::default()
            }
            .into(),
        ),
        ..Command::default()
    };
    CommandBatch {
        commands: keys.map(put).collect(),
    }
}

/// Time this thread was on a processor: what other programs do does not count.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Applies batches of puts; answers the time spent in apply alone.
async fn puts(store: &Store, keys: impl Iterator<Item = u64>) -> (u64, Duration) {
    let mut keys = keys.peekable();
    let (mut spent, mut count) = (Duration::ZERO, 0);
    while keys.peek().is_some() {
        let entry = batch(keys.by_ref().take(COMMANDS as usize));
        store.room().await;
        let index = store.applied().map_or(0, |id| id.index) + 1;
        let began = on_cpu();
        store
            .apply(
                LogId {
                    term: 1,
                    node_id: 1,
                    index,
                },
                &entry,
            )
            .expect("no fatal error");
        spent += on_cpu() - began;
        count += entry.commands.len() as u64;
        store.set_wal_flushed(index);
    }
    (count, spent)
}

fn tell(what: &str, count: u64, spent: Duration) {
    let each = spent.as_nanos() as f64 / count.max(1) as f64 / 1000.0;
    println!(
        "{what:<40} {each:>9.2} µs each, {spent:>10.2?} in all, {:>5} MB resident",
        memory_mb()
    );
}

async fn drained(store: &Store) {
    let applied = store.applied().map_or(0, |id| id.index);
    let mut durable = store.watch_engine_durable();
    durable
        .wait_for(|at| at.get() >= applied)
        .await
        .expect("the drain lives");
}

fn range(key: bytes::Bytes, end: bytes::Bytes) -> RangeRequest {
    RangeRequest {
        key,
        range_end: end,
        ..RangeRequest::default()
    }
}

async fn measure(env: Env, dir: &Path, keys: u64) {
    let store = Store::open(&env, dir, StoreOptions::default()).expect("it opens");
    store.start(&env);
    println!(
        "{keys} keys of {} bytes, values of 256; empty: {} MB",
        key(0).len(),
        memory_mb()
    );
    let began = Instant::now();
    let (count, spent) = puts(&store, 0..keys).await;
    tell("put, new keys ascending (apply)", count, spent);
    drained(&store).await;
    tell("  with the drain", count, began.elapsed());
    let (count, spent) = puts(&store, (0..keys / 4).map(|i| i * 7919 % keys)).await;
    tell("put, overwrites at random (apply)", count, spent);
    drained(&store).await;
    reads(&store, keys);
    compaction(&store).await;
    println!("size: {:?}", store.size());
    store.shutdown().await;
}

/// Opens what [`measure`] left, in a process that did nothing else.
async fn reopen(env: Env, dir: &Path, keys: u64) {
    let (began, used) = (Instant::now(), on_cpu());
    let store = Store::open(&env, dir, StoreOptions::default()).expect("it opens again");
    tell("open", keys, on_cpu() - used);
    println!("  by the clock {:?}", began.elapsed());
    reads(&store, keys);
    store.start(&env);
    store.shutdown().await;
}

fn reads(store: &Store, keys: u64) {
    let all = range(b"\0"[..].into(), b"\0"[..].into());
    let began = on_cpu();
    let newest = store
        .range(&range(key(keys - 1), bytes::Bytes::new()))
        .expect("a get");
    assert_eq!(newest.count, 1);
    for _ in 0..100_000 {
        store
            .range(&range(key(keys - 1), bytes::Bytes::new()))
            .expect("a get");
    }
    tell("get, one hot key", 100_000, on_cpu() - began);
    let began = on_cpu();
    for i in 0..20_000 {
        store
            .range(&range(key(i * 7919 % keys), bytes::Bytes::new()))
            .expect("a get");
    }
    tell("get, keys at random", 20_000, on_cpu() - began);
    let began = on_cpu();
    let counted = store
        .range(&RangeRequest {
            count_only: true,
            ..all.clone()
        })
        .expect("a count");
    tell("count of all", counted.count as u64, on_cpu() - began);
    let began = on_cpu();
    let limited = store
        .range(&RangeRequest {
            limit: 500,
            ..all.clone()
        })
        .expect("a page");
    tell(
        "first 500 of all, with the count",
        limited.kvs.len() as u64,
        on_cpu() - began,
    );
    let began = on_cpu();
    let found = store.range(&range(key(0), key(10_000))).expect("a scan");
    tell("range of 10,000", found.kvs.len() as u64, on_cpu() - began);
    let began = on_cpu();
    let sum = store.hash_kv(0.into()).expect("HashKV");
    println!("HashKV {:08x}", sum.hash);
    tell("HashKV", keys, on_cpu() - began);
}

async fn compaction(store: &Store) {
    let revision = store.revision();
    let request = CompactionRequest {
        revision: revision.get(),
        physical: true,
    };
    let command = Command {
        body: Some(request.into()),
        ..Command::default()
    };
    let index = store.applied().map_or(0, |id| id.index) + 1;
    let began = Instant::now();
    let entry = CommandBatch {
        commands: vec![command],
    };
    store
        .apply(
            LogId {
                term: 1,
                node_id: 1,
                index,
            },
            &entry,
        )
        .expect("no fatal error");
    store.set_wal_flushed(index);
    store.wait_compacted(revision).await;
    tell("compaction, physical", 1, began.elapsed());
}

fn main() {
    let mut args = std::env::args().skip(1);
    let keys = args
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let folder = args.next().unwrap_or_else(|| "target/store_costs".into());
    let dir = Path::new(&folder);
    let again = args.next().is_some_and(|word| word == "open");
    if !again {
        let _ = std::fs::remove_dir_all(dir);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (env, dir) = (tenon_env::real::env_without_peers(), dir.join("member"));
        match again {
            false => measure(env, &dir, keys).await,
            true => reopen(env, &dir, keys).await,
        }
    });
    if again {
        let _ = std::fs::remove_dir_all(dir);
    }
}
