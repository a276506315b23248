//! Room `server/host`, tests: lease renewals while the endpoint moves.

use super::world::{WITHIN, World, pause, within};
use crate::host::remote::CallInfo;
use crate::service::method::Method;
use futures_util::StreamExt;
use tenon_env::sync::mpsc;
use tenon_proto::caller::Caller;
use tenon_proto::etcdserverpb as pb;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_renewal_is_answered_once_and_in_order() {
    let world = World::new().await;
    for id in 1..=5 {
        let request = pb::LeaseGrantRequest { id, ttl: 60 };
        let lease = world.member.services().lease.clone();
        let granted = lease.grant(&Caller::default(), request).await;
        granted.expect("is granted");
    }
    let (ask, requests) = mpsc::channel(8);
    let (method, door) = (Method::LeaseLeaseKeepAlive, &world.door);
    let visit = door.admit(method, Caller::default(), CallInfo::default());
    let mut answers = door.keep_alive(visit.expect("open"), requests);
    let asker = world.env.spawn("asker", async move {
        for n in 0..600 {
            let id = n % 6 + 1;
            let sent = ask.send(pb::LeaseKeepAliveRequest { id }).await;
            sent.expect("is taken");
            if n % 20 == 0 {
                pause(5).await;
            }
        }
    });
    let reader = async {
        let mut count = 0;
        while let Some(answer) = answers.next().await {
            let answer = answer.expect("no error");
            assert_eq!(answer.id, count % 6 + 1);
            let expected = if answer.id == 6 { 0 } else { 60 };
            assert_eq!(answer.ttl, expected, "the sixth is no lease");
            count += 1;
        }
        count
    };
    let mover = async {
        for turn in 0..6 {
            pause(20).await;
            let to = match turn % 2 {
                0 => world.there(),
                _ => world.here(),
            };
            world.switch(to).await;
        }
        world.switch(world.there()).await;
        // Without warning, too.
        world.strings.reachable.send_replace(false);
        pause(20).await;
        world.strings.reachable.send_replace(true);
    };
    let both = async { tokio::join!(reader, mover) };
    let (count, ()) = within(WITHIN, both).await.expect("in time");
    assert_eq!(count, 600);
    asker.ended().await;
    world.member.shutdown().await;
}
