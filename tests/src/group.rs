//! Room `tests`: the server processes of one script: one that stands alone, or the members of a cluster, with
//! leadership where the script expects it. May touch processes and sockets; must not compare.
//!
//! A cluster's members are called `m1`, `m2`, … in the order of their ids, so that lists are told in one order,
//! and `m1` leads when a script begins.

use crate::call::{self, Metadata};
use crate::print;
use crate::schema::Schema;
use crate::server::{Kind, Seat, Server};
use prost_reflect::DynamicMessage;
use sha1::{Digest, Sha1};
use std::time::{Duration, Instant};
use tonic::transport::Channel;

/// How long a server may take until it answers, and a cluster until all know its leader.
const READY_MAX: Duration = Duration::from_secs(30);
/// Elections within a second; leases as short as with etcd's own 1000 ms.
const CLUSTER_FLAGS: &[&str] = &["--heartbeat-interval=100", "--election-timeout=700"];

/// Server processes; all end with the value.
pub struct Group {
    kind: Kind,
    flags: Vec<String>,
    /// The members, started or not.
    pub servers: Vec<Server>,
    channels: Vec<Option<Channel>>,
}

impl Group {
    /// One server that stands alone.
    ///
    /// # Errors
    /// Why it did not start.
    pub fn alone(kind: Kind, flags: &[String]) -> Result<Self, String> {
        Ok(Self {
            kind,
            flags: flags.to_vec(),
            servers: vec![Server::start(kind, flags)?],
            channels: vec![None],
        })
    }

    /// `count` members that found a cluster; they may not answer yet.
    ///
    /// # Errors
    /// Why they did not start.
    pub fn cluster(kind: Kind, count: usize, flags: &[String]) -> Result<Self, String> {
        let mut seats: Vec<Seat> = (0..count).map(|_| Seat::free("")).collect();
        seats.sort_by_key(|seat| first_id(&seat.peer_url));
        let pairs = seats.iter().enumerate();
        let pairs: Vec<String> = pairs
            .map(|(at, seat)| format!("m{}={}", at + 1, seat.peer_url))
            .collect();
        let mut all: Vec<String> = CLUSTER_FLAGS.iter().map(|f| (*f).to_owned()).collect();
        all.extend_from_slice(flags);
        let mut group = Self {
            kind,
            flags: all,
            servers: Vec::new(),
            channels: Vec::new(),
        };
        for (at, mut seat) in seats.into_iter().enumerate() {
            seat.name = format!("m{}", at + 1);
            seat.initial_cluster = pairs.join(",");
            group.push(seat)?;
            group.servers[at].spawn()?;
        }
        Ok(group)
    }

    fn push(&mut self, seat: Seat) -> Result<(), String> {
        self.servers
            .push(Server::seated(self.kind, seat, &self.flags)?);
        self.channels.push(None);
        Ok(())
    }

    /// A further member, told to join those that are here; not started.
    ///
    /// # Errors
    /// When there are no free ports.
    pub fn invite(&mut self, name: &str) -> Result<(), String> {
        let mut seat = Seat::free(name);
        let known = &self.servers[0].seat().initial_cluster;
        seat.initial_cluster = format!("{known},{name}={}", seat.peer_url);
        seat.state = "existing";
        self.push(seat)
    }

