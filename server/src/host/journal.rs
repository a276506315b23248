//! Room `server/host`: the journal, the one place where a host remembers its mode and a switch under way.
//! `<data-dir>/host/journal`: 8 bytes `TENONHJ1`, crc32c (little endian, over the rest), then an encoded
//! `tenon.host.v1.Journal`. Every change is a copy that is written, synced and renamed over the old file, then
//! the folder is synced: whatever happens, either the old or the new journal stands there. Disk by `Env` only.

use super::edges::{Mode, Step};
use crate::member::sealed;
use prost::Message;
use std::path::{Path, PathBuf};
use tenon_env::{Env, Lane};
use tenon_proto::host as pb;
use tenon_proto::ids::{ClusterId, MemberId};

/// First bytes of the file; the digit is its format version.
const MAGIC: &[u8; 8] = b"TENONHJ1";

/// A switch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switching {
    /// The mode to come.
    pub to: Mode,
    /// The step that was begun last; steps before it are done.
    pub step: Step,
}

/// Whether the removal of the own member may come into force at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Nobody asked for it.
    NotAsked,
    /// It was asked for, and perhaps committed.
    Asked,
}

/// What a host remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The mode it is in.
    pub mode: Mode,
    /// The switch under way, if one is.
    pub switching: Option<Switching>,
    /// Its cluster; 0 until it knows.
    pub cluster: ClusterId,
    /// Its member, or the learner that is to become it.
    pub member: Option<MemberId>,
    /// Client URLs of members.
    pub endpoints: Vec<String>,
    /// Learner of an earlier attempt that still has to be removed.
    pub leftover: Option<MemberId>,
    /// Whether the own member's removal was asked for.
    pub removal: Removal,
}

impl Journal {
    /// The journal of a host that just found its mode.
    pub fn new(mode: Mode) -> Journal {
        Journal {
            mode,
            switching: None,
            cluster: ClusterId(0),
            member: None,
            endpoints: Vec::new(),
            leftover: None,
            removal: Removal::NotAsked,
        }
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let body = pb::Journal {
            mode: wire_mode(Some(self.mode)).into(),
            switching_to: wire_mode(self.switching.map(|s| s.to)).into(),
            step: self
                .switching
                .map_or_else(String::new, |s| s.step.name().to_owned()),
            cluster_id: self.cluster.get(),
            member_id: self.member.map_or(0, MemberId::get),
            endpoints: self.endpoints.clone(),
            leftover_member: self.leftover.map_or(0, MemberId::get),
            removal_asked: self.removal == Removal::Asked,
        };
        sealed::seal(MAGIC, &body.encode_to_vec())
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// A text that says what is wrong with them.
    pub fn decode(file: &[u8]) -> Result<Journal, String> {
        let body = pb::Journal::decode(sealed::open(MAGIC, file)?).map_err(|e| e.to_string())?;
        let id = |id: u64| (id != 0).then_some(MemberId(id));
        let step = Step::read(&body.step);
        let to = read_mode(body.switching_to());
        let switching = match (to, step) {
            (Some(to), Some(step)) => Some(Switching { to, step }),
            (None, _) => None,
            (Some(_), None) => {
                return Err(format!("it names the unknown step {:?}", body.step));
            }
        };
        Ok(Journal {
            mode: read_mode(body.mode()).ok_or("it names no mode")?,
            switching,
            cluster: ClusterId(body.cluster_id),
            member: id(body.member_id),
            leftover: id(body.leftover_member),
            removal: match body.removal_asked {
                true => Removal::Asked,
                false => Removal::NotAsked,
            },
            endpoints: body.endpoints,
        })
    }
}

/// The mode on the wire; none is unspecified.
pub fn wire_mode(mode: Option<Mode>) -> pb::Mode {
    match mode {
        None => pb::Mode::Unspecified,
        Some(Mode::Server) => pb::Mode::Server,
        Some(Mode::Client) => pb::Mode::Client,
    }
}

/// The mode behind the wire's.
pub fn read_mode(mode: pb::Mode) -> Option<Mode> {
    match mode {
        pb::Mode::Unspecified => None,
        pb::Mode::Server => Some(Mode::Server),
        pb::Mode::Client => Some(Mode::Client),
    }
}

/// Where a host keeps its journal.
#[derive(Clone)]
pub struct JournalFile {
    env: Env,
    dir: PathBuf,
}

impl JournalFile {
    /// The journal of the host with this data directory.
    pub fn new(env: &Env, data_dir: &Path) -> JournalFile {
        JournalFile {
            env: env.clone(),
            dir: data_dir.join("host"),
        }
    }

