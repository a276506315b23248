//! Room `sim`: tests of the network: order, breaks, cuts, deaths.

use crate::{CrashMode, Sim, default_url};
use bytes::Bytes;
use std::io::ErrorKind;
use std::time::Duration;
use tenon_env::{Env, NetStream, StreamKind};

const MS: Duration = Duration::from_millis(1);

async fn pair(a: &Env, b: &Env) -> (Box<dyn NetStream>, Box<dyn NetStream>) {
    let mut incoming = b.net.incoming();
    let urls = vec!["http://nowhere:1".to_owned(), default_url(2)];
    let mine = a.net.connect(urls, StreamKind::Peer).await.unwrap();
    let (kind, theirs) = incoming.accept().await.unwrap();
    assert_eq!(kind, StreamKind::Peer);
    // The listener is kept: dropping it would refuse later dials.
    b.spawn("listener", async move {
        let _incoming = incoming;
        std::future::pending().await
    });
    (mine, theirs)
}

#[test]
fn messages_keep_their_order_and_take_time() {
    let sim = Sim::new(1);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        let (mut mine, mut theirs) = pair(&a, &b).await;
        let start = sim.now();
        for i in 0..200u32 {
            mine.send(Bytes::copy_from_slice(&i.to_le_bytes()))
                .await
                .unwrap();
        }
        for i in 0..200u32 {
            let got = theirs.recv().await.unwrap().unwrap();
            assert_eq!(got[..], i.to_le_bytes());
        }
        assert!(sim.now() > start);
        theirs.send(Bytes::from_static(b"back")).await.unwrap();
        assert_eq!(mine.recv().await.unwrap().unwrap(), "back");
        mine.send(Bytes::from_static(b"last")).await.unwrap();
        drop(mine);
        assert_eq!(
            theirs.recv().await.unwrap().unwrap(),
            "last",
            "an orderly end loses nothing"
        );
        assert_eq!(theirs.recv().await.unwrap(), None);
        assert_eq!(
            theirs.send(Bytes::new()).await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        let refused = b.net.connect(vec![default_url(1)], StreamKind::Bulk).await;
        assert_eq!(
            refused.err().unwrap().kind(),
            ErrorKind::ConnectionRefused,
            "not listening"
        );
    })
    .unwrap();
    assert_eq!(sim.net_counts().delivered, 202);
}

#[test]
fn a_slow_receiver_holds_the_sender() {
    let sim = Sim::new(2);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        let (mut mine, mut theirs) = pair(&a, &b).await;
        let big = Bytes::from(vec![0; 600_000]);
        mine.send(big.clone()).await.unwrap();
        mine.send(big.clone()).await.unwrap();
        assert!(
            a.timeout(1000 * MS, mine.send(big.clone())).await.is_none(),
            "the window is full"
        );
        theirs.recv().await.unwrap().unwrap();
        a.timeout(1000 * MS, mine.send(big))
            .await
            .expect("room again")
            .unwrap();
    })
    .unwrap();
}

#[test]
fn a_lost_message_breaks_its_stream() {
    let sim = Sim::new(3);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        let (mut mine, mut theirs) = pair(&a, &b).await;
        sim.link(1, 2, |link| link.loss_ppm = 1_000_000);
        mine.send(Bytes::from_static(b"x")).await.unwrap();
        assert!(theirs.recv().await.is_err(), "not delivered");
        assert!(mine.recv().await.is_err());
        assert!(mine.send(Bytes::new()).await.is_err());
    })
    .unwrap();
    assert_eq!(sim.net_counts().lost, 1);
}

#[test]
fn cuts_hold_messages_and_heal_by_seed() {
    let (mut went_on, mut broke) = (0, 0);
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let (a, b) = (sim.node(1), sim.node(2));
        sim.run_until(async {
            let (mut mine, mut theirs) = pair(&a, &b).await;
            sim.link(1, 2, |link| link.cut = true);
            mine.send(Bytes::from_static(b"held")).await.unwrap();
            assert!(b.timeout(5000 * MS, theirs.recv()).await.is_none());
            theirs.send(Bytes::from_static(b"one way")).await.unwrap();
            assert_eq!(mine.recv().await.unwrap().unwrap(), "one way");
            let timed_out = a.net.connect(vec![default_url(2)], StreamKind::Peer).await;
            assert_eq!(timed_out.err().unwrap().kind(), ErrorKind::TimedOut);
            sim.mend(1, 2);
            match theirs.recv().await {
                Ok(message) => {
                    assert_eq!(message.unwrap(), "held");
                    went_on += 1;
                }
                Err(_) => broke += 1,
            }
            a.net
                .connect(vec![default_url(2)], StreamKind::Peer)
                .await
                .expect("mended");
        })
        .unwrap();
    }
    assert!(went_on > 5 && broke > 5, "{went_on} went on, {broke} broke");
}

