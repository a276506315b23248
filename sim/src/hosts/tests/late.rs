//! Room `sim`, hosts: a removal that a host asked for in vain, as it seemed, comes into force later, and the power
//! fails while the host obeys it.

use super::{Hosts, MINUTE, SOON, require, settled, tell, until_step, works};
use crate::NodeId;
use std::time::Duration;
use tenon_server::host::Mode;
use tenon_server::host::edges::{Edges, Step};

/// Longer than a switch and its cleaning up.
const OVER: Duration = Duration::from_secs(120);

#[test]
fn a_late_removal_makes_a_client_whatever_step_the_power_fails_at() {
    let story = |step: Step| {
        move |hosts: Hosts| async move {
            let reached = until_step(&hosts, 2, Mode::Client, Step::RemoveSelf).await?;
            require(reached, "it asks for its removal")?;
            for other in [1, 3] {
                hosts.cut_clients(2, other);
            }
            hosts.sim().sleep(OVER).await;
            let host = settled(&hosts, 2).await?;
            require(host.status().mode == Mode::Server, "it was not removed")?;
            let mut status = host.watch_status();
            drop(host);
            for other in [1, 3] {
                hosts.mend_clients(2, other);
            }
            hosts.remove(1, 2).await?;
            let reached = status.wait_for(|s| s.progress.as_ref().is_some_and(|p| p.step == step));
            let reached = hosts.operator.timeout(OVER, reached).await;
            reached
                .ok_or("it does not hear of it")?
                .map_err(|e| e.to_string())?;
            hosts.kill(2);
            hosts.start(2).await?;
            let host = hosts.soon(SOON, || settled(&hosts, 2)).await?;
            require(host.status().mode == Mode::Client, "it is a client")?;
            require(!hosts.has_storage(2), "its storage is gone")?;
            works(&hosts, 2).await
        }
    };
    for step in [Step::SeeRemoval, Step::Detach, Step::Delete, Step::Done] {
        let told = tell(3, Edges::default(), story(step));
        assert_eq!(told, Ok(()), "{step:?}");
    }
}

/// Percent of the usual time that a disk takes.
const SLOW: u64 = 2_000;

/// Two callers who write through a host's endpoint for two seconds, each soon after the last write is answered: its own
/// member, with a slow disk, is behind what it answered.
fn writers(hosts: &Hosts, node: u64) {
    let end = hosts.operator.now() + Duration::from_secs(2);
    for caller in ["w1", "w2"] {
        let hosts = hosts.clone();
        let operator = hosts.operator.clone();
        operator.spawn("writer", async move {
            while hosts.operator.now() < end {
                let _ = hosts.put(node, caller, "1").await;
                hosts.operator.sleep(Duration::from_millis(2)).await;
            }
        });
    }
}

/// Orders a host in client mode to be a server, and cuts it off from hosts 1 to 3 when it has its vote and its endpoint
/// has not moved.
pub(super) async fn promoted_and_cut_off(hosts: &Hosts, node: u64) -> Result<(), String> {
    writers(hosts, node);
    let reached = until_step(hosts, node, Mode::Server, Step::CatchUp).await?;
    require(reached, "it copies")?;
    hosts.sim().disk(NodeId(node)).slow(SLOW);
    let mut status = hosts.host(node)?.watch_status();
    let promoted = status.wait_for(|s| {
        let step = s.progress.as_ref().map(|p| p.step);
        step == Some(Step::ToMember)
    });
    let promoted = hosts.operator.timeout(MINUTE, promoted).await;
    promoted
        .ok_or("it is not promoted")?
        .map_err(|e| e.to_string())?;
    for other in 1..=3 {
        hosts.sim().cut(other, node);
    }
    Ok(())
}

/// Somebody removes a host's member between its promotion and the move of its endpoint, while it is cut off: it learns
/// from its peers only, never from its log, that its vote is gone.
#[test]
fn a_vote_that_was_taken_away_before_the_endpoint_moved_makes_no_server() {
    let told = tell(3, Edges::default(), |hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        promoted_and_cut_off(&hosts, 4).await?;
        hosts.soon(SOON, || hosts.remove(1, 4)).await?;
        let mode = hosts.host(4)?.status().mode;
        require(mode == Mode::Client, "the endpoint did not move yet")?;
        hosts.sim().sleep(OVER).await;
        for node in 1..=3 {
            hosts.sim().mend(node, 4);
        }
        let host = hosts.soon(OVER, || settled(&hosts, 4)).await?;
        require(host.status().mode == Mode::Client, "it is a client")?;
        drop(host);
        let gone = || async { require(!hosts.has_storage(4), "its storage is gone") };
        hosts.soon(OVER, gone).await?;
        works(&hosts, 4).await
    });
    assert_eq!(told, Ok(()));
}