    /// The folder of the journal.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where it stands.
    pub fn path(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// The journal; none when the host never had a mode.
    ///
    /// # Errors
    /// A text that names the file, why it cannot be used, and what to do.
    pub async fn read(&self) -> Result<Option<Journal>, String> {
        let (env, path) = (self.env.clone(), self.path());
        let read = self.env.blocking(Lane::Read, move || {
            match env.disk.stat(&path).map_err(|e| e.to_string())? {
                None => Ok(None),
                Some(_) => {
                    let file = env.disk.read(&path).map_err(|e| e.to_string())?;
                    Journal::decode(&file).map(Some)
                }
            }
        });
        let read = read.await.unwrap_or_else(|gone| Err(gone.to_string()));
        read.map_err(|why| {
            format!(
                "the host's journal {} cannot be used: {why}",
                self.path().display()
            )
        })
    }

    /// Replaces the journal. Durable when this returns.
    ///
    /// # Errors
    /// A text that names the file; the old journal stands then, or the new one.
    pub async fn write(&self, journal: &Journal) -> Result<(), String> {
        let (env, dir, path) = (self.env.clone(), self.dir.clone(), self.path());
        let bytes = journal.encode();
        let written = self.env.blocking(Lane::Read, move || {
            if env.disk.stat(&dir)?.is_none() {
                env.disk.create_dir_all_synced(&dir)?;
            }
            env.disk.write_atomic(&path, &bytes)
        });
        let written = written
            .await
            .unwrap_or_else(|gone| Err(std::io::Error::other(gone)));
        written.map_err(|why| {
            let path = self.path();
            format!(
                "the host's journal {} cannot be written: {why}",
                path.display()
            )
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn story() -> Vec<Journal> {
        let fresh = Journal::new(Mode::Client);
        let joining = Journal {
            switching: Some(Switching {
                to: Mode::Server,
                step: Step::CatchUp,
            }),
            cluster: ClusterId(0xcdf8_1819_4e3a_8c32),
            member: Some(MemberId(7)),
            endpoints: vec!["http://a:2379".into(), "http://b:2379".into()],
            ..fresh.clone()
        };
        let server = Journal {
            mode: Mode::Server,
            switching: None,
            ..joining.clone()
        };
        let leaving = Journal {
            switching: Some(Switching {
                to: Mode::Client,
                step: Step::RemoveSelf,
            }),
            removal: Removal::Asked,
            ..server.clone()
        };
        vec![fresh, joining, server, leaving]
    }

    #[test]
    fn the_journal_has_these_bytes() {
        let hex = |journal: &Journal| {
            let bytes = journal.encode();
            let digits: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
            digits.concat()
        };
        let [fresh, _, _, leaving] = &story()[..] else {
            panic!("four chapters")
        };
        assert_eq!(hex(fresh), "54454e4f4e484a319dc44e8d0802");
        assert_eq!(
            hex(leaving),
            concat!(
                "54454e4f4e484a31174df50e08011002",
                "1a0b72656d6f76652d73656c6620b298eaf1948386fccd012807",
                "320d687474703a2f2f613a32333739320d687474703a2f2f623a323337394001"
            )
        );
    }

    #[test]
    fn it_reads_back_and_notices_damage() {
        for journal in story() {
            let file = journal.encode();
            assert_eq!(Journal::decode(&file), Ok(journal));
            for at in 0..file.len() {
                let mut damaged = file.clone();
                damaged[at] ^= 1;
                assert!(Journal::decode(&damaged).is_err(), "byte {at}");
                assert!(Journal::decode(&file[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
