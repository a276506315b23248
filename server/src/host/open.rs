//! Room `server/host`: how a host starts: its mode by the journal, or by the configuration when it never had one.
//! A host never founds a cluster because its storage is missing, and a switch that was cut short goes on.

use super::config::HostConfig;
use super::core::{Core, StepError};
use super::door::{Backend, Door};
use super::edges::{Answers, Mode, Step};
use super::floor::SharedFloor;
use super::journal::{Journal, JournalFile, Switching};
use super::remote::Upstream;
use super::standby;
use super::status::{Board, HostStatus};
use super::steps::up::ORPHAN_LOOKS;
use crate::member::Member;
use crate::member::data_dir::{Identity, StartError};
use std::path::Path;
use std::sync::Arc;
use tenon_env::sync::watch;
use tenon_env::{Env, FileLock};
use tenon_proto::code::Code;
use tenon_proto::error::Error;

/// A host that may begin to run.
pub(super) struct Opened {
    pub(super) core: Core,
    /// Held for as long as the host lives, in every mode.
    pub(super) lock: Box<dyn FileLock>,
}

/// What a host begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    /// Start the member on its storage.
    member: bool,
    /// Let it answer clients, rather than the members elsewhere.
    at_member: bool,
}

/// Which parts run before a switch that was cut short goes on. Pure.
fn begin(journal: &Journal, has_storage: bool) -> Result<Begin, String> {
    // The endpoint was with the members, or on its way to them.
    let moved = |step| matches!(step, Step::ToMembers | Step::RemoveSelf | Step::SeeRemoval);
    let away = |step| matches!(step, Step::Detach | Step::Delete | Step::Done);
    let both = |at_member| Begin {
        member: true,
        at_member,
    };
    let client = Begin {
        member: false,
        at_member: false,
    };
    match (journal.mode, journal.switching) {
        (
            Mode::Server,
            Some(Switching {
                to: Mode::Client,
                step,
            }),
        ) if away(step) => Ok(client),
        (
            Mode::Server,
            Some(Switching {
                to: Mode::Client,
                step,
            }),
        ) if moved(step) && has_storage => Ok(both(false)),
        (Mode::Server, _) if has_storage => Ok(both(true)),
        (Mode::Server, _) => Err(match journal.member {
            Some(id) => format!(
                "this host is member {id} of cluster {}, and its storage is missing; a host never founds a \
                 new cluster because of that. If the storage is lost, remove the member from the cluster \
                 (`etcdctl member remove {id}`), remove the host's folder beside it, and start as a \
                 client or with --initial-cluster-state=existing",
                journal.cluster
            ),
            None => "this host is a server, and its storage is missing".to_owned(),
        }),
        // A learner whose removal could not be confirmed keeps running: it may have a vote by now.
        (Mode::Client, _) => Ok(Begin {
            member: has_storage && (journal.leftover.is_some() || journal.switching.is_some()),
            at_member: false,
        }),
    }
}

/// Opens a host. For the first start of a server the errors are those of its member.
pub(super) async fn open(
    env: &Env,
    config: HostConfig,
    upstream: Arc<dyn Upstream>,
) -> Result<Opened, StartError> {
    config.check().map_err(StartError::Config)?;
    is_folder(env, &config.member.data_dir)?;
    let file = JournalFile::new(env, &config.member.data_dir);
    let found = file.read().await.map_err(StartError::DataDir)?;
    let stored = Identity::stored(env, &config.member.data_dir)?;
    let Some(mut journal) = found else {
        return first_start(env, config, upstream, (file, stored)).await;
    };
    let lock = lock(env, file.dir(), &config.member.data_dir)?;
    if let Some(anew) = begin_anew(env, &config, &journal, stored.is_some())? {
        tracing::warn!(member = ?journal.member, "the member's storage is lost; the host begins anew, as a client");
        file.write(&anew).await.map_err(StartError::DataDir)?;
        journal = anew;
    }
    let begin = begin(&journal, stored.is_some()).map_err(StartError::Config)?;
    let floor = match begin.at_member {
        true => SharedFloor::default(),
        false => SharedFloor::of_earlier_run(),
    };
    let mut core = core(env, config, upstream, (file, journal), floor);
    if core.journal.mode == Mode::Client || core.journal.switching.is_some() {
        core.delete().await.map_err(broken)?;
    }
    if begin.member {
        let member = Member::start(env, core.config.member.clone()).await?;
        core.attach(Some(member));
    }
    open_door(&mut core, begin.at_member).await?;
    core.publish();
    // Whoever looks before the host's task has begun sees that the switch goes on.
    if let Some(Switching { to, step }) = core.journal.switching {
        core.board.begin(to, step, (0, 0));
    }
    Ok(Opened { core, lock })
}

