//! `bench`: starts and stops one server (or a cluster of one kind) and waits until it answers.

use crate::Options;
use crate::probe;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// etcd 3.7.3.
    Etcd,
    /// Tenon, release build.
    Tenon,
    /// A bare tonic server that keeps nothing: what gRPC alone costs.
    Floor,
}

impl Kind {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Etcd => "etcd",
            Kind::Tenon => "tenon",
            Kind::Floor => "floor",
        }
    }
}

/// A running cluster; killed when dropped.
pub struct Cluster {
    /// What runs.
    pub kind: Kind,
    dir: PathBuf,
    members: Vec<Child>,
    ports: Vec<u16>,
    command: Vec<Vec<String>>,
}

impl Cluster {
    /// Starts a fresh cluster of `options.members` with empty data and waits until it answers.
    pub fn start(options: &Options, kind: Kind) -> io::Result<Cluster> {
        let dir = options.work.join(kind.name());
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir)?;
        let base = match kind {
            Kind::Etcd => 24100,
            Kind::Tenon => 24200,
            Kind::Floor => 24300,
        };
        let count = if kind == Kind::Floor {
            1
        } else {
            options.members
        };
        let ports: Vec<u16> = (0..count).map(|i| base + 2 * i as u16).collect();
        let command = (0..count)
            .map(|i| command(options, kind, &dir, &ports, i))
            .collect();
        let mut cluster = Cluster {
            kind,
            dir,
            members: Vec::new(),
            ports,
            command,
        };
        cluster.launch()?;
        Ok(cluster)
    }

    fn launch(&mut self) -> io::Result<()> {
        for (i, words) in self.command.iter().enumerate() {
            let log = std::fs::File::create(self.dir.join(format!("{i}.log")))?;
            let child = Command::new(&words[0])
                .args(&words[1..])
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .map_err(|e| io::Error::other(format!("{}: {e}", words[0])))?;
            self.members.push(child);
        }
        for port in self.ports.clone() {
            self.wait_ready(port)?;
        }
        Ok(())
    }

    fn wait_ready(&mut self, port: u16) -> io::Result<()> {
        let give_up = Instant::now() + Duration::from_secs(120);
        while Instant::now() < give_up {
            if self.kind == Kind::Floor {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Ok(());
                }
            } else if probe::healthy(port) {
                return Ok(());
            }
            for child in &mut self.members {
                if let Some(status) = child.try_wait()? {
                    return Err(io::Error::other(format!(
                        "{} ended with {status}; see {}",
                        self.kind.name(),
                        self.dir.display()
                    )));
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other(format!(
            "{} did not answer in 120 s",
            self.kind.name()
        )))
    }

    /// Stops every member by SIGTERM, starts it again and returns the time until the first linearizable
    /// read was answered.
    pub fn restart(&mut self) -> io::Result<Duration> {
        self.stop();
        let begin = Instant::now();
        self.launch()?;
        Ok(begin.elapsed())
    }

    /// Removes the last member, empties its folder, adds it again and starts it; the time from its start to its
    /// first linearizable read.
    pub fn replace_last(&mut self, options: &Options) -> io::Result<Duration> {
        let last = self.members.len() - 1;
        let (name, port) = (format!("m{last}"), self.ports[last]);
        let ctl = |words: &[&str]| -> io::Result<String> {
            let out = Command::new(options.oracle.join("etcdctl"))
                .args(["--endpoints", &format!("127.0.0.1:{}", self.ports[0])])
                .args(words)
                .output()?;
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            if out.status.success() {
                return Ok(said);
            }
            let why = String::from_utf8_lossy(&out.stderr).into_owned();
            Err(io::Error::other(format!("etcdctl {words:?}: {why}")))
        };
        let listed = ctl(&["member", "list"])?;
        let id = listed
            .lines()
            .find(|line| line.contains(&format!(", {name}, ")))
            .and_then(|line| line.split(',').next())
            .ok_or_else(|| io::Error::other(format!("{name} is not in: {listed}")))?;
        // etcd refuses both until the members have been connected for five seconds.
        let patiently = |words: &[&str]| -> io::Result<()> {
            let give_up = Instant::now() + Duration::from_secs(20);
            while let Err(error) = ctl(words) {
                if Instant::now() > give_up {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            Ok(())
        };
        patiently(&["member", "remove", id])?;
        let _ = self.members[last].kill();
        let _ = self.members[last].wait();
        std::fs::remove_dir_all(self.dir.join(last.to_string()))?;
        let peer = format!("--peer-urls=http://127.0.0.1:{}", port + 1);
        patiently(&["member", "add", &name, &peer])?;
        let log = std::fs::File::create(self.dir.join(format!("{last}-again.log")))?;
        let words = &self.command[last];
        let begin = Instant::now();
        self.members[last] = Command::new(&words[0])
            .args(&words[1..])
            .arg("--initial-cluster-state=existing")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.wait_ready(port)?;
        Ok(begin.elapsed())
    }

    fn stop(&mut self) {
        for child in &mut self.members {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
        }
        let give_up = Instant::now() + Duration::from_secs(30);
        for child in &mut self.members {
            while Instant::now() < give_up && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.members.clear();
    }

    /// `host:port` list for clients.
    pub fn endpoints(&self) -> String {
        let list: Vec<String> = self
            .ports
            .iter()
            .map(|p| format!("127.0.0.1:{p}"))
            .collect();
        list.join(",")
    }

    /// Counters of all members, added up.
    pub fn counters(&self) -> probe::Counters {
        let mut sum = probe::Counters::default();
        for (child, port) in self.members.iter().zip(&self.ports) {
            sum.add(&probe::Counters::read(
                child.id(),
                (self.kind != Kind::Floor).then_some(*port),
            ));
        }
        sum
    }

    /// Bytes of the data folders on disk.
    pub fn disk_bytes(&self) -> u64 {
        probe::folder_bytes(&self.dir)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

fn command(options: &Options, kind: Kind, dir: &Path, ports: &[u16], i: usize) -> Vec<String> {
    let port = ports[i];
    if kind == Kind::Floor {
        return vec![options.floor.display().to_string(), port.to_string()];
    }
    let url = |p: u16| format!("http://127.0.0.1:{p}");
    let cluster: Vec<String> = ports
        .iter()
        .enumerate()
        .map(|(n, p)| format!("m{n}={}", url(p + 1)))
        .collect();
    let mut words = match kind {
        Kind::Etcd => vec![options.oracle.join("etcd").display().to_string()],
        _ => vec![options.tenon.display().to_string(), "serve".to_owned()],
    };
    for (flag, value) in [
        ("--name", format!("m{i}")),
        ("--data-dir", dir.join(i.to_string()).display().to_string()),
        ("--listen-client-urls", url(port)),
        ("--advertise-client-urls", url(port)),
        ("--listen-peer-urls", url(port + 1)),
        ("--initial-advertise-peer-urls", url(port + 1)),
        ("--initial-cluster", cluster.join(",")),
        ("--quota-backend-bytes", (8u64 << 30).to_string()),
        ("--log-level", "error".to_owned()),
    ] {
        words.push(flag.to_owned());
        words.push(value);
    }
    words
}
