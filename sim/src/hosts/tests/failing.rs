//! Room `sim`, hosts: the disk of a member fails while its host does not answer by it, or is about to leave it. A member
//! that cannot go on must not be kept: the cluster may count on its vote, and clients on its answers.

use super::late::promoted_and_cut_off;
use super::{Hosts, SOON, Story, require, tell, until_step, works};
use crate::NodeId;
use std::time::Duration;
use tenon_server::host::edges::{Edges, Step};
use tenon_server::host::{Ended, Host, Mode};

/// The host ends, and says that its disk failed.
async fn ends(hosts: &Hosts, host: &Host, within: Duration) -> Story {
    let ended = hosts.operator.timeout(within, host.ended()).await;
    match ended.ok_or("it goes on")? {
        Ended::Failed(why) => require(why.contains("Input/output error"), &why),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_voter_of_a_client_whose_disk_fails_ends_the_host() {
    let told = tell(3, Edges::default(), |hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        promoted_and_cut_off(&hosts, 4).await?;
        hosts.sim().sleep(Duration::from_secs(120)).await;
        let host = hosts.host(4)?;
        require(host.status().mode == Mode::Client, "it is a client")?;
        // Not while the journal is written, whose failure ends the host too.
        let mut status = host.watch_status();
        let tries = status.wait_for(|s| s.progress.is_some());
        let tries = hosts.operator.timeout(SOON, tries).await;
        tries.ok_or("it rests")?.map_err(|e| e.to_string())?;
        hosts.sim().sleep(Duration::from_secs(1)).await;
        hosts.sim().disk(NodeId(4)).fail_sync(1);
        for node in 1..=3 {
            hosts.sim().mend(node, 4);
        }
        ends(&hosts, &host, SOON).await
    });
    assert_eq!(told, Ok(()));
}

#[test]
fn a_server_on_its_way_to_client_mode_whose_disk_fails_ends_at_once() {
    let told = tell(3, Edges::default(), |hosts| async move {
        for other in [1, 3] {
            hosts.cut_clients(2, other);
        }
        let reached = until_step(&hosts, 2, Mode::Client, Step::Reach).await?;
        require(reached, "it looks for the others")?;
        hosts.sim().sleep(Duration::from_secs(1)).await;
        hosts.sim().disk(NodeId(2)).fail_sync(1);
        let host = hosts.host(2)?;
        hosts.soon(SOON, || hosts.put(1, "b", "1")).await?;
        ends(&hosts, &host, Duration::from_secs(5)).await
    });
    assert_eq!(told, Ok(()));
}
