//! Room `server/shell`: a member and a host in client mode in one process, over real sockets: what a client of the
//! host's endpoint sees.

use super::*;
use crate::host::door::{Backend, Door};
use crate::host::remote::Remote;
use crate::member::Member;
use crate::member::config::tests::config;
use crate::shell::flags::config::Keepalive;
use crate::shell::flags::url::FlagUrl;
use crate::shell::front::Front;
use crate::shell::grpc::{Rpc, gate::Gate};
use crate::shell::http::{HealthCounts, Http, Shared, Surface};
use crate::shell::listen::{Listener, ServeOptions, connections};
use crate::shell::metrics::grpc::GrpcMetrics;
use tenon_env::Env;
use tenon_env::sync::watch;
use tenon_proto::code::Code;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::kv_client::KvClient;
use tenon_proto::etcdserverpb::lease_client::LeaseClient;
use tenon_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use tenon_proto::etcdserverpb::watch_client::WatchClient;
use tenon_proto::etcdserverpb::watch_request::RequestUnion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const WITHIN: Duration = Duration::from_secs(20);

/// Serves a door on a port of its own; the URL, and what stops it when dropped.
async fn serve(door: &Door) -> (String, watch::Sender<bool>) {
    let options = ServeOptions {
        max_concurrent_streams: u32::MAX,
        keepalive: Keepalive {
            client_min: Duration::from_secs(5),
            interval: Duration::from_secs(7200),
            timeout: Duration::from_secs(20),
        },
        reuse_port: false,
        reuse_address: false,
        connections: connections(None).expect("no limit"),
    };
    let any = FlagUrl::read("http://127.0.0.1:0").expect("a URL");
    let listener = Listener::bind(&any, &options).await.expect("binds");
    let url = format!("http://{}", listener.address);
    let grpc = Arc::new(GrpcMetrics::new(false));
    let shared = Arc::new(Shared {
        door: door.clone(),
        grpc: grpc.clone(),
        health: HealthCounts::default(),
        gates: Vec::new(),
        command_line: Vec::new(),
        cors: Vec::new(),
        hosts: Vec::new(),
    });
    let front = Front {
        rpc: Some(Rpc::new(
            Gate::new(door.clone(), grpc, Duration::ZERO),
            None,
            1 << 20,
        )),
        http: Http::new(shared, Surface::Client),
    };
    let (stop, stopped) = watch::channel(false);
    let (alive, _) = mpsc::channel(1);
    tokio::spawn(listener.serve(front, options, stopped, alive));
    (url, stop)
}

struct World {
    env: Env,
    member: Member,
    /// The member's own URL, and the host's with its door.
    member_url: String,
    url: String,
    door: Door,
    _stops: [watch::Sender<bool>; 2],
    _dir: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let dir = tempfile::tempdir().expect("a folder");
        let env = tenon_env::real::env_without_peers();
        let mut config = config("m", &["http://localhost:2380"]);
        config.data_dir = dir.path().to_owned();
        (config.heartbeat, config.election) =
            (Duration::from_millis(20), Duration::from_millis(100));
        // Advertises what cannot be reached: what the host was given goes on working.
        config.advertise_client_urls = vec!["http://127.0.0.1:1".to_owned()];
        let member = Member::start(&env, config).await.expect("starts");
        member.wait_ready().await;
        let own = Door::new(&env, Backend::Member(member.services_shared()));
        let (member_url, stop_member) = serve(&own).await;
        let closed = Backend::Closed(Error::Stopped);
        let door = Door::new(&env, closed);
        let (url, stop_host) = serve(&door).await;
        let world = World {
            env,
            member,
            member_url,
            url,
            door,
            _stops: [stop_member, stop_host],
            _dir: dir,
        };
        world.switch(world.there()).await;
        world
    }

    fn there(&self) -> Backend {
        let urls = vec![self.member_url.clone()];
        let floor = self.door.shared_floor();
        Backend::Remote(Remote::new(&self.env, Channels::new(), urls, floor))
    }

    fn here(&self) -> Backend {
        Backend::Member(self.member.services_shared())
    }

    async fn switch(&self, to: Backend) {
        let moved = self.door.switch(to, WITHIN).await;
        moved.expect("nothing is left behind");
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(self.url.clone()).expect("a URL");
        endpoint.connect().await.expect("connects")
    }

    async fn http(&self, path: &str) -> String {
        let address = self.url.trim_start_matches("http://");
        let stream = tokio::net::TcpStream::connect(address).await;
        let mut stream = stream.expect("connects");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let sent = stream.write_all(request.as_bytes()).await;
        sent.expect("is sent");
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        read.expect("is text");
        answer
    }
}

fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..pb::PutRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_a_member_answers_every_kind_of_call() {
    let world = World::new().await;
    for path in [
        "/health",
        "/livez",
        "/readyz",
        "/version",
        "/metrics",
        "/debug/vars",
    ] {
        let answer = world.http(path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let channel = world.channel().await;
    let mut kv = KvClient::new(channel.clone());
    for n in 0..50 {
        kv.put(put(&format!("k{n:02}"), "v"))
            .await
            .expect("is written");
    }
    let refused = kv.put(put("", "v")).await.expect_err("without a key");
    assert_eq!(
        Error::from(refused),
        Error::EmptyKey,
        "etcd's error comes through"
    );
    let all = pb::RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..pb::RangeRequest::default()
    };
    let parts = kv.range_stream(all).await.expect("begins").into_inner();
    let parts: Vec<_> = parts.collect().await;
    let kvs = parts.into_iter().map(|part| part.expect("no error"));
    let kvs: usize = kvs.map(|p| p.range_response.expect("set").kvs.len()).sum();
    assert_eq!(kvs, 50);
    let mut maintenance = MaintenanceClient::new(channel.clone());
    let status = maintenance.status(pb::StatusRequest::default()).await;
    let status = status.expect("the leader answers").into_inner();
    let id = world.member.services().context.member().get();
    assert_eq!(
        (status.leader, status.header.expect("set").member_id),
        (id, id)
    );
    let mut lease = LeaseClient::new(channel);
    let grant = pb::LeaseGrantRequest { id: 7, ttl: 60 };
    lease.lease_grant(grant).await.expect("is granted");
    let renewals = tokio_stream::iter([7, 8].map(|id| pb::LeaseKeepAliveRequest { id }));
    let answers = lease.lease_keep_alive(renewals).await.expect("begins");
    let answers: Vec<_> = answers.into_inner().collect().await;
    let ttls: Vec<i64> = answers
        .into_iter()
        .map(|answer| answer.expect("no error").ttl)
        .collect();
    assert_eq!(ttls, [60, 0], "and it ends with the requests");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_on_open_connections_notice_nothing_of_the_moves() {
    const CLIENTS: usize = 10;
    const WRITES: usize = 30;
    let world = World::new().await;
    let channel = world.channel().await;
    let (ask, requests) = mpsc::channel(4);
    let create = pb::WatchCreateRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..pb::WatchCreateRequest::default()
    };
    let request_union = Some(RequestUnion::CreateRequest(create));
    let asked = ask.send(pb::WatchRequest { request_union }).await;
    asked.expect("is taken");
    let mut watch = WatchClient::new(channel.clone());
    let events = watch.watch(ReceiverStream::new(requests)).await;
    let mut events = events.expect("begins").into_inner();
    let created = events.message().await.expect("no error");
    assert!(created.expect("an answer").created);
    let writers: tokio::task::JoinSet<()> = (0..CLIENTS)
        .map(|client| {
            let mut kv = KvClient::new(channel.clone());
            async move {
                for n in 0..WRITES {
                    let write = kv.put(put(&format!("k{client}"), &n.to_string()));
                    let write = tokio::time::timeout(Duration::from_secs(5), write).await;
                    write.expect("in time").expect("is written");
                }
            }
        })
        .collect();
    let reader = async {
        let mut next = [0; CLIENTS];
        let mut revision = 0;
        while next.iter().sum::<usize>() < CLIENTS * WRITES {
            let answer = events.message().await.expect("no error");
            for event in answer.expect("goes on").events {
                let kv = event.kv.expect("set");
                assert!(kv.mod_revision > revision, "in order");
                revision = kv.mod_revision;
                let client = usize::from(kv.key[1] - b'0');
                assert_eq!(kv.value, next[client].to_string(), "no gap and no repeat");
                next[client] += 1;
            }
        }
    };
    let mover = async {
        for turn in 0..6 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let to = match turn % 2 {
                0 => world.here(),
                _ => world.there(),
            };
            world.switch(to).await;
        }
    };
    let all = async { tokio::join!(writers.join_all(), reader, mover) };
    tokio::time::timeout(WITHIN, all).await.expect("in time");
    world.member.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_know_only_each_other_come_to_an_end_and_say_so() {
    let env = tenon_env::real::env_without_peers();
    let doors = [0, 1].map(|_| Door::new(&env, Backend::Closed(Error::Stopped)));
    let (first, _stop_first) = serve(&doors[0]).await;
    let (second, _stop_second) = serve(&doors[1]).await;
    for (door, other) in doors.iter().zip([&second, &first]) {
        let floor = door.shared_floor();
        let remote = Remote::new(&env, Channels::new(), vec![other.clone()], floor);
        let moved = door.switch(Backend::Remote(remote), WITHIN).await;
        moved.expect("nothing is under way");
    }
    let Backend::Remote(remote) = doors[0].backend() else {
        panic!("client mode")
    };
    // Whether a call passes so many doors that it is taken for one in a circle, or the time that each door has for the
    // next is over before, depends on the machine. It comes to an end in either case, and names who asks whom.
    let told = async {
        loop {
            let deadline = env.now() + Duration::from_secs(2);
            let error = remote.ready(deadline).await;
            let text = error.expect_err("no member anywhere").message();
            if text.contains(&first) && text.contains(&second) {
                break;
            }
        }
    };
    let told = tokio::time::timeout(WITHIN, told).await;
    told.expect("it says that the hosts ask each other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_end_their_call_with_etcds_words() {
    let world = World::new().await;
    world.switch(world.here()).await;
    let broken = || Bytes::from_static(b"\xff\xff");
    let to = Channels::new();
    let info = CallInfo::default();
    let asked = to.unary(&world.url, Method::KvPut, info.clone(), broken());
    let Err(UpstreamError::Status(error)) = asked.await else {
        panic!("it is refused");
    };
    let why = "proto: cannot parse invalid wire-format data";
    assert_eq!(error.code(), Code::Internal);
    assert_eq!(
        error.message(),
        format!("grpc: error unmarshalling request: {why}")
    );
    for method in [Method::WatchWatch, Method::LeaseLeaseKeepAlive] {
        let (ask, requests) = mpsc::channel(4);
        let asked = ask.send(broken()).await;
        asked.expect("is taken");
        let answers = to.stream(&world.url, method, info.clone(), requests);
        let mut answers = answers.await.expect("begins");
        let last = tokio::time::timeout(WITHIN, answers.recv()).await;
        let Some(Err(UpstreamError::Status(error))) = last.expect("in time") else {
            panic!("{method:?} is refused");
        };
        assert_eq!(error.code(), Code::Internal, "{method:?}");
        assert_eq!(
            error.message(),
            format!("grpc: failed to unmarshal the received message: {why}")
        );
    }
    world.member.shutdown().await;
}
