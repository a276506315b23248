//! Room `sim`, hosts: W6, the power fails during the n-th disk operation of a switch: in the journal's copy, at its
//! rename, inside the engine, while storage is moved away or deleted. Whatever n, the host works again by itself, in
//! the mode that the cluster's list of members says.

use super::{Hosts, MINUTE, SOON, Story, require, settled, tell, works};
use crate::NodeId;
use crate::disk::CrashMode;
use std::time::Duration;
use tenon_server::host::Mode;
use tenon_server::host::edges::Edges;

/// Operations after which a switch is over in any case.
const OPERATIONS_MAX: u64 = 400;
/// Between two looks whether the node died.
const LOOK: Duration = Duration::from_millis(5);

/// Switches until the node dies during its operation `n` from now; false when the switch was over before.
async fn dies_at(hosts: &Hosts, node: u64, to: Mode, n: u64) -> Result<bool, String> {
    let disk = hosts.sim().disk(NodeId(node));
    disk.crash_at(disk.ops() + n, CrashMode::Lost);
    let host = hosts.host(node)?;
    let switch = {
        let hosts = hosts.clone();
        async move {
            let _ = hosts.change(node, to, MINUTE).await;
        }
    };
    hosts.operator.spawn("switch", switch);
    let deadline = hosts.operator.now() + MINUTE;
    while hosts.sim().is_alive(NodeId(node)) {
        let status = host.status();
        if status.mode == to && status.progress.is_none() {
            disk.no_crash();
            return Ok(false);
        }
        require(hosts.operator.now() < deadline, "the switch ends or dies")?;
        hosts.sim().sleep(LOOK).await;
    }
    Ok(true)
}

/// Every `stride`-th operation of a switch, from the first on.
async fn at_every(hosts: Hosts, to: Mode, stride: u64) -> Story {
    let (from, node) = match to {
        Mode::Client => (Mode::Server, 2),
        Mode::Server => (Mode::Client, 4),
    };
    if node == 4 {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
    }
    for (crashes, n) in (0..OPERATIONS_MAX).step_by(stride as usize).enumerate() {
        if hosts.host(node)?.status().mode == to {
            hosts.change(node, from, MINUTE).await?;
        }
        if !dies_at(&hosts, node, to, n).await? {
            return require(crashes > 0, "it never died");
        }
        hosts.kill(node);
        let at = |why| format!("operation {n}: {why}");
        hosts.start(node).await.map_err(at)?;
        let host = settled(&hosts, node).await.map_err(at)?;
        works(&hosts, node).await.map_err(at)?;
        let members = hosts.soon(SOON, || hosts.members(1)).await.map_err(at)?;
        let is_member = members.iter().any(|m| m.name == format!("h{node}"));
        let is_server = host.status().mode == Mode::Server;
        require(
            is_member == is_server,
            &format!("operation {n}: list and mode agree"),
        )?;
    }
    Ok(())
}

#[test]
fn w6_power_lost_at_a_disk_operation_of_a_switch_to_client() {
    let story = |hosts| at_every(hosts, Mode::Client, 5);
    assert_eq!(tell(3, Edges::default(), story), Ok(()));
}

#[test]
fn w6_power_lost_at_a_disk_operation_of_a_switch_to_server() {
    let story = |hosts| at_every(hosts, Mode::Server, 17);
    assert_eq!(tell(3, Edges::default(), story), Ok(()));
}

#[test]
#[ignore = "every operation: minutes"]
fn w6_power_lost_at_every_disk_operation() {
    for to in [Mode::Client, Mode::Server] {
        let story = |hosts| at_every(hosts, to, 1);
        assert_eq!(tell(3, Edges::default(), story), Ok(()));
    }
}
