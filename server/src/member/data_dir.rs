//! Room `server/member`: the data directory: its lock, and the file that says who this member is. Ids are
//! hashed from URLs and token at the first start and kept from then on, so that URLs may change between
//! starts. `<data>/member` holds all of a member, as in etcd.
//!
//! `member/identity`: 8 bytes `TENONID1`, crc32c (little endian, over the rest), member id and cluster id
//! (8 bytes each, little endian), then an encoded `tenon.log.Membership`: the first one, or, for a member that
//! was added later, the members it was told of, without any voters.

use super::config::{BootstrapState, MemberConfig};
use super::{join, sealed};
use bytes::Buf;
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tenon_env::{Env, FileLock};
use tenon_proto::ids::{ClusterId, MemberId, cluster_id, member_id};
use tenon_proto::log::{Membership, Node, NodeSet};

/// First bytes of the identity file; the digit is its format version.
const MAGIC: &[u8; 8] = b"TENONID1";

/// Why a member cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The configuration does not fit what is in the data directory, or itself.
    #[error("{0}")]
    Config(String),
    /// The data directory cannot be used.
    #[error("cannot access data directory: {0}")]
    DataDir(String),
    /// Another process uses the data directory.
    #[error("data directory {0} is in use by another process")]
    Locked(String),
    /// State, log or raft cannot start from what is on disk.
    #[error("{0}")]
    Storage(String),
}

/// Who a member is.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// This member.
    pub member: MemberId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The members that founded the cluster, this one among them; none for a member added later.
    pub first: Option<Membership>,
    /// The members that one which was added later was told of, itself among them. Until it has a log they are
    /// asked whether it has been here before.
    pub known: BTreeMap<u64, Node>,
}

impl Identity {
    /// The identity of a member that founds a cluster.
    pub fn found(config: &MemberConfig) -> Result<Identity, StartError> {
        config.check_bootstrap().map_err(StartError::Config)?;
        let mut first = Membership::default();
        let (mut ids, mut own) = (Vec::new(), MemberId(0));
        for (name, urls) in &config.initial_cluster {
            let id = member_id(urls, &config.cluster_token);
            if *name == config.name {
                own = id;
            }
            let node = Node {
                peer_urls: urls.clone(),
                birth: config.cluster_token.clone(),
            };
            first.nodes.insert(id.get(), node);
            ids.push(id);
        }
        ids.sort_unstable();
        first.configs.push(NodeSet {
            ids: ids.iter().map(|id| id.get()).collect(),
        });
        Ok(Identity {
            member: own,
            cluster: cluster_id(&ids),
            first: Some(first),
            known: BTreeMap::new(),
        })
    }

    /// The identity in a data directory, without opening it.
    ///
    /// # Errors
    /// When the file is there and cannot be read or understood.
    pub fn stored(env: &Env, data_dir: &Path) -> Result<Option<Identity>, StartError> {
        let path = data_dir.join("member").join("identity");
        let fail = |why: String| StartError::DataDir(format!("{}: {why}", path.display()));
        if env
            .disk
            .stat(&path)
            .map_err(|e| fail(e.to_string()))?
            .is_none()
        {
            return Ok(None);
        }
        let file = env.disk.read(&path).map_err(|e| fail(e.to_string()))?;
        Identity::decode(&file).map(Some).map_err(fail)
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.member.get().to_le_bytes());
        body.extend_from_slice(&self.cluster.get().to_le_bytes());
        let told = Membership {
            configs: Vec::new(),
            nodes: self.known.clone().into_iter().collect(),
        };
        let members = self.first.as_ref().unwrap_or(&told);
        body.extend_from_slice(&members.encode_to_vec());
        sealed::seal(MAGIC, &body)
    }

    fn decode(file: &[u8]) -> Result<Identity, String> {
        let mut rest = sealed::open(MAGIC, file)?;
        if rest.len() < 16 {
            return Err(sealed::damaged());
        }
        let (member, cluster) = (MemberId(rest.get_u64_le()), ClusterId(rest.get_u64_le()));
        let members = Membership::decode(rest).map_err(|e| e.to_string())?;
        let (first, known) = if members.configs.is_empty() {
            (None, members.nodes.into_iter().collect())
        } else {
            (Some(members), BTreeMap::new())
        };
        Ok(Identity {
            member,
            cluster,
            first,
            known,
        })
    }
}

/// Whether a start with this configuration would be the member's first: then its peers should be asked.
pub fn is_fresh(env: &Env, config: &MemberConfig) -> bool {
    let path = config.data_dir.join("member").join("identity");
    matches!(env.disk.stat(&path), Ok(None))
}

