//! Room storage, state: which files an engine has under a member's folder, and opening it on them.
//!
//! ```text
//! snap/db.redb       redb's file                      snap/received.redb        one being received
//! snap/checkpoint    what an engine that keeps        snap/received.checkpoint  likewise
//!                    nothing itself begins with       snap/checkpoint.new       one being written
//! snap/sled-<n>/     sled's files, scratch
//! ```

use super::store::{EngineKind, OpenError, StoreOptions};
use crate::archive::{ArchiveError, ArchiveReader, HashCheck, load};
use crate::engine::redb::RedbEngine;
use crate::engine::{Engine, EngineError, memory};
use std::path::{Path, PathBuf};
use tenon_env::Env;

/// Begin of the names of sled's folders.
const SLED_DIR: &str = "sled-";

fn snap(dir: &Path) -> PathBuf {
    dir.join("snap")
}

/// What a crash leaves of an engine: its own file, or its checkpoint.
pub(crate) fn durable_file(dir: &Path, kind: EngineKind) -> PathBuf {
    snap(dir).join(match kind {
        EngineKind::Redb => "db.redb",
        EngineKind::Sled | EngineKind::Memory => "checkpoint",
    })
}

/// The file that a received snapshot is made durable in.
fn received_file(dir: &Path, kind: EngineKind) -> PathBuf {
    snap(dir).join(match kind {
        EngineKind::Redb => "received.redb",
        EngineKind::Sled | EngineKind::Memory => "received.checkpoint",
    })
}

/// A checkpoint being written.
pub(crate) fn unfinished_checkpoint(dir: &Path) -> PathBuf {
    snap(dir).join("checkpoint.new")
}

fn failed(error: std::io::Error) -> EngineError {
    EngineError::Failed(error.to_string())
}

/// The engine with what it held durably, and the length of its checkpoint.
pub(crate) fn open(
    env: &Env,
    dir: &Path,
    options: &StoreOptions,
) -> Result<(Box<dyn Engine>, u64), OpenError> {
    let disk = &*env.disk;
    disk.create_dir_all(&snap(dir)).map_err(failed)?;
    disk.sync_dir(dir).map_err(failed)?;
    refuse_another(env, dir, options.engine)?;
    clear(env, dir)?;
    let file = durable_file(dir, options.engine);
    if options.engine == EngineKind::Redb {
        let engine = RedbEngine::open(disk, &file, options.engine_cache_bytes)?;
        return Ok((Box::new(engine), 0));
    }
    let engine = empty(env, dir, options)?;
    if disk.stat(&file).map_err(failed)?.is_none() {
        return Ok((engine, 0));
    }
    // A process killed right after the rename left a name that a power cut may still take.
    disk.sync_dir(&snap(dir)).map_err(failed)?;
    let damaged = |error: ArchiveError| {
        let text = format!("{}: {error}", file.display());
        OpenError::Engine(EngineError::Damaged(text))
    };
    let mut archive = ArchiveReader::open(disk, &file, HashCheck::Verify).map_err(damaged)?;
    load(&mut archive, &*engine)?;
    Ok((engine, archive.length()))
}

/// An engine that a snapshot is received into, and the file that will have it durably.
pub(crate) fn receive(
    env: &Env,
    dir: &Path,
    options: &StoreOptions,
) -> Result<(Box<dyn Engine>, PathBuf), EngineError> {
    let path = received_file(dir, options.engine);
    let engine: Box<dyn Engine> = match options.engine {
        EngineKind::Redb => Box::new(RedbEngine::create(
            &*env.disk,
            &path,
            options.engine_cache_bytes,
        )?),
        EngineKind::Sled | EngineKind::Memory => {
            empty(env, dir, options).map_err(|error| EngineError::Failed(error.to_string()))?
        }
    };
    Ok((engine, path))
}

/// Two engines of different kinds would each take the folder for one without data.
fn refuse_another(env: &Env, dir: &Path, kind: EngineKind) -> Result<(), OpenError> {
    let other = match kind {
        EngineKind::Redb => EngineKind::Memory,
        EngineKind::Sled | EngineKind::Memory => EngineKind::Redb,
    };
    if env
        .disk
        .stat(&durable_file(dir, other))
        .map_err(failed)?
        .is_none()
    {
        return Ok(());
    }
    Err(match kind {
        EngineKind::Redb => OpenError::OtherEngine("sled or memory", "redb"),
        EngineKind::Sled => OpenError::OtherEngine("redb", "sled"),
        EngineKind::Memory => OpenError::OtherEngine("redb", "memory"),
    })
}

/// Removes what an earlier life left unfinished.
fn clear(env: &Env, dir: &Path) -> Result<(), EngineError> {
    let unfinished = [
        received_file(dir, EngineKind::Redb),
        received_file(dir, EngineKind::Memory),
        unfinished_checkpoint(dir),
    ];
    for file in unfinished {
        if env.disk.stat(&file).map_err(failed)?.is_some() {
            env.disk.remove_file(&file).map_err(failed)?;
        }
    }
    for entry in env.disk.list(&snap(dir)).map_err(failed)? {
        if entry.is_dir && entry.name.starts_with(SLED_DIR) {
            let scratch = snap(dir).join(&entry.name);
            env.disk.remove_dir_all(&scratch).map_err(failed)?;
        }
    }
    Ok(())
}

/// An empty engine of a kind that keeps nothing.
fn empty(env: &Env, dir: &Path, options: &StoreOptions) -> Result<Box<dyn Engine>, OpenError> {
    match options.engine {
        EngineKind::Memory => Ok(Box::new(memory::engine())),
        EngineKind::Sled => sled(env, dir, options),
        EngineKind::Redb => unreachable!("redb keeps its file"),
    }
}

#[cfg(feature = "engine-sled")]
fn sled(env: &Env, dir: &Path, options: &StoreOptions) -> Result<Box<dyn Engine>, OpenError> {
    let mut number = 0;
    let unused = loop {
        let folder = snap(dir).join(format!("{SLED_DIR}{number}"));
        if env.disk.stat(&folder).map_err(failed)?.is_none() {
            break folder;
        }
        number += 1;
    };
    let engine = crate::engine::sled::engine(&env.disk, &unused, options.engine_cache_bytes)?;
    Ok(Box::new(engine))
}

#[cfg(not(feature = "engine-sled"))]
fn sled(_: &Env, _: &Path, _: &StoreOptions) -> Result<Box<dyn Engine>, OpenError> {
    Err(OpenError::NotBuilt)
}
