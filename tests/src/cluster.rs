//! Room `tests`: several Tenon processes on free ports of 127.0.0.1 that form one cluster, and calls to each by
//! the schemas' text format. May touch processes, files and sockets; must not look inside.

use crate::call::{self, Metadata};
use crate::ports;
use crate::schema::Schema;
use crate::server::tenon;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything that is waited for may take.
const WITHIN: Duration = Duration::from_secs(20);
/// How long one call may take: longer than the server's own time-out.
const CALL_MAX: Duration = Duration::from_secs(9);

/// One member's process and directory.
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub url: String,
    /// Where peers reach it.
    pub peer_url: String,
    /// Its further flags, as it gets them at its next start.
    pub flags: Vec<String>,
    child: Option<Child>,
}

/// Members that know each other. All processes end with the value.
pub struct Cluster {
    dir: TempDir,
    schema: Schema,
    runtime: tokio::runtime::Runtime,
    /// The members, started or not.
    pub members: Vec<Member>,
}

impl Cluster {
    /// Starts `count` members that found a cluster, all with these further flags.
    pub fn found(count: usize, flags: &[&str]) -> Cluster {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let mut cluster = Cluster {
            dir: tempfile::tempdir().expect("temporary directory"),
            schema: Schema::load().expect("schemas"),
            runtime: runtime.expect("runtime"),
            members: Vec::new(),
        };
        for _ in 0..count {
            cluster.push(flags);
        }
        let list = cluster.list();
        for at in 0..count {
            cluster.start(at, &list, "new");
        }
        for at in 0..count {
            cluster.wait_ready(at);
        }
        cluster
    }

    /// A further member, not started; its index.
    pub fn push(&mut self, flags: &[&str]) -> usize {
        self.members.push(Member {
            name: format!("m{}", self.members.len() + 1),
            url: ports::url(),
            peer_url: ports::url(),
            flags: flags.iter().map(|f| (*f).to_owned()).collect(),
            child: None,
        });
        self.members.len() - 1
    }

    /// All members as `--initial-cluster` takes them.
    #[must_use]
    pub fn list(&self) -> String {
        let all = self.members.iter();
        let pairs: Vec<String> = all.map(|m| format!("{}={}", m.name, m.peer_url)).collect();
        pairs.join(",")
    }

