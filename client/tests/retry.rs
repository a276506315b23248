//! Which calls are sent again and where, against servers in this process that fail as told.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a client in the real world"
)]

mod support;

use std::time::Duration;
use support::fake::{Fake, Script};
use support::{Proxy, bounded, ports};
use tenon_client::proto::code::Code;
use tenon_client::proto::error::Error;
use tenon_client::proto::etcdserverpb as pb;
use tenon_client::proto::key_range::KeyRange;
use tenon_client::proto::mvccpb;
use tenon_client::{
    Client, ConnectOptions, Credentials, WatchError, WatchOptions, WatchUpdate, request,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tonic::Status;

fn failing(errors: &[Error]) -> Script {
    Script {
        errors: std::sync::Mutex::new(errors.to_vec().into()),
        ..Script::default()
    }
}

fn client(urls: &[&str]) -> Client {
    let urls = urls.iter().map(|u| (*u).to_owned());
    Client::connect(urls, ConnectOptions::default()).expect("valid")
}

#[tokio::test]
async fn a_read_is_asked_again_and_a_write_is_not() {
    bounded(async {
        for error in [
            Error::NoLeader,
            Error::Timeout,
            Error::LeaderChanged,
            Error::Stopped,
        ] {
            let fake = Fake::start(failing(&[error.clone(), error.clone(), error.clone()])).await;
            let client = client(&[&fake.url]);
            assert_eq!(client.put(request::put("k", "v")).await, Err(error.clone()));
            assert_eq!(fake.script.calls(), 1, "the write reached it once");
            client.get("k").await.expect("asked until it answers");
            assert_eq!(fake.script.calls(), 4);
        }
        // What the request itself is to blame for is asked once.
        let fake = Fake::start(failing(&[Error::Compacted])).await;
        let client = client(&[&fake.url]);
        assert_eq!(client.get("k").await, Err(Error::Compacted));
        assert_eq!(fake.script.calls(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_read_goes_elsewhere_and_so_does_what_a_learner_refuses() {
    bounded(async {
        let learner = vec![Error::NotSupportedForLearner; 100];
        let cut_off = vec![Error::NoLeader; 100];
        for (errors, writes) in [(learner, true), (cut_off, false)] {
            let bad = Fake::start(failing(&errors)).await;
            let good = Fake::start(Script::default()).await;
            // Whichever endpoint is first.
            for _ in 0..8 {
                let client = client(&[&bad.url, &good.url]);
                client.get("k").await.expect("the other answers");
                if writes {
                    let put = client.put(request::put("k", "v")).await;
                    put.expect("the learner did nothing");
                }
            }
        }
        let alone = Fake::start(failing(&[Error::NotSupportedForLearner])).await;
        let only = client(&[&alone.url]);
        assert_eq!(only.get("k").await, Err(Error::NotSupportedForLearner));
        assert_eq!(alone.script.calls(), 1, "no other endpoint to ask");
    })
    .await;
}

#[tokio::test]
async fn a_write_that_never_left_is_sent_elsewhere_once() {
    bounded(async {
        let dead = format!("http://127.0.0.1:{}", ports::take());
        let live = Fake::start(Script::default()).await;
        for n in 1..=8 {
            let client = client(&[&dead, &live.url]);
            let put = client.put(request::put("k", "v")).await;
            put.expect("the live endpoint takes it");
            assert_eq!(live.script.calls(), n);
        }
        let client = client(&[&dead]).with_timeout(Duration::from_millis(300));
        let error = client.put(request::put("k", "v")).await.expect_err("dead");
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains("not sent"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_write_on_a_connection_that_breaks_is_not_repeated() {
    bounded(async {
        // Takes the connection, reads some, and closes it.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let breaking = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut some = [0; 256];
                let _ = socket.read(&mut some).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let live = Fake::start(Script::default()).await;
        let mut broke = 0;
        for _ in 0..16 {
            let client = client(&[&url, &live.url]);
            let before = live.script.calls();
            match client.put(request::put("k", "v")).await {
                Ok(_) => assert_eq!(live.script.calls(), before + 1),
                Err(error) => {
                    broke += 1;
                    assert_eq!(error.code(), Code::Unavailable, "{error}");
                    assert_eq!(live.script.calls(), before, "not sent elsewhere: {error}");
                }
            }
            client.get("k").await.expect("a read goes elsewhere");
        }
        assert!(broke > 0, "by chance 1 in 65536 never begins there");
        breaking.abort();
    })
    .await;
}

#[tokio::test]
async fn a_silent_endpoint_does_not_take_all_the_time_of_a_read() {
    bounded(async {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let silent_url = format!("http://{}", silent.local_addr().expect("bound"));
        let live = Fake::start(Script::default()).await;
        for _ in 0..4 {
            let client = client(&[&silent_url, &live.url]).with_timeout(Duration::from_secs(6));
            client.get("k").await.expect("the live endpoint answers");
        }
        let client = client(&[&silent_url]).with_timeout(Duration::from_millis(300));
        let error = client
            .put(request::put("k", "v"))
            .await
            .expect_err("silent");
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_failed_endpoint_serves_again_when_it_is_the_one_that_lives() {
    bounded(async {
        let port = ports::take();
        let dead = format!("http://127.0.0.1:{port}");
        let first = Fake::start(Script::default()).await;
        let link = Proxy::to(&first.url).await;
        let client = client(&[&dead, &link.url]);
        for _ in 0..4 {
            client.get("k").await.expect("one lives");
        }
        link.close();
        let second = Fake::start_on(Script::default(), port).await;
        client.get("k").await.expect("the other lives");
        assert!(second.script.calls() > 0);
    })
    .await;
}

#[tokio::test]
async fn a_refused_token_is_replaced_once() {
    bounded(async {
        let script = Script::default();
        *script.token.lock().expect("sound") = Some("t1".into());
        let fake = Fake::start(script).await;
        let options = ConnectOptions {
            credentials: Some(Credentials {
                user: "u".into(),
                password: "p".into(),
            }),
            ..ConnectOptions::default()
        };
        assert!(
            !format!("{options:?}").contains("\"p\""),
            "passwords are not printed"
        );
        let client = Client::connect([&fake.url], options).expect("valid");
        client.put(request::put("k", "v")).await.expect("with t1");
        *fake.script.token.lock().expect("sound") = Some("t2".into());
        client.put(request::put("k", "v")).await.expect("with t2");
        assert_eq!(fake.script.calls(), 3, "refused once, then repeated");

        *fake.script.token.lock().expect("sound") = Some("never given".into());
        let error = client.get("k").await.expect_err("no token helps");
        assert_eq!(error, Error::InvalidAuthToken);
        assert_eq!(fake.script.calls(), 5, "one try with a new token");
    })
    .await;
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader {
        revision,
        ..Default::default()
    })
}

fn created(revision: i64) -> pb::WatchResponse {
    pb::WatchResponse {
        header: header(revision),
        created: true,
        ..Default::default()
    }
}

fn event(revision: i64, fragment: bool) -> pb::WatchResponse {
    let kv = mvccpb::KeyValue {
        key: "k".into(),
        mod_revision: revision,
        ..Default::default()
    };
    pb::WatchResponse {
        header: header(revision),
        fragment,
        events: vec![mvccpb::Event {
            kv: Some(kv),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_watch_is_opened_again_where_it_stopped() {
    bounded(async {
        let refused = pb::WatchResponse {
            header: header(0),
            canceled: true,
            compact_revision: 30,
            ..Default::default()
        };
        let progress = pb::WatchResponse {
            header: header(20),
            watch_id: -1,
            ..Default::default()
        };
        let gone = || Some(Status::from(Error::NoLeader));
        let script = Script::default();
        *script.watches.lock().expect("sound") = [
            (vec![created(4), event(5, false)], gone()),
            (vec![], gone()),
            (vec![created(9), event(6, false), event(7, true)], gone()),
            (vec![created(9), event(7, false), progress], gone()),
            (vec![created(29), refused], None),
        ]
        .into();
        let fake = Fake::start(script).await;
        let options = WatchOptions::of(KeyRange::single("k"));
        let mut watch = client(&[&fake.url]).watch(options).await.expect("taken");
        for wanted in 5..=7 {
            match watch.next().await.expect("it lives") {
                WatchUpdate::Events(events) => {
                    let got = events[0].kv.as_ref().expect("a pair").mod_revision;
                    assert_eq!((got, events.len()), (wanted, 1));
                }
                update => panic!("{update:?}"),
            }
        }
        let update = watch.next().await.expect("it lives");
        assert_eq!(update, WatchUpdate::Progress(20.into()));
        let end = watch.next().await.expect_err("compacted");
        let compact_revision = 30.into();
        assert_eq!(end, WatchError::Compacted { compact_revision });
        let starts = fake.script.starts.lock().expect("sound").clone();
        assert_eq!(starts, [0, 6, 6, 7, 21], "no gap, and progress counts");
    })
    .await;
}

#[tokio::test]
async fn a_refused_watch_says_why() {
    bounded(async {
        for (end, error) in [
            (
                Status::from(Error::PermissionDenied),
                Error::PermissionDenied,
            ),
            (Status::from(Error::UserEmpty), Error::UserEmpty),
        ] {
            let script = Script::default();
            let streams = [(vec![], Some(end))];
            *script.watches.lock().expect("sound") = streams.into();
            let fake = Fake::start(script).await;
            let options = WatchOptions::of(KeyRange::all());
            let end = client(&[&fake.url]).watch(options).await;
            assert_eq!(end.expect_err("refused"), WatchError::Refused(error));
        }
        let dead = format!("http://127.0.0.1:{}", ports::take());
        let client = client(&[&dead]).with_timeout(Duration::from_millis(300));
        let end = client.watch(WatchOptions::of(KeyRange::all())).await;
        let error = Error::from(end.expect_err("dead"));
        assert_eq!(error.code(), Code::DeadlineExceeded);
    })
    .await;
}