#[test]
fn a_clog_delays() {
    let sim = Sim::new(5);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        let (mut mine, mut theirs) = pair(&a, &b).await;
        let until = sim.now() + 3000 * MS;
        sim.clog(1, 2, 3000 * MS);
        mine.send(Bytes::from_static(b"x")).await.unwrap();
        theirs.recv().await.unwrap().unwrap();
        assert!(sim.now() >= until);
    })
    .unwrap();
}

#[test]
fn a_death_breaks_streams_and_a_cut_hides_it() {
    let sim = Sim::new(6);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        let (mut mine, theirs) = pair(&a, &b).await;
        b.spawn("holder", async move {
            let mut theirs = theirs;
            let _ = theirs.recv().await;
        });
        sim.cut(1, 2);
        sim.kill(2, CrashMode::Kept);
        assert!(a.timeout(5000 * MS, mine.recv()).await.is_none(), "silence");
        mine.send(Bytes::from_static(b"into the void"))
            .await
            .unwrap_or_default();
        sim.mend(1, 2);
        assert_eq!(
            mine.recv().await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        let refused = a.net.connect(vec![default_url(2)], StreamKind::Peer).await;
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::ConnectionRefused);
        let b = sim.restart(2);
        let (mut mine, mut theirs) = pair(&a, &b).await;
        sim.reset_streams(2, 1);
        assert!(mine.recv().await.is_err() && theirs.recv().await.is_err());
    })
    .unwrap();
}

#[test]
fn streams_share_the_bandwidth_of_their_link() {
    let sim = Sim::new(7);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        let (mut one, mut one_end) = pair(&a, &b).await;
        sim.kill(2, CrashMode::Kept);
        let b = sim.restart(2);
        assert!(one.recv().await.is_err() && one_end.recv().await.is_err());
        let (mut one, mut one_end) = pair(&a, &b).await;
        sim.link(1, 2, |link| link.bytes_per_second = 100_000);
        let start = sim.now();
        for _ in 0..5 {
            one.send(Bytes::from(vec![1; 20_000])).await.unwrap();
        }
        one_end
            .send(Bytes::from_static(b"the other way"))
            .await
            .unwrap();
        one.recv().await.unwrap().unwrap();
        assert!(sim.now() - start < 100 * MS, "the other way has its own");
        for _ in 0..5 {
            one_end.recv().await.unwrap().unwrap();
        }
        let took = sim.now() - start;
        assert!(took >= 1000 * MS && took < 1500 * MS, "{took:?}");
    })
    .unwrap();
}

/// Sends 300 numbers over a link and receives what comes within a simulated minute.
fn numbers(seed: u64, change: impl Fn(&mut crate::LinkConfig)) -> (Vec<u32>, Sim) {
    let sim = Sim::new(seed);
    let (a, b) = (sim.node(1), sim.node(2));
    let mut got = Vec::new();
    sim.run_until(async {
        let (mut mine, mut theirs) = pair(&a, &b).await;
        sim.link(1, 2, change);
        for i in 0..300u32 {
            mine.send(Bytes::copy_from_slice(&i.to_le_bytes()))
                .await
                .unwrap();
        }
        while let Some(Ok(Some(bytes))) = b.timeout(60_000 * MS, theirs.recv()).await {
            got.push(u32::from_le_bytes(bytes[..].try_into().unwrap()));
        }
    })
    .unwrap();
    (got, sim)
}

#[test]
fn a_message_sent_again_holds_up_the_others() {
    let (got, sim) = numbers(8, |link| link.resend_ppm = 50_000);
    assert_eq!(got, (0..300).collect::<Vec<_>>(), "all, in order");
    let counts = sim.net_counts();
    assert!(counts.resent > 3 && counts.broken == 0, "{counts:?}");
}

#[test]
fn a_link_may_repeat_and_reorder_when_told_so() {
    let (got, sim) = numbers(9, |link| link.duplicate_ppm = 100_000);
    let counts = sim.net_counts();
    assert!(counts.duplicated > 10, "{counts:?}");
    assert_eq!(got.len() as u64, 300 + counts.duplicated);
    let (mut got, sim) = numbers(10, |link| link.reorder_ppm = 100_000);
    assert!(sim.net_counts().reordered > 5);
    assert!(!got.is_sorted(), "out of order");
    got.sort_unstable();
    assert_eq!(got, (0..300).collect::<Vec<_>>(), "and complete");
}

#[test]
fn a_cut_of_one_way_is_mended_like_any() {
    let sim = Sim::new(11);
    let (a, b) = (sim.node(1), sim.node(2));
    sim.run_until(async {
        sim.all_links(|link| link.survives_cut_ppm = 1_000_000);
        let (mut mine, mut theirs) = pair(&a, &b).await;
        sim.cut_one_way(1, 2);
        mine.send(Bytes::from_static(b"held")).await.unwrap();
        theirs.send(Bytes::from_static(b"free")).await.unwrap();
        assert_eq!(mine.recv().await.unwrap().unwrap(), "free");
        assert!(b.timeout(500 * MS, theirs.recv()).await.is_none());
        sim.mend(1, 2);
        assert_eq!(theirs.recv().await.unwrap().unwrap(), "held");
    })
    .unwrap();
}
