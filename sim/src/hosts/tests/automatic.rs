//! Room `sim`, hosts: automatic membership (docs/adr/0005) as stories: hosts that find their mode by themselves.

use super::{Hosts, MINUTE, SOON, Story, require, settled, works};
use crate::sim::Sim;
use std::collections::BTreeSet;
use std::time::Duration;
use tenon_server::host::edges::Edges;
use tenon_server::host::{Automatic, Mode};

/// How long a voter must be silent to be replaced.
const DEAD: Duration = Duration::from_secs(20);
/// Enough for a death to be seen and a standby to take the place.
const REPLACED: Duration = Duration::from_secs(60);

/// Runs a story that begins with host 1 alone.
fn tell<F>(target: u32, story: impl FnOnce(Hosts) -> F) -> Story
where
    F: Future<Output = Story>,
{
    let sim = Sim::new(11);
    let automatic = Automatic::new(target, DEAD)?;
    let hosts = Hosts::new(&sim, 1, Edges::default()).automatic(automatic);
    let told = async {
        hosts.start(1).await?;
        hosts.soon(SOON, || hosts.put(1, "a", "1")).await?;
        story(hosts.clone()).await
    };
    sim.run_until(told).map_err(|stuck| stuck.to_string())?
}

/// Waits until exactly these hosts vote, as the host asked says.
async fn voters(hosts: &Hosts, asked: u64, expected: &[u64], within: Duration) -> Story {
    let expected: BTreeSet<String> = expected.iter().map(|n| format!("h{n}")).collect();
    let look = || async {
        let members = hosts.members(asked).await?;
        let voters = members.iter().filter(|m| !m.is_learner);
        let names: BTreeSet<String> = voters.map(|m| m.name.clone()).collect();
        require(
            names == expected && members.len() == names.len(),
            &format!("{names:?} vote"),
        )
    };
    hosts.soon(within, look).await
}

/// Waits until a host says this of itself.
async fn says(hosts: &Hosts, node: u64, text: &str, within: Duration) -> Story {
    let look = || async {
        let said = hosts.host(node)?.status().automatic;
        require(said.contains(text), &format!("host {node} says {said:?}"))
    };
    hosts.soon(within, look).await
}

fn is_client(hosts: &Hosts, node: u64) -> Story {
    let mode = hosts.host(node)?.status().mode;
    require(mode == Mode::Client, &format!("host {node} is a {mode}"))?;
    require(
        !hosts.has_storage(node),
        &format!("host {node} has storage"),
    )
}

/// Starts hosts 1 to `count` and waits until all vote.
async fn grown(hosts: &Hosts, count: u64) -> Story {
    hosts.start_all(2..=count).await?;
    let all: Vec<u64> = (1..=count).collect();
    voters(hosts, 1, &all, REPLACED).await
}

#[test]
fn one_host_becomes_three_and_five_and_a_sixth_stands_by() {
    let story = |hosts: Hosts| async move {
        let nobody = || says(&hosts, 1, "votes", SOON);
        nobody().await?;
        hosts.start(2).await?;
        voters(&hosts, 1, &[1, 2], REPLACED).await?;
        hosts.start(3).await?;
        voters(&hosts, 2, &[1, 2, 3], REPLACED).await?;
        hosts.start_all(4..=6).await?;
        let look = || async {
            let members = hosts.members(1).await?;
            let voters = members.iter().filter(|m| !m.is_learner).count();
            require(voters == 5 && members.len() == 5, &format!("{voters} vote"))
        };
        hosts.soon(REPLACED, look).await?;
        hosts.sim().sleep(MINUTE).await;
        look().await?;
        let standby = (4..=6).find(|n| is_client(&hosts, *n).is_ok());
        let standby = standby.ok_or("nobody stands by")?;
        says(&hosts, standby, "5 of 5 voters", SOON).await?;
        for node in 1..=6 {
            works(&hosts, node).await?;
        }
        Ok(())
    };
    assert_eq!(tell(5, story), Ok(()));
}

