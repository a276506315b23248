//! Room `tests`: one server process on free ports of 127.0.0.1 and a temporary directory: Tenon or real etcd.
//! May touch processes and the file system; must not speak gRPC (see `call`).

use crate::ports;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to stop after SIGTERM before it is killed.
const STOP_MAX: Duration = Duration::from_secs(15);

/// Which program serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Real etcd, the oracle.
    Etcd,
    /// The program under test.
    Tenon,
}

/// A server process and its directory; both end with the value.
pub struct Server {
    kind: Kind,
    program: PathBuf,
    flags: Vec<String>,
    env: Vec<(String, PathBuf)>,
    dir: TempDir,
    seat: Seat,
    child: Option<Child>,
}

/// Where a member listens and what it is told of its cluster.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub url: String,
    /// Where peers reach it.
    pub peer_url: String,
    /// The cluster, as `--initial-cluster` takes it.
    pub initial_cluster: String,
    /// `new` or `existing`.
    pub state: &'static str,
}

impl Seat {
    /// A member called `name` on ports that were free a moment ago; it founds a cluster of its own.
    #[must_use]
    pub fn free(name: &str) -> Self {
        let peer_url = ports::url();
        Self {
            name: name.to_owned(),
            initial_cluster: format!("{name}={peer_url}"),
            url: ports::url(),
            peer_url,
            state: "new",
        }
    }
}

/// A tool of the oracle (`etcd`, `etcdctl`, …) where `.ci/oracle-setup` put it, if it is there.
#[must_use]
pub fn oracle(tool: &str) -> Option<PathBuf> {
    let dir = match std::env::var_os("TENON_ORACLE_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/tenon-oracle"),
    };
    let path = dir.join("bin").join(tool);
    path.is_file().then_some(path)
}

/// The `tenon` binary: `TENON_BIN`, or the one built beside this test executable.
///
/// # Errors
/// A sentence that says how to build it.
pub fn tenon() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("TENON_BIN") {
        return Ok(PathBuf::from(path));
    }
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let built = exe
        .parent()
        .and_then(Path::parent)
        .map(|dir| dir.join("tenon"));
    match built {
        Some(path) if path.is_file() => Ok(path),
        _ => Err(
            "no tenon binary beside the tests: run `cargo build --bin tenon` first, \
                  or set TENON_BIN"
                .to_owned(),
        ),
    }
}

impl Server {
    /// Starts a fresh server with extra `flags`; it may not answer yet (see `run::wait_ready`).
    ///
    /// # Errors
    /// What is missing, or why the process did not start.
    pub fn start(kind: Kind, flags: &[String]) -> Result<Self, String> {
        Self::start_program(kind, program(kind)?, flags, &[])
    }

    /// A member that is not started yet.
    ///
    /// # Errors
    /// What is missing.
    pub fn seated(kind: Kind, seat: Seat, flags: &[String]) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| format!("temporary directory: {e}"))?;
        Ok(Self {
            kind,
            program: program(kind)?,
            flags: flags.to_vec(),
            env: Vec::new(),
            dir,
            seat,
            child: None,
        })
    }

    /// As [`Server::start`], from `program` (a link named `etcd` is etcd) and with more environment.
    ///
    /// # Errors
    /// Why the process did not start.
    pub fn start_program(
        kind: Kind,
        program: PathBuf,
        flags: &[String],
        env: &[(&str, &Path)],
    ) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| format!("temporary directory: {e}"))?;
        let env = env
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_path_buf()));
        let mut server = Self {
            kind,
            program,
            flags: flags.to_vec(),
            env: env.collect(),
            dir,
            seat: Seat::free("default"),
            child: None,
        };
        server.spawn()?;
        Ok(server)
    }

    /// `http://127.0.0.1:<client port>`.
    #[must_use]
    pub fn url(&self) -> String {
        self.seat.url.clone()
    }

    /// `http://127.0.0.1:<peer port>`.
    #[must_use]
    pub fn peer_url(&self) -> String {
        self.seat.peer_url.clone()
    }

    /// Where it listens.
    #[must_use]
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Which program this is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The server's data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts the process on the same directory and ports.
    ///
    /// # Errors
    /// The operating system's text.
    pub fn spawn(&mut self) -> Result<(), String> {
        assert!(
            self.child.is_none(),
            "one process at a time on one directory"
        );
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path());
        let log = log.map_err(|e| format!("log file: {e}"))?;
        let mut command = Command::new(&self.program);
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        if self.kind == Kind::Tenon && !self.program.ends_with("etcd") {
            command.arg("serve");
        }
        let seat = &self.seat;
        command
            .arg(format!("--name={}", seat.name))
            .arg(format!("--data-dir={}", self.data_dir().display()))
            .arg(format!("--listen-client-urls={}", seat.url))
            .arg(format!("--advertise-client-urls={}", seat.url))
            .arg(format!("--listen-peer-urls={}", seat.peer_url))
            .arg(format!("--initial-advertise-peer-urls={}", seat.peer_url))
            .arg(format!("--initial-cluster={}", seat.initial_cluster))
            .arg(format!("--initial-cluster-state={}", seat.state));
        command.arg("--log-level=warn");
        if self.kind == Kind::Etcd {
            command.arg("--unsafe-no-fsync");
        }
        command
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn();
        self.child = Some(child.map_err(|e| format!("{}: {e}", self.program.display()))?);
        Ok(())
    }

    /// `Err` with the end of the log when the process is no longer running.
    ///
    /// # Errors
    /// The exit status and the last lines it logged.
    pub fn check_running(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else {
            return Err("not started".to_owned());
        };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!(
                "server ended with {status}; log: {}",
                self.log_end()
            )),
            Err(e) => Err(e.to_string()),
        }
    }

    /// SIGKILL, at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, then waits; the exit code, or `None` when it had to be killed.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        let code = self.ended();
        self.kill();
        code
    }

    /// Sends the signal called `name`.
    pub fn signal(&self, name: &str) {
        let Some(child) = &self.child else { return };
        let _ = Command::new("kill")
            .args([&format!("-{name}"), &child.id().to_string()])
            .status();
    }

    /// Waits until the process ends by itself; the exit code, or `None` when it runs on or a signal ended it.
    pub fn ended(&mut self) -> Option<i32> {
        let child = self.child.as_mut()?;
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = child.try_wait() {
                self.child = None;
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program(kind: Kind) -> Result<PathBuf, String> {
    match kind {
        Kind::Tenon => tenon(),
        Kind::Etcd => oracle("etcd").ok_or_else(|| "no etcd: run .ci/oracle-setup".to_owned()),
    }
}
