//! Tests of the transport over loopback. Every wait is bounded; nothing asserts how long something took.

use super::proxy::Proxy;
use super::*;
use axum::routing::get;
use std::future::Future;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bounds every test; far above what any needs.
async fn bounded<T>(work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, work)
        .await
        .expect("the test hangs")
}

struct Node {
    net: Arc<dyn Net>,
    listener: PeerListener,
    incoming: Box<dyn Incoming>,
}

impl Node {
    async fn new() -> Node {
        Node::with(PeerLimits::default()).await
    }

    async fn with(limits: PeerLimits) -> Node {
        let router =
            axum::Router::new().route("/version", get(|| async { "{\"etcdserver\":\"x\"}" }));
        let urls = ["http://127.0.0.1:0".to_owned()];
        let bound = PeerNet::bind(&urls, router, limits).await;
        let (net, listener) = bound.expect("loopback binds");
        let incoming = net.incoming();
        Node {
            net,
            listener,
            incoming,
        }
    }

    fn url(&self) -> String {
        self.listener.urls()[0].clone()
    }

    async fn dial(&self, url: &str, kind: StreamKind) -> io::Result<Box<dyn NetStream>> {
        self.net.connect(vec![url.to_owned()], kind).await
    }

    /// A stream from `self` to `other`: both ends.
    async fn pair(&self, other: &mut Node) -> (Box<dyn NetStream>, Box<dyn NetStream>) {
        let near = self.dial(&other.url(), StreamKind::Peer).await;
        let (_, far) = other.incoming.accept().await.expect("it listens");
        (near.expect("it answers"), far)
    }
}

fn refused(result: io::Result<Box<dyn NetStream>>) -> String {
    match result {
        Ok(_) => panic!("the dial should fail"),
        Err(error) => error.to_string(),
    }
}

fn numbered(n: u32, length: usize) -> Bytes {
    let mut message = n.to_be_bytes().to_vec();
    message.resize(length.max(4), u8::try_from(n % 251).expect("small"));
    message.into()
}

#[tokio::test]
async fn messages_of_every_size_arrive_in_order_both_ways() {
    bounded(async {
        let (a, mut b) = (Node::new().await, Node::new().await);
        let (mut near, far) = a.pair(&mut b).await;
        let (mut far_send, mut far_recv) = far.split();
        let echo = tokio::spawn(async move {
            while let Some(message) = far_recv.recv().await.expect("whole") {
                far_send.send(message).await.expect("open");
            }
        });
        near.send(Bytes::new()).await.expect("open");
        assert_eq!(near.recv().await.expect("whole"), Some(Bytes::new()));

        let lengths = [
            4,
            100,
            8191,
            8192,
            8193,
            65_535,
            70_000,
            1 << 20,
            5,
            3 << 20,
            6,
        ];
        let (mut send, mut recv) = near.split();
        let sender = tokio::spawn(async move {
            for (n, length) in (0..).zip(lengths.repeat(8)) {
                send.send(numbered(n, length)).await.expect("open");
            }
        });
        for (n, length) in (0..).zip(lengths.repeat(8)) {
            let got = recv.recv().await.expect("whole").expect("no end yet");
            assert!(got == numbered(n, length), "message {n} of {length} bytes");
        }
        // The sender's end passes through the echo and comes back as an end, not as an error.
        sender.await.expect("no panic");
        assert_eq!(recv.recv().await.expect("orderly"), None);
        echo.await.expect("no panic");
    })
    .await;
}

#[tokio::test]
async fn the_longest_message_passes_and_a_longer_one_is_refused_at_once() {
    bounded(async {
        let limits = PeerLimits::default();
        let max = limits.message_bytes_max;
        let (a, mut b) = (Node::new().await, Node::new().await);
        let (mut near, mut far) = a.pair(&mut b).await;
        let error = near.send(Bytes::from(vec![1; max + 1])).await;
        let error = error.expect_err("too long").to_string();
        assert!(
            error.contains("67108865") && error.contains("67108864"),
            "{error}"
        );

        let whole = Bytes::from(vec![7; max]);
        near.send(whole.clone()).await.expect("open");
        let got = far.recv().await.expect("whole").expect("a message");
        assert!(got == whole, "64 MiB arrive as sent");
    })
    .await;
}