/// Refuses what stands where the data directory should be, in words about that.
fn is_folder(env: &Env, data_dir: &Path) -> Result<(), StartError> {
    match env.disk.stat(data_dir) {
        Ok(Some(entry)) if !entry.is_dir => Err(StartError::DataDir(format!(
            "{} is not a directory",
            data_dir.display()
        ))),
        _ => Ok(()),
    }
}

fn broken(error: StepError) -> StartError {
    match error {
        StepError::Fatal(why) | StepError::Failed { why, .. } => StartError::DataDir(why),
    }
}

/// Under automatic membership: the journal to go on with when the host would be refused for want of its storage.
fn begin_anew(
    env: &Env,
    config: &HostConfig,
    journal: &Journal,
    has_storage: bool,
) -> Result<Option<Journal>, StartError> {
    if config.automatic.is_none() || begin(journal, has_storage).is_ok() {
        return Ok(None);
    }
    let data_dir = &config.member.data_dir;
    let emptied = standby::is_emptied(env, data_dir);
    let emptied = emptied
        .map_err(|e| StartError::DataDir(format!("look into {}: {e}", data_dir.display())))?;
    Ok(match emptied {
        true => standby::begin_anew(journal, &config.endpoints),
        false => None,
    })
}

/// A host without a journal: storage makes it a server, else the configuration decides, else it is a server.
async fn first_start(
    env: &Env,
    config: HostConfig,
    upstream: Arc<dyn Upstream>,
    (file, stored): (JournalFile, Option<Identity>),
) -> Result<Opened, StartError> {
    let mode = match stored {
        Some(_) => Mode::Server,
        None => config.first_mode(),
    };
    let mut journal = Journal::new(mode);
    let data_dir = config.member.data_dir.clone();
    if mode == Mode::Client && config.endpoints.is_empty() {
        let text = "a host that begins as a client needs --endpoints: client URLs of the cluster's members";
        return Err(StartError::Config(text.to_owned()));
    }
    journal.endpoints.clone_from(&config.endpoints);
    let floor = SharedFloor::default();
    let mut core = core(env, config, upstream, (file.clone(), journal), floor);
    if mode == Mode::Server {
        // The member creates and locks the data directory in its own words.
        let member = Member::start(env, core.config.member.clone()).await?;
        let context = &member.services().context;
        let (id, cluster) = (context.member(), context.cluster());
        core.attach(Some(member.clone()));
        core.journal.member = Some(id);
        core.journal.cluster = cluster;
    }
    let dir = file.dir();
    let made = env.disk.create_dir_all_synced(dir);
    made.map_err(|e| StartError::DataDir(format!("mkdir {}: {e}", dir.display())))?;
    let lock = lock(env, dir, &data_dir)?;
    file.write(&core.journal)
        .await
        .map_err(StartError::DataDir)?;
    open_door(&mut core, mode == Mode::Server).await?;
    core.publish();
    Ok(Opened { core, lock })
}

/// One process per host, in every mode.
fn lock(env: &Env, dir: &Path, data_dir: &Path) -> Result<Box<dyn FileLock>, StartError> {
    let path = dir.join("lock");
    env.disk.lock(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => StartError::Locked(data_dir.display().to_string()),
        _ => StartError::DataDir(format!("lock {}: {e}", path.display())),
    })
}