    /// The index of the member called `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, name: &str) -> Result<usize, String> {
        let mut seats = self.servers.iter().map(Server::seat);
        let found = seats.position(|seat| seat.name == name);
        found.ok_or_else(|| format!("no member {name}"))
    }

    /// All client URLs, as etcdctl takes them.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let urls: Vec<String> = self.servers.iter().map(Server::url).collect();
        urls.join(",")
    }

    /// A connection to a member.
    ///
    /// # Errors
    /// The transport's text.
    pub async fn channel(&mut self, at: usize) -> Result<Channel, String> {
        if let Some(channel) = &self.channels[at] {
            return Ok(channel.clone());
        }
        let channel = call::connect(&self.servers[at].url()).await?;
        self.channels[at] = Some(channel.clone());
        Ok(channel)
    }

    /// Waits until a member answers a linearizable read.
    ///
    /// # Errors
    /// As [`wait_ready`].
    pub async fn wait_ready(&mut self, schema: &Schema, at: usize) -> Result<(), String> {
        let channel = wait_ready(schema, &mut self.servers[at]).await?;
        self.channels[at] = Some(channel);
        Ok(())
    }

    /// A verb of a script by which members come, go and stand still.
    ///
    /// # Errors
    /// When there is no such member, or it does not start.
    pub async fn change(
        &mut self,
        schema: &Schema,
        verb: &str,
        name: &str,
    ) -> Result<Vec<String>, String> {
        match verb {
            "settle" => return self.settle(schema).await.map(|_| Vec::new()),
            "invite" => return self.invite(name).map(|()| Vec::new()),
            _ => {}
        }
        let at = self.find(name)?;
        let server = &mut self.servers[at];
        match verb {
            "up" => {
                server.spawn()?;
                self.wait_ready(schema, at).await?;
            }
            "down" => {
                server.kill();
                self.channels[at] = None;
            }
            "pause" => server.signal("STOP"),
            "resume" => server.signal("CONT"),
            _ => {
                self.channels[at] = None;
                return Ok(vec![said(server.kind(), server.ended(), "ended")]);
            }
        }
        Ok(Vec::new())
    }

    /// Stops a member (`kill`: at once) and starts it again on its directory.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(
        &mut self,
        schema: &Schema,
        at: usize,
        verb: &str,
    ) -> Result<Vec<String>, String> {
        let server = &mut self.servers[at];
        let mut lines = Vec::new();
        if verb == "kill" {
            server.kill();
        } else {
            lines.push(said(server.kind(), server.stop(), "stopped"));
        }
        server.spawn()?;
        self.wait_ready(schema, at).await?;
        Ok(lines)
    }

    /// One call to a member; the answer, or the status as scripts tell it.
    ///
    /// # Errors
    /// The server's status, or why there is none.
    pub async fn ask(
        &mut self,
        schema: &Schema,
        at: usize,
        method: &str,
        request: &str,
    ) -> Result<DynamicMessage, String> {
        let method = schema.method(method)?;
        let request = Schema::request(method.input(), request)?;
        let channel = self.channel(at).await?;
        let answer = call::unary(&channel, &method, &Metadata::new(), request).await;
        answer.map_err(|status| print::status(&status))
    }

    /// A member's id and whom it takes for the leader.
    ///
    /// # Errors
    /// Why it did not say.
    pub async fn leader(&mut self, schema: &Schema, at: usize) -> Result<(u64, u64), String> {
        let status = self.ask(schema, at, "Status", "").await?;
        let header = status.get_field_by_name("header");
        let id = header
            .as_deref()
            .and_then(|h| h.as_message()?.get_field_by_name("member_id")?.as_u64());
        let leader = status.get_field_by_name("leader").and_then(|v| v.as_u64());
        id.zip(leader).ok_or_else(|| "no header".to_owned())
    }

    /// Waits until all members answer, are listed with their URLs, and follow the first; the ids.
    ///
    /// # Errors
    /// What was still missing after 30 s.
    pub async fn settle(&mut self, schema: &Schema) -> Result<Vec<u64>, String> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let failed = match self.try_settle(schema).await {
                Ok(ids) => return Ok(ids),
                Err(failed) => failed,
            };
            for server in &mut self.servers {
                server.check_running()?;
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "the cluster is not ready: {failed}; log: {}",
                    self.servers[0].log_end()
                ));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    async fn try_settle(&mut self, schema: &Schema) -> Result<Vec<u64>, String> {
        let (mut ids, mut leaders) = (Vec::new(), Vec::new());
        for at in 0..self.servers.len() {
            let (id, leader) = self.leader(schema, at).await?;
            ids.push(id);
            leaders.push(leader);
        }
        if !ids.is_sorted() {
            return Err(format!("ids are not in order: {ids:x?}"));
        }
        let Some(leads) = ids.iter().position(|id| *id == leaders[0]) else {
            return Err("no leader".to_owned());
        };
        if leads != 0 {
            let to = format!("targetID: {}", ids[0]);
            self.ask(schema, leads, "MoveLeader", &to).await?;
        }
        if leaders.iter().any(|leader| *leader != ids[0]) {
            return Err(format!("leaders {leaders:x?} of {ids:x?}"));
        }
        for at in 0..self.servers.len() {
            let list = self.ask(schema, at, "MemberList", "linearizable: true");
            let list = print::message(&list.await?, print::Detail::Full).join("\n");
            let published = |server: &Server| list.contains(&server.url());
            if !self.servers.iter().all(published) {
                return Err(format!("not all are published: {list}"));
            }
        }
        Ok(ids)
    }
}

/// How a process ended. etcd re-raises the signal after its clean stop; both are clean.
fn said(kind: Kind, code: Option<i32>, clean: &str) -> String {
    match code {
        Some(0) => clean.to_owned(),
        None if kind == Kind::Etcd => clean.to_owned(),
        _ => format!("exit {code:?}"),
    }
}

/// The id etcd gives a founding member with this peer URL.
fn first_id(peer_url: &str) -> u64 {
    let digest = Sha1::new()
        .chain_update(peer_url)
        .chain_update("etcd-cluster")
        .finalize();
    let first: [u8; 8] = digest[..8].try_into().expect("20 bytes");
    u64::from_be_bytes(first)
}

/// Waits until `server` answers a linearizable read.
///
/// # Errors
/// When the process ends or does not answer within 30 s.
pub async fn wait_ready(schema: &Schema, server: &mut Server) -> Result<Channel, String> {
    let method = schema.method("Range")?;
    let deadline = Instant::now() + READY_MAX;
    loop {
        server.check_running()?;
        let failed = match call::connect(&server.url()).await {
            Err(error) => error,
            Ok(channel) => {
                let request = Schema::request(method.input(), "key: \"\\000\"")?;
                match call::unary(&channel, &method, &Metadata::new(), request).await {
                    Ok(_) => return Ok(channel),
                    // A learner answers too.
                    Err(status) if status.message().contains("for learner") => return Ok(channel),
                    Err(status) => print::status(&status),
                }
            }
        };
        if Instant::now() > deadline {
            return Err(format!(
                "server does not answer: {failed}; log: {}",
                server.log_end()
            ));
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// As [`wait_ready`], for tests that are not asynchronous themselves.
///
/// # Panics
/// When it does not answer in time.
pub fn until_ready(server: &mut Server) {
    let schema = Schema::load().expect("schemas");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ready = async { wait_ready(&schema, server).await.map(|_| ()) };
    runtime.expect("runtime").block_on(ready).expect("answers");
}