#[tokio::test]
async fn a_message_beyond_the_receivers_limit_breaks_the_stream() {
    bounded(async {
        let small = PeerLimits {
            message_bytes_max: 10,
            ..PeerLimits::default()
        };
        let (a, mut b) = (Node::new().await, Node::with(small).await);
        let (mut near, mut far) = a.pair(&mut b).await;
        near.send(Bytes::from_static(b"0123456789"))
            .await
            .expect("open");
        near.send(Bytes::from_static(b"0123456789x"))
            .await
            .expect("open");
        assert!(far.recv().await.expect("allowed").is_some());
        let error = far.recv().await.expect_err("above the limit").to_string();
        assert!(
            error.contains("11 bytes exceeds the limit of 10"),
            "{error}"
        );
        far.recv().await.expect_err("and stays broken");
    })
    .await;
}

#[tokio::test]
async fn dropping_a_whole_stream_still_delivers_what_was_sent() {
    bounded(async {
        let (a, mut b) = (Node::new().await, Node::new().await);
        for dialled in [true, false] {
            let (near, far) = a.pair(&mut b).await;
            let (mut from, mut to) = if dialled { (near, far) } else { (far, near) };
            for n in 0..10 {
                from.send(numbered(n, 100_000)).await.expect("open");
            }
            drop(from);
            for n in 0..10 {
                let got = to
                    .recv()
                    .await
                    .unwrap_or_else(|e| panic!("dialled {dialled}, message {n}: {e}"));
                assert!(got == Some(numbered(n, 100_000)), "message {n}");
            }
            assert_eq!(to.recv().await.expect("orderly"), None);
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_receiver_holds_the_sender_back() {
    bounded(async {
        let limits = PeerLimits {
            window_bytes: 1 << 20,
            ..PeerLimits::default()
        };
        let (a, mut b) = (Node::with(limits.clone()).await, Node::with(limits).await);
        let (near, mut far) = a.pair(&mut b).await;
        let sent = Arc::new(AtomicU64::new(0));
        let count = sent.clone();
        let (mut send, _recv) = near.split();
        let sender = tokio::spawn(async move {
            for n in 0..200 {
                send.send(numbered(n, 1 << 20)).await.expect("open");
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        // Long enough for a sender without bounds to finish: it would only copy pointers.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let ahead = sent.load(Ordering::SeqCst);
        assert!(ahead < 100, "{ahead} MiB were taken from the sender unread");
        for n in 0..200 {
            let got = far.recv().await.expect("whole").expect("a message");
            assert!(got == numbered(n, 1 << 20), "message {n}");
        }
        sender.await.expect("no panic");
    })
    .await;
}

#[tokio::test]
async fn a_cut_connection_is_an_error_at_both_ends_and_a_new_dial_works() {
    bounded(async {
        let (a, mut b) = (Node::new().await, Node::new().await);
        let proxy = Proxy::new(&b.url()).await;
        let mut near = a.dial(&proxy.url, StreamKind::Peer).await.expect("answers");
        let (_, mut far) = b.incoming.accept().await.expect("listens");
        near.send(Bytes::from_static(b"x")).await.expect("open");
        assert!(far.recv().await.expect("whole").is_some());

        proxy.task.abort();
        near.recv().await.expect_err("cut, not ended");
        far.recv().await.expect_err("cut, not ended");
        while near.send(Bytes::from_static(b"x")).await.is_ok() {
            tokio::task::yield_now().await;
        }
        while far.send(Bytes::from_static(b"x")).await.is_ok() {
            tokio::task::yield_now().await;
        }

        let (mut near, mut far) = a.pair(&mut b).await;
        near.send(Bytes::from_static(b"again")).await.expect("open");
        let got = far.recv().await.expect("whole");
        assert_eq!(got, Some(Bytes::from_static(b"again")));
    })
    .await;
}

#[tokio::test]
async fn a_silent_host_is_noticed_at_both_ends() {
    bounded(async {
        let limits = PeerLimits {
            ping_interval: Duration::from_millis(100),
            ping_timeout: Duration::from_millis(500),
            ..PeerLimits::default()
        };
        let (a, mut b) = (Node::with(limits.clone()).await, Node::with(limits).await);
        let proxy = Proxy::new(&b.url()).await;
        let mut near = a.dial(&proxy.url, StreamKind::Bulk).await.expect("answers");
        let (kind, mut far) = b.incoming.accept().await.expect("listens");
        assert_eq!(kind, StreamKind::Bulk);
        proxy.mute.send_replace(true);
        near.recv().await.expect_err("silent");
        far.recv().await.expect_err("silent");
        proxy.task.abort();
    })
    .await;
}

#[tokio::test]
async fn a_stuck_bulk_stream_delays_no_other_stream() {
    bounded(async {
        let (a, mut b) = (Node::new().await, Node::new().await);
        let url = b.url();
        let bulk = a.dial(&url, StreamKind::Bulk).await.expect("answers");
        let (_, unread) = b.incoming.accept().await.expect("listens");
        let (mut bulk, _recv) = bulk.split();
        let stuck =
            tokio::spawn(
                async move { while bulk.send(Bytes::from(vec![0; 1 << 20])).await.is_ok() {} },
            );
        let (mut near, mut far) = a.pair(&mut b).await;
        for n in 0..100 {
            near.send(numbered(n, 50)).await.expect("open");
            assert_eq!(far.recv().await.expect("whole"), Some(numbered(n, 50)));
        }
        drop(unread);
        stuck.abort();
    })
    .await;
}

#[tokio::test]
async fn three_nodes_talk_all_to_all() {
    bounded(async {
        let mut nodes = vec![Node::new().await, Node::new().await, Node::new().await];
        let urls: Vec<String> = nodes.iter().map(Node::url).collect();
        for (id, node) in (1..).zip(&nodes) {
            node.net.identify(0xc1, id);
        }
        for from in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                let label = Bytes::from(format!("{from}>{to}"));
                // A dead URL before the live one is passed over.
                let tried = vec!["http://127.0.0.1:1".to_owned(), urls[to].clone()];
                let dial = nodes[from].net.connect(tried, StreamKind::Peer).await;
                let mut near = dial.expect("answers");
                near.send(label.clone()).await.expect("open");
                let (_, mut far) = nodes[to].incoming.accept().await.expect("listens");
                assert_eq!(far.recv().await.expect("whole"), Some(label));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_of_another_cluster_is_refused_naming_both() {
    bounded(async {
        let (a, mut b) = (Node::new().await, Node::new().await);
        a.net.identify(0xaaa1, 0x1);
        b.listener.identify(0xbbb2, 0x2);
        let error = refused(a.dial(&b.url(), StreamKind::Peer).await);
        for part in [
            "cluster ID mismatch",
            "1 is of cluster aaa1",
            "2 is of cluster bbb2",
        ] {
            assert!(error.contains(part), "{part:?} in {error}");
        }

        // One that knew no cluster yet passes; once it is known, a stream still waiting is dropped.
        let early = Node::new().await;
        let waiting = early.dial(&b.url(), StreamKind::Peer).await;
        waiting.expect("no cluster known, no mismatch");
        b.incoming.accept().await.expect("listens");
        let mut late = Node::new().await;
        let stale = a
            .dial(&late.url(), StreamKind::Peer)
            .await
            .expect("unknown");
        late.net.identify(0xbbb2, 0x3);
        let (_, fresh) = (
            stale,
            b.dial(&late.url(), StreamKind::Bulk).await.expect("same"),
        );
        let (kind, _) = late.incoming.accept().await.expect("listens");
        assert_eq!(
            kind,
            StreamKind::Bulk,
            "the first stream is of another cluster"
        );
        drop(fresh);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_member_is_named() {
    bounded(async {
        let a = Node::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let other = tokio::spawn(async move {
            let app = axum::Router::new();
            let (socket, _) = listener.accept().await.expect("accepts");
            let io = hyper_util::rt::TokioIo::new(socket);
            let service = hyper_util::service::TowerToHyperService::new(app);
            let exec = hyper_util::rt::TokioExecutor::new();
            let settings = hyper_util::server::conn::auto::Builder::new(exec);
            let _ = settings.serve_connection(io, service).await;
        });
        let error = refused(a.dial(&url, StreamKind::Peer).await);
        assert!(
            error.contains(&url) && error.contains("no Tenon member"),
            "{error}"
        );
        other.abort();

        let error = refused(a.dial("https://127.0.0.1:1", StreamKind::Peer).await);
        assert!(error.contains("TLS between members"), "{error}");
        let error = refused(a.net.connect(vec![], StreamKind::Peer).await);
        assert!(error.contains("no peer URL"), "{error}");
        let tried = ["http://127.0.0.1:1", "http://[::1]:1"].map(str::to_owned);
        let error = refused(a.net.connect(tried.to_vec(), StreamKind::Peer).await);
        assert!(
            error.contains(&tried[0]) && error.contains(&tried[1]),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn plain_http_on_the_peer_port_reaches_the_router() {
    bounded(async {
        let a = Node::new().await;
        let address = a.url().trim_start_matches("http://").to_owned();
        for (path, status) in [("/version", "200"), ("/nothing", "404")] {
            let mut socket = TcpStream::connect(&address).await.expect("listens");
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            socket.write_all(request.as_bytes()).await.expect("open");
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.expect("text");
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
            assert_eq!(answer.contains("etcdserver"), status == "200", "{answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn unix_sockets_serve_and_are_removed() {
    bounded(async {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("peer.sock");
        std::fs::write(&path, "left by an earlier process").expect("writes");
        let url = format!("unix://{}", path.display());
        let urls = [url.clone(), "http://127.0.0.1:0".to_owned()];
        let bound = PeerNet::bind(&urls, axum::Router::new(), PeerLimits::default()).await;
        let (net, listener) = bound.expect("binds");
        assert_eq!(listener.urls()[0], url);
        let mut incoming = net.incoming();
        for url in listener.urls() {
            let dial = net.connect(vec![url], StreamKind::Peer).await;
            let mut near = dial.expect("answers");
            near.send(Bytes::from_static(b"x")).await.expect("open");
            let (_, mut far) = incoming.accept().await.expect("listens");
            assert!(far.recv().await.expect("whole").is_some());
        }
        drop(incoming);
        let mut again = net.incoming();
        let mut near = net
            .connect(vec![url], StreamKind::Peer)
            .await
            .expect("answers");
        near.send(Bytes::from_static(b"y")).await.expect("open");
        let arrived = again.accept().await;
        assert!(arrived.is_some(), "a later member takes what arrives");
        drop((near, arrived, again));
        listener.close().await;
        assert!(!path.exists(), "the socket's file is gone");
    })
    .await;
}

#[tokio::test]
async fn closing_ends_incoming_cuts_streams_and_frees_the_port() {
    bounded(async {
        let limits = PeerLimits {
            close_grace: Duration::from_millis(50),
            ..PeerLimits::default()
        };
        let (a, mut b) = (Node::new().await, Node::with(limits).await);
        let (mut near, far) = a.pair(&mut b).await;
        let url = b.url();
        b.listener.close().await;
        assert!(b.incoming.accept().await.is_none(), "no further streams");
        near.recv().await.expect_err("cut");
        drop(far);
        refused(a.dial(&url, StreamKind::Peer).await);
        let urls = [url.clone()];
        let again = PeerNet::bind(&urls, axum::Router::new(), PeerLimits::default());
        let (_net, _listener) = again.await.expect("the port is free");
        let taken = PeerNet::bind(&urls, axum::Router::new(), PeerLimits::default());
        let error = taken.await.err().expect("in use").to_string();
        assert!(error.starts_with(&url), "{error}");
    })
    .await;
}