fn core(
    env: &Env,
    config: HostConfig,
    upstream: Arc<dyn Upstream>,
    (file, journal): (JournalFile, Journal),
    floor: SharedFloor,
) -> Core {
    let floor = match config.edges.answers {
        Answers::NeverBack => floor,
        Answers::AsTheyCome => SharedFloor::forgetful(),
    };
    let closed = Error::other(Code::Unavailable, "tenon: the host is starting");
    let door = Door::with_floor(env, Backend::Closed(closed), floor);
    let status = HostStatus {
        name: config.member.name.clone(),
        mode: journal.mode,
        progress: None,
        cluster: journal.cluster,
        member: journal.member,
        endpoints: Vec::new(),
        client_urls: config.member.advertise_client_urls.clone(),
        warnings: Vec::new(),
        error: None,
        note: "started".to_owned(),
        leftover: None,
        voters_target: config.automatic.map_or(0, |a| a.target()),
        automatic: String::new(),
    };
    Core {
        env: env.clone(),
        config,
        file,
        journal,
        door,
        upstream,
        member: None,
        attached: watch::Sender::new(None),
        remote: None,
        board: Board::new(env, status),
        orphan_looks: ORPHAN_LOOKS,
        replaces: None,
    }
}

/// Lets somebody answer. The member need not be fit: it answers as a member that just started does.
async fn open_door(core: &mut Core, at_member: bool) -> Result<(), StartError> {
    let first = match (&core.member, at_member) {
        (Some(member), true) => Backend::Member(member.services_shared()),
        _ => Backend::Remote(core.ask_through(core.journal.endpoints.clone())),
    };
    core.door = Door::with_floor(&core.env, first, core.door.shared_floor());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_env::OpenMode;
    use tenon_proto::ids::MemberId;

    fn journal(mode: Mode, switching: Option<(Mode, Step)>) -> Journal {
        Journal {
            switching: switching.map(|(to, step)| Switching { to, step }),
            member: Some(MemberId(7)),
            ..Journal::new(mode)
        }
    }

    #[tokio::test]
    async fn a_file_in_the_place_of_the_data_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let env = tenon_env::real::env_without_peers();
        let file = dir.path().join("file");
        env.disk.open(&file, OpenMode::Create).unwrap();
        let refused = is_folder(&env, &file).unwrap_err().to_string();
        let right = format!(
            "cannot access data directory: {} is not a directory",
            file.display()
        );
        assert_eq!(refused, right);
        assert_eq!(is_folder(&env, dir.path()), Ok(()));
        assert_eq!(is_folder(&env, &dir.path().join("none")), Ok(()));
    }

    #[test]
    fn what_runs_at_a_start_follows_from_the_journal() {
        let (server, client) = (Mode::Server, Mode::Client);
        let cases = [
            (journal(server, None), true, Some((true, true))),
            (journal(server, None), false, None),
            (
                journal(server, Some((client, Step::Reach))),
                true,
                Some((true, true)),
            ),
            (
                journal(server, Some((client, Step::RemoveSelf))),
                true,
                Some((true, false)),
            ),
            (
                journal(server, Some((client, Step::ToMembers))),
                true,
                Some((true, false)),
            ),
            (
                journal(server, Some((client, Step::RemoveSelf))),
                false,
                None,
            ),
            (
                journal(server, Some((client, Step::Detach))),
                true,
                Some((false, false)),
            ),
            (
                journal(server, Some((client, Step::Delete))),
                false,
                Some((false, false)),
            ),
            (journal(client, None), true, Some((false, false))),
            (
                journal(client, Some((server, Step::Attach))),
                true,
                Some((true, false)),
            ),
            (
                journal(client, Some((server, Step::AddLearner))),
                false,
                Some((false, false)),
            ),
        ];
        for (journal, has_storage, expected) in cases {
            let found = begin(&journal, has_storage);
            let got = found.as_ref().ok().map(|b| (b.member, b.at_member));
            assert_eq!(got, expected, "{journal:?}: {found:?}");
        }
        let lost = begin(&journal(server, None), false).unwrap_err();
        assert!(
            lost.contains("never founds") && lost.contains("member remove 7"),
            "{lost}"
        );
    }
}
