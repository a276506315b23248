//! Room storage, engines: records in sled's files. sled loses data on power loss, has no snapshots and no
//! batch over trees (DESIGN §4.1), so its files are scratch: made empty at every open, removed when the
//! engine goes. What is durable is the checkpoint beside it and the log.
//!
//! sled has threads and files of its own and cannot run over env's `Disk`; the simulator never uses it.

use super::volatile::{RecordHome, VolatileEngine};
use super::{EngineError, RecordKey};
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenon_env::Disk;

/// sled's fan-out; its default.
const LEAF_FANOUT: usize = 1024;
/// How fast zstd has to be rather than small.
const COMPRESSION: i32 = -5;
/// How often sled writes what changed, milliseconds: until then it stays in memory.
const FLUSH_MS: usize = 500;

/// An engine whose records stand in sled's files.
pub type SledEngine = VolatileEngine<SledHome>;

type Db = sled::Db<LEAF_FANOUT>;

/// Records in sled.
pub struct SledHome {
    /// Handles that nobody uses at the moment; a handle serves one thread at a time.
    idle: Mutex<Vec<Db>>,
    /// For more of them.
    first: Mutex<Option<Db>>,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
}

fn failed(error: std::io::Error) -> EngineError {
    EngineError::Failed(format!("sled: {error}"))
}

/// An empty engine whose files stand in `dir`, a folder of the real file system; what stood there is
/// removed. `cache_bytes` is a wish: sled holds more.
pub fn engine(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    cache_bytes: usize,
) -> Result<SledEngine, EngineError> {
    if disk.stat(dir).map_err(failed)?.is_some() {
        disk.remove_dir_all(dir).map_err(failed)?;
    }
    let config = sled::Config::new()
        .path(dir)
        .cache_capacity_bytes(cache_bytes)
        .zstd_compression_level(COMPRESSION)
        .flush_every_ms(Some(FLUSH_MS));
    let db = config.open().map_err(failed)?;
    Ok(VolatileEngine::new(SledHome {
        idle: Mutex::default(),
        first: Mutex::new(Some(db)),
        dir: dir.to_owned(),
        disk: disk.clone(),
    }))
}

impl SledHome {
    fn with<T>(&self, use_it: impl FnOnce(&Db) -> std::io::Result<T>) -> Result<T, EngineError> {
        let idle = self.idle.lock().pop();
        let db = idle.or_else(|| self.first.lock().clone());
        let db = db.expect("an engine in use is not dropped");
        let answer = use_it(&db);
        self.idle.lock().push(db);
        answer.map_err(failed)
    }
}

fn bound((main, sub): (i64, u32)) -> [u8; 17] {
    let key = RecordKey {
        main,
        sub,
        tombstone: false,
    };
    let bytes = key.to_bytes();
    bytes[..].try_into().expect("a record's key without a mark")
}

impl RecordHome for SledHome {
    fn get(&self, key: RecordKey) -> Result<Option<Bytes>, EngineError> {
        let found = self.with(|db| db.get(&*key.to_bytes()))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn some(
        &self,
        from: (i64, u32),
        to: (i64, u32),
        limit: usize,
    ) -> Result<Vec<(RecordKey, Bytes)>, EngineError> {
        self.with(|db| {
            let mut some = Vec::new();
            for entry in db.range(&bound(from)[..]..&bound(to)[..]).take(limit) {
                let (key, value) = entry?;
                let key = RecordKey::from_bytes(&key)
                    .ok_or_else(|| std::io::Error::other("a revision key is malformed"))?;
                some.push((key, Bytes::copy_from_slice(&value)));
            }
            Ok(some)
        })
    }

    fn insert(&self, records: &[(RecordKey, Bytes)]) -> Result<(), EngineError> {
        self.with(|db| {
            for (key, value) in records {
                db.insert(&*key.to_bytes(), &**value)?;
            }
            Ok(())
        })
    }

    fn remove(&self, keys: &[RecordKey]) -> Result<(), EngineError> {
        // One by one: sled does not free leaves that a batch emptied.
        self.with(|db| {
            for key in keys {
                db.remove(&*key.to_bytes())?;
            }
            Ok(())
        })
    }

    fn allocated(&self) -> u64 {
        self.with(|db| db.size_on_disk()).unwrap_or(0)
    }

    fn name(&self) -> &'static str {
        "sled"
    }
}

impl Drop for SledHome {
    fn drop(&mut self) {
        self.idle.lock().clear();
        drop(self.first.lock().take());
        if let Err(error) = self.disk.remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot remove sled's files; \
                the next start does");
        }
    }
}
