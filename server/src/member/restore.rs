//! Room `server/member`: the data directory of a first member of a new cluster, made from a snapshot. Every
//! first member is made from the same snapshot and the same initial cluster, and then they simply start.
//!
//! State, then log, then identity: a directory without an identity is refused at start, so what a crash
//! leaves half made never runs.

use super::config::MemberConfig;
use super::data_dir::{DataDir, Identity, StartError};
use std::path::{Path, PathBuf};
use tenon_env::sync::oneshot;
use tenon_env::{Env, Lane};
use tenon_proto::ids::Revision;
use tenon_proto::log::{LogId, Vote};
use tenon_storage::archive::{ArchiveReader, HashCheck};
use tenon_storage::state::{RestorePlan, restore as restore_state};
use tenon_storage::wal::Wal;

/// Where a restored state stands in the new cluster's log: behind what would have been its first entry, so
/// that a member that joins later is given the state and not an empty log.
const POSITION: LogId = LogId {
    term: 1,
    node_id: 0,
    index: 1,
};

/// What to restore.
#[derive(Clone, Debug)]
pub struct Source {
    /// The snapshot's file.
    pub file: PathBuf,
    /// Whether its hash must fit.
    pub check: HashCheck,
    /// Added to the revision, with everything up to there compacted; 0 leaves both alone.
    pub bump_revision: u64,
}

/// Makes the data directory that `config` names, which must be absent or empty. Who the member is and the
/// revision it begins at.
///
/// # Errors
/// A configuration that contradicts itself, a directory in use, a snapshot that is not whole, the disk. What
/// was made is removed then.
pub async fn restore(
    env: &Env,
    config: &MemberConfig,
    source: Source,
) -> Result<(Identity, Revision), StartError> {
    let dir = &config.data_dir;
    let is_empty = match env.disk.stat(dir) {
        Ok(None) => true,
        Ok(Some(_)) => matches!(env.disk.list(dir), Ok(names) if names.is_empty()),
        Err(_) => false,
    };
    if !is_empty {
        return Err(StartError::Config(format!(
            "data-dir {:?} not empty or could not be read",
            dir.display().to_string()
        )));
    }
    let identity = Identity::found(config)?;
    let made = make(env, config, &identity, source).await;
    if made.is_err() {
        let member = dir.join("member");
        if let Err(error) = env.disk.remove_dir_all(&member) {
            tracing::warn!(%error, dir = %member.display(), "remove it before another try");
        }
    }
    Ok((identity, made?))
}

async fn make(
    env: &Env,
    config: &MemberConfig,
    identity: &Identity,
    source: Source,
) -> Result<Revision, StartError> {
    let plan = RestorePlan {
        id: POSITION,
        membership: identity.first.clone().unwrap_or_default(),
        bump_revision: source.bump_revision,
    };
    let member = config.data_dir.join("member");
    let (world, options, dir) = (env.clone(), config.tuning.store, member.clone());
    let state = env.blocking(Lane::Read, move || {
        let failed = |what: String| StartError::Storage(what);
        let disk = &*world.disk;
        let mut archive = ArchiveReader::open(disk, &source.file, source.check)
            .map_err(|error| failed(format!("{}: {error}", source.file.display())))?;
        disk.create_dir_all_synced(&dir)
            .map_err(|error| StartError::DataDir(format!("mkdir {}: {error}", dir.display())))?;
        restore_state(&world, &dir, options, &mut archive, &plan)
            .map_err(|error| failed(error.to_string()))
    });
    let revision = state
        .await
        .map_err(|gone| StartError::Storage(gone.to_string()))??;
    log(env, config, identity, &member).await?;
    DataDir::found(env, config, identity)?;
    Ok(revision)
}

/// A log that begins behind the restored state. The member has voted in the term of that state, for itself:
/// the first election is of a later one.
async fn log(
    env: &Env,
    config: &MemberConfig,
    identity: &Identity,
    member: &Path,
) -> Result<(), StartError> {
    let dir = config.wal_dir.clone().unwrap_or_else(|| member.join("wal"));
    let failed = |what: String| StartError::Storage(what);
    let (wal, found) =
        Wal::open(env, &dir, config.tuning.wal).map_err(|error| failed(error.to_string()))?;
    if found.last.is_some() {
        return Err(failed(format!("{} holds a log already", dir.display())));
    }
    let (tx, rx) = oneshot::channel();
    wal.reset(POSITION, Box::new(move |result| drop(tx.send(result))));
    let (voted, vote) = oneshot::channel();
    let own = Vote {
        term: POSITION.term,
        node_id: identity.member.get(),
        committed: false,
    };
    wal.save_vote(own, Box::new(move |result| drop(voted.send(result))));
    for done in [rx.await, vote.await] {
        done.map_err(|_| failed("the write-ahead log is gone".into()))?
            .map_err(|error| failed(error.to_string()))?;
    }
    wal.close().await;
    Ok(())
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