/// An open data directory. Its lock is held until it is dropped.
pub struct DataDir {
    dir: PathBuf,
    identity: Identity,
    _lock: Box<dyn FileLock>,
}

impl DataDir {
    /// Opens or creates the directory and finds out who this member is. Short file steps, before serving.
    pub fn open(env: &Env, config: &MemberConfig) -> Result<DataDir, StartError> {
        let dir = config.data_dir.clone();
        let member = dir.join("member");
        let fail = |step: &str, path: &Path| {
            let what = format!("{step} {}", path.display());
            move |e: std::io::Error| StartError::DataDir(format!("{what}: {e}"))
        };
        env.disk
            .create_dir_all_synced(&member)
            .map_err(fail("mkdir", &member))?;
        let lock = env
            .disk
            .lock(&dir.join("lock"))
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::WouldBlock => StartError::Locked(dir.display().to_string()),
                _ => fail("lock", &dir)(e),
            })?;
        let path = member.join("identity");
        let found = env.disk.stat(&path).map_err(fail("stat", &path))?;
        let identity = if found.is_some() {
            let file = env.disk.read(&path).map_err(fail("read", &path))?;
            Identity::decode(&file)
                .map_err(|why| StartError::DataDir(format!("{}: {why}", path.display())))?
        } else {
            refuse_orphans(env, &member)?;
            let identity = first_start(config)?;
            env.disk
                .write_atomic(&path, &identity.encode())
                .map_err(fail("write", &path))?;
            env.disk.sync_dir(&dir).map_err(fail("sync", &dir))?;
            identity
        };
        Ok(DataDir {
            dir,
            identity,
            _lock: lock,
        })
    }

    /// Gives a directory whose state and log stand already its identity, durably.
    pub fn found(env: &Env, config: &MemberConfig, identity: &Identity) -> Result<(), StartError> {
        let dir = &config.data_dir;
        let path = dir.join("member").join("identity");
        let written = env
            .disk
            .write_atomic(&path, &identity.encode())
            .and_then(|()| env.disk.sync_dir(dir));
        written.map_err(|e| StartError::DataDir(format!("write {}: {e}", path.display())))
    }

    /// Who this member is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The folder of everything a member stores.
    pub fn member_dir(&self) -> PathBuf {
        self.dir.join("member")
    }
}

/// A directory with a log or a state but without an identity belongs to etcd, or lost a file.
fn refuse_orphans(env: &Env, member: &Path) -> Result<(), StartError> {
    for name in ["wal", "snap"] {
        let path = member.join(name);
        let entries = match env.disk.stat(&path) {
            Ok(Some(_)) => env.disk.list(&path).unwrap_or_default(),
            _ => continue,
        };
        if !entries.is_empty() {
            return Err(StartError::DataDir(format!(
                "{} holds data but {} is missing: it was not written by tenon, or that file was \
                 lost; use an empty data directory, or restore the file",
                path.display(),
                member.join("identity").display()
            )));
        }
    }
    Ok(())
}

fn first_start(config: &MemberConfig) -> Result<Identity, StartError> {
    let identity = Identity::found(config)?;
    match (config.initial_state, &config.cluster.running) {
        (BootstrapState::Existing, running) => {
            join::identity(config, running.as_ref()).map_err(StartError::Config)
        }
        (BootstrapState::New, Some(running)) if join::has_run(running, identity.member) => {
            let text = format!("member {} has already been bootstrapped", identity.member);
            Err(StartError::Config(text))
        }
        (BootstrapState::New, _) => Ok(identity),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;

    /// Ids that a real etcd 3.7.3 with these URLs and tokens printed.
    #[test]
    fn ids_of_a_first_start_are_etcds() {
        let default = Identity::found(&config("zz", &["http://localhost:2380"])).unwrap();
        assert_eq!(default.member.to_string(), "8e9e05c52164694d");
        assert_eq!(default.cluster.to_string(), "cdf818194e3a8c32");
        let other = Identity::found(&config("default", &["http://127.0.0.1:12380"])).unwrap();
        assert_eq!(other.member.get(), 15_985_099_378_392_235_387);
        assert_eq!(other.cluster.to_string(), "a7ef944b95711739");
    }

    #[test]
    fn the_file_keeps_the_identity_and_notices_damage() {
        let identity = Identity::found(&config("a", &["http://h:1", "http://h:2"])).unwrap();
        let file = identity.encode();
        assert_eq!(Identity::decode(&file), Ok(identity));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(Identity::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(Identity::decode(&file[..15]).is_err());
        let joined = Identity {
            member: MemberId(1),
            cluster: ClusterId(2),
            first: None,
            known: BTreeMap::from([(1, Node::default())]),
        };
        assert_eq!(Identity::decode(&joined.encode()), Ok(joined));
    }
}
