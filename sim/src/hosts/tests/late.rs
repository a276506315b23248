//! Room `sim`, hosts: a removal that a host asked for in vain, as it seemed, comes into force later, and the power
//! fails while the host obeys it.

use super::{Hosts, SOON, require, settled, tell, until_step, works};
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