    /// The data directory of a member.
    #[must_use]
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.dir.path().join(&self.members[at].name)
    }

    /// Starts a member's process.
    pub fn start(&mut self, at: usize, initial_cluster: &str, state: &str) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path(at));
        let data_dir = self.data_dir(at);
        let member = &mut self.members[at];
        assert!(member.child.is_none(), "{} runs already", member.name);
        let mut command = Command::new(tenon().expect("the program"));
        command
            .arg("serve")
            .arg(format!("--name={}", member.name))
            .arg(format!("--data-dir={}", data_dir.display()))
            .arg(format!("--listen-client-urls={}", member.url))
            .arg(format!("--advertise-client-urls={}", member.url))
            .arg(format!("--listen-peer-urls={}", member.peer_url))
            .arg(format!("--initial-advertise-peer-urls={}", member.peer_url))
            .arg(format!("--initial-cluster={initial_cluster}"))
            .arg(format!("--initial-cluster-state={state}"))
            .args(&member.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("log file"));
        member.child = Some(command.spawn().expect("the process starts"));
    }

    fn log_path(&self, at: usize) -> PathBuf {
        self.dir
            .path()
            .join(format!("{}.log", self.members[at].name))
    }

    /// The end of a member's log.
    #[must_use]
    pub fn log_end(&self, at: usize) -> String {
        let text = std::fs::read_to_string(self.log_path(at)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// SIGKILL.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().expect("killed");
            child.wait().expect("reaped");
        }
    }

    /// The process of a running member.
    #[must_use]
    pub fn pid(&self, at: usize) -> u32 {
        self.members[at].child.as_ref().expect("it runs").id()
    }

    /// SIGTERM.
    pub fn terminate(&mut self, at: usize) {
        self.signal(at, "-TERM");
    }

    /// SIGSTOP: the member stands still, and its connections stay open.
    pub fn stand_still(&self, at: usize) {
        self.signal(at, "-STOP");
    }

    /// SIGCONT.
    pub fn go_on(&self, at: usize) {
        self.signal(at, "-CONT");
    }

    fn signal(&self, at: usize, signal: &str) {
        let id = self.pid(at).to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for the process to end by itself; its exit code.
    pub fn wait_exit(&mut self, at: usize) -> Option<i32> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let child = self.members[at].child.as_mut().expect("it was started");
            if let Some(status) = child.try_wait().expect("a child of ours") {
                self.members[at].child = None;
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "{} does not end; log: {}",
                self.members[at].name,
                self.log_end(at)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One call; the answer in text format, or the status as `code: message`.
    ///
    /// # Errors
    /// The server's status, or why there is none.
    pub fn call(&self, at: usize, method: &str, request: &str) -> Result<String, String> {
        let url = self.members[at].url.clone();
        let method = self.schema.method(method)?;
        let request = Schema::request(method.input(), request)?;
        self.runtime.block_on(async {
            let call = async {
                let channel = call::connect(&url).await?;
                let answer = call::unary(&channel, &method, &Metadata::new(), request).await;
                match answer {
                    Ok(answer) => Ok(answer.to_text_format()),
                    Err(status) => Err(format!("{:?}: {}", status.code(), status.message())),
                }
            };
            let ended = tokio::time::timeout(CALL_MAX, call).await;
            ended.unwrap_or_else(|_| Err("the call did not end".to_owned()))
        })
    }

    /// As [`Cluster::call`], again and again until it succeeds.
    pub fn call_soon(&self, at: usize, method: &str, request: &str) -> String {
        self.until(at, method, request, |_| true)
    }

    /// Repeats a call until its answer satisfies `good`.
    pub fn until(
        &self,
        at: usize,
        method: &str,
        request: &str,
        good: impl Fn(&str) -> bool,
    ) -> String {
        let deadline = Instant::now() + WITHIN;
        loop {
            let answer = self.call(at, method, request);
            match &answer {
                Ok(text) if good(text) => return text.clone(),
                _ => {}
            }
            assert!(
                Instant::now() < deadline,
                "{method} at {}: {answer:?}; log: {}",
                self.members[at].name,
                self.log_end(at)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a member answers a linearizable read.
    pub fn wait_serving(&self, at: usize) {
        self.call_soon(at, "Range", "key: \"a\"");
    }

    /// Waits until a member serves and told the others its name, as programs that wait for READY do: whoever is killed
    /// before that has no name for them.
    pub fn wait_ready(&self, at: usize) {
        self.wait_serving(at);
        let name = format!("name:\"{}\"", self.members[at].name);
        self.until(at, "MemberList", "", |list| list.contains(&name));
    }

    /// The member that leads, by what `asked` says: its index.
    pub fn leader(&self, asked: usize) -> usize {
        let good = |text: &str| field(text, "leader").is_some_and(|id| id != 0);
        let status = self.until(asked, "Status", "", good);
        let leader = field(&status, "leader").expect("checked");
        (0..self.members.len())
            .find(|at| self.members[*at].child.is_some() && self.id(*at) == leader)
            .expect("the leader runs")
    }

    /// HashKV of running members at one named revision, all equal; the revision.
    pub fn assert_same_keys(&self, running: &[usize]) -> u64 {
        let status = self.call_soon(running[0], "HashKV", "");
        let revision = field(&status, "revision").expect("a header");
        let request = format!("revision: {revision}");
        let hash = |at: usize| field(&self.call_soon(at, "HashKV", &request), "hash");
        let first = hash(running[0]);
        assert!(first.is_some());
        for at in running {
            assert_eq!(hash(*at), first, "member {at} at revision {revision}");
        }
        revision
    }

    /// The id of a running member, by its own answer.
    pub fn id(&self, at: usize) -> u64 {
        let status = self.call_soon(at, "Status", "");
        field(&status, "member_id").expect("a header")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The first number called `name` in an answer's text.
#[must_use]
pub fn field(text: &str, name: &str) -> Option<u64> {
    let mut parts = text.split(&['{', '}', ',', ' '][..]);
    let value = parts.find_map(|part| {
        part.strip_prefix(name)?
            .strip_prefix(':')
            .map(str::to_owned)
    })?;
    value.parse().ok()
}
