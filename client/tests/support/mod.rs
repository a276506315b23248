//! What the client's tests run against: real servers as processes, and a link that can be cut.
//!
//! Servers: `tenon` when it was built beside the tests (`cargo build --bin tenon`), and etcd when found in
//! `TENON_ORACLE_DIR` or `PATH`. A test runs once per server found, and says so loudly when there is none.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "tests use processes and files; not every test file uses all of this"
)]

pub mod fake;
#[path = "../../../tests/src/ports.rs"]
pub mod ports;

use std::future::Future;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenon_client::{Client, ConnectOptions};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bounds a test; far above what any needs.
pub async fn bounded<T>(work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, work)
        .await
        .expect("the test hangs")
}

/// A server program.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: &'static str,
    path: PathBuf,
}

impl Program {
    pub fn is_etcd(&self) -> bool {
        self.name == "etcd"
    }
}

/// Programs to test against.
pub fn programs() -> Vec<Program> {
    let mut found = Vec::new();
    let own = std::env::current_exe().ok().and_then(|exe| {
        let beside = exe.parent()?.parent()?.join("tenon");
        beside.exists().then_some(beside)
    });
    found.extend(own.map(|path| Program {
        name: "tenon",
        path,
    }));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.splice(
        0..0,
        std::env::var_os("TENON_ORACLE_DIR").map(PathBuf::from),
    );
    let etcd = dirs.into_iter().map(|dir| dir.join("etcd"));
    let etcd = etcd.into_iter().find(|path| path.exists());
    found.extend(etcd.map(|path| Program { name: "etcd", path }));
    if found.is_empty() {
        eprintln!(
            "SKIPPED: neither tenon (cargo build --bin tenon) nor etcd (TENON_ORACLE_DIR) found"
        );
    }
    found
}

/// A running member. Killed when dropped.
pub struct Server {
    program: Program,
    /// None while it is down.
    child: Option<Child>,
    dir: tempfile::TempDir,
    args: Vec<String>,
    pub url: String,
}

impl Server {
    /// The one member of its own cluster.
    pub async fn start(program: &Program) -> Server {
        let mut members = Server::start_cluster(program, 1).await;
        members.pop().expect("one member")
    }

    /// The members of one cluster, all serving.
    pub async fn start_cluster(program: &Program, size: usize) -> Vec<Server> {
        let ports: Vec<(u16, u16)> = (0..size).map(|_| (ports::take(), ports::take())).collect();
        let peers: Vec<String> = (1..)
            .zip(&ports)
            .map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}"))
            .collect();
        let mut members = Vec::new();
        for (n, (client, peer)) in (1..).zip(ports) {
            let client = format!("http://127.0.0.1:{client}");
            let peer = format!("http://127.0.0.1:{peer}");
            let args = [
                ("--name", format!("m{n}").as_str()),
                ("--listen-client-urls", &client),
                ("--advertise-client-urls", &client),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--initial-cluster", &peers.join(",")),
            ]
            .map(|(flag, value)| [flag.to_owned(), value.to_owned()])
            .concat();
            let mut server = Server {
                program: program.clone(),
                child: None,
                dir: tempfile::tempdir().expect("a directory"),
                args,
                url: client,
            };
            server.spawn();
            members.push(server);
        }
        for member in &members {
            member.ready().await;
        }
        members
    }

    pub fn client(&self) -> Client {
        Client::connect([&self.url], ConnectOptions::default()).expect("a valid endpoint")
    }

    /// Ends the process without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same data and ports.
    pub async fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.ready().await;
    }

    fn spawn(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("a log file");
        let mut command = Command::new(&self.program.path);
        if self.program.name == "tenon" {
            command.arg("serve");
        }
        command
            .arg("--data-dir")
            .arg(self.dir.path().join("data"))
            .args(&self.args)
            .stdout(log.try_clone().expect("a handle"))
            .stderr(log)
            .stdin(Stdio::null());
        self.child = Some(command.spawn().expect("the program starts"));
    }

    async fn ready(&self) {
        let client = self.client().with_timeout(Duration::from_secs(30));
        if let Err(error) = client.get("ready?").await {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            panic!("{} does not serve: {error}\n{log}", self.program.name);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes connections to a server; can be closed and opened.
pub struct Proxy {
    pub url: String,
    open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(url: &str) -> Proxy {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (open, state) = watch::channel(true);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut state = state.clone();
                let target = target.clone();
                tokio::spawn(async move {
                    if !*state.borrow_and_update() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.changed() => {}
                    }
                });
            }
        });
        Proxy { url, open, task }
    }

    /// Cuts every connection and refuses new ones.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Cuts every connection; new ones work.
    pub fn cut(&self) {
        self.close();
        self.open();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