#[test]
fn of_two_standbys_one_takes_the_place_of_a_dead_voter_and_not_before_its_time() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        hosts.start_all(4..=5).await?;
        works(&hosts, 4).await?;
        hosts.kill(3);
        let soon = DEAD - Duration::from_secs(5);
        hosts.sim().sleep(soon).await;
        voters(&hosts, 1, &[1, 2, 3], SOON).await?;
        says(&hosts, 4, "is not heard", SOON).await?;
        let look = || async {
            let members = hosts.members(1).await?;
            let is = |name: &str| members.iter().any(|m| m.name == name && !m.is_learner);
            let others = usize::from(is("h4")) + usize::from(is("h5"));
            let fine = members.len() == 3 && is("h1") && is("h2") && others == 1;
            require(fine, &format!("{members:?}"))
        };
        hosts.soon(REPLACED, look).await?;
        hosts.sim().sleep(MINUTE).await;
        look().await?;
        require(
            is_client(&hosts, 4).is_ok() != is_client(&hosts, 5).is_ok(),
            "one of them stands by",
        )?;
        for node in [1, 2, 4, 5] {
            works(&hosts, node).await?;
        }
        Ok(())
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn a_replaced_voter_that_comes_back_stands_by_and_takes_the_next_place() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        hosts.start(4).await?;
        hosts.kill(3);
        voters(&hosts, 1, &[1, 2, 4], REPLACED).await?;
        let term = hosts.term(1)?;
        hosts.start(3).await?;
        says(&hosts, 3, "3 of 3 voters", MINUTE).await?;
        is_client(&hosts, 3)?;
        works(&hosts, 3).await?;
        require(hosts.term(1)? == term, "it disturbed the cluster")?;
        hosts.kill(2);
        voters(&hosts, 1, &[1, 3, 4], REPLACED).await?;
        works(&hosts, 3).await
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn nobody_is_replaced_while_the_others_are_no_quorum() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        hosts.kill(2);
        hosts.kill(3);
        hosts.sim().sleep(2 * REPLACED).await;
        is_client(&hosts, 4)?;
        says(&hosts, 4, "do not answer", SOON).await?;
        // One comes back: the count begins then, and the other is replaced.
        hosts.start(2).await?;
        hosts.soon(SOON, || hosts.members(1)).await?;
        voters(&hosts, 1, &[1, 2, 3], Duration::ZERO).await?;
        voters(&hosts, 1, &[1, 2, 4], REPLACED).await?;
        works(&hosts, 4).await
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn a_voter_that_comes_and_goes_is_not_replaced() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        for _ in 0..4 {
            hosts.kill(3);
            hosts.sim().sleep(DEAD - Duration::from_secs(8)).await;
            hosts.start(3).await?;
            works(&hosts, 3).await?;
            // As long as a standby needs for two looks: it sees no life that is shorter.
            hosts.sim().sleep(Duration::from_secs(3)).await;
        }
        voters(&hosts, 1, &[1, 2, 3], SOON).await?;
        is_client(&hosts, 4)
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn emptied_disks_join_again_as_new_members() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        let id = |members: &[tenon_proto::etcdserverpb::Member], node: u64| {
            let mut members = members.iter();
            members.find(|m| m.name == format!("h{node}")).map(|m| m.id)
        };
        // The founder's whole disk, then another's storage alone.
        for (node, what) in [(1, "/data"), (2, "/data/h/member")] {
            let before = hosts.soon(SOON, || hosts.members(3)).await?;
            hosts.kill(node);
            hosts.empty(node, what);
            hosts.start(node).await?;
            let look = || async {
                let now = hosts.members(3).await?;
                let new = id(&now, node) != id(&before, node);
                let votes = now.iter().all(|m| !m.is_learner && !m.name.is_empty());
                require(new && votes && now.len() == 3, &format!("{node}: {now:?}"))
            };
            // Nobody waits for a death: the host itself knows.
            hosts.soon(DEAD, look).await?;
            works(&hosts, node).await?;
            require(
                hosts.cluster(node)? == hosts.cluster(3)?,
                "it founded a cluster",
            )?;
        }
        Ok(())
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn an_emptied_disk_founds_no_cluster_even_when_nobody_answers() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        hosts.kill(2);
        hosts.kill(3);
        hosts.kill(1);
        hosts.empty(1, "/data/h/member");
        hosts.start(1).await?;
        hosts.sim().sleep(REPLACED).await;
        is_client(&hosts, 1)?;
        require(hosts.put(1, "a", "2").await.is_err(), "it answers alone")?;
        hosts.start_all(2..=3).await?;
        voters(&hosts, 2, &[1, 2, 3], REPLACED).await?;
        let got = hosts.get(1, "a").await?;
        require(got.as_deref() == Some(b"1"), "the data is the cluster's")
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn a_crash_of_the_standby_at_any_step_leaves_a_cluster_that_heals() {
    use tenon_server::host::edges::Step;
    let story = |hosts: Hosts| async move {
        grown(&hosts, 2).await?;
        for step in [
            Step::AddLearner,
            Step::Attach,
            Step::CatchUp,
            Step::ToMember,
        ] {
            hosts.start(3).await?;
            let mut status = hosts.host(3)?.watch_status();
            let reached = status.wait_for(|s| s.progress.as_ref().is_some_and(|p| p.step == step));
            let reached = hosts.operator.timeout(MINUTE, reached).await;
            reached
                .ok_or(format!("{step:?} never came"))?
                .map_err(|e| e.to_string())?;
            hosts.kill(3);
            hosts.start(3).await?;
            voters(&hosts, 1, &[1, 2, 3], 2 * REPLACED).await?;
            works(&hosts, 3).await?;
            // Removed by hand, it may begin once more; its disk goes, so that every round is a new host.
            hosts.kill(3);
            hosts.remove(1, 3).await?;
            hosts.empty(3, "/data");
        }
        Ok(())
    };
    assert_eq!(tell(3, story), Ok(()));
}

#[test]
fn nobody_switches_by_hand_what_is_automatic() {
    let story = |hosts: Hosts| async move {
        grown(&hosts, 3).await?;
        settled(&hosts, 2).await?;
        let refused = hosts.change(2, Mode::Client, MINUTE).await;
        let why = refused.err().ok_or("it was switched")?;
        require(
            why.contains("automatic membership decides") && why.contains("--voters-target"),
            &why,
        )?;
        voters(&hosts, 1, &[1, 2, 3], SOON).await
    };
    assert_eq!(tell(3, story), Ok(()));
}
