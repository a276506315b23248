//! Room `sim`, hosts: each weakness W1 to W12 that control planes know from etcd (shared/cases/control-plane.md §2c)
//! as a story that Tenon's table of edges survives, and that a planted table with the old order of steps does not.

mod automatic;
mod crashes;
mod failing;
mod late;

use super::Hosts;
use crate::sim::Sim;
use std::time::Duration;
use tenon_server::host::edges::{Answers, Asked, Cleaning, Edge, Edges, Step};
use tenon_server::host::{Host, Mode};

const SOON: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);

type Story = Result<(), String>;

/// The order of steps of a control plane on etcd: stop first, ask later, write the mode down at either end only.
fn old() -> Edges {
    use Step::{
        AddLearner, Attach, CatchUp, Check, Delete, Detach, Done, RemoveSelf, SeeRemoval, ToMember,
        ToMembers,
    };
    Edges {
        edges: vec![
            Edge {
                from: Mode::Client,
                to: Mode::Server,
                steps: vec![Check, AddLearner, Attach, CatchUp, ToMember, Done],
            },
            Edge {
                from: Mode::Server,
                to: Mode::Client,
                steps: vec![
                    Detach, ToMembers, Check, RemoveSelf, SeeRemoval, Delete, Done,
                ],
            },
        ],
        cleaning: Cleaning::SharedDeadline,
        asked: Asked::FirstOnly,
        answers: Answers::NeverBack,
    }
}

/// The old order, and the new mode written down before anything is done.
fn hasty() -> Edges {
    let mut edges = old();
    edges.edges[0].steps.pop();
    edges.edges[0].steps.insert(0, Step::Done);
    edges
}

/// Tenon's table without one step.
fn without(step: Step) -> Edges {
    let mut edges = Edges::default();
    for edge in &mut edges.edges {
        edge.steps.retain(|s| *s != step);
    }
    edges
}

/// Runs a story in a world of its own.
fn tell<F>(founders: u64, edges: Edges, story: impl FnOnce(Hosts) -> F) -> Story
where
    F: Future<Output = Story>,
{
    let sim = Sim::new(7);
    let hosts = Hosts::new(&sim, founders, edges);
    let told = async {
        hosts.start_all(1..=founders).await?;
        hosts.soon(SOON, || hosts.put(1, "a", "1")).await?;
        story(hosts.clone()).await
    };
    sim.run_until(told).map_err(|stuck| stuck.to_string())?
}

/// A story that Tenon survives and the planted table does not.
fn differs<F>(founders: u64, planted: Edges, story: impl Fn(Hosts) -> F)
where
    F: Future<Output = Story>,
{
    assert_eq!(tell(founders, Edges::default(), &story), Ok(()));
    let planted = tell(founders, planted, &story);
    assert!(planted.is_err(), "the old order survives too");
}

fn require(holds: bool, what: &str) -> Story {
    holds.then_some(()).ok_or_else(|| what.to_owned())
}

/// Which host leads.
async fn leader(hosts: &Hosts, among: u64) -> Result<u64, String> {
    let look = || async {
        for node in 1..=among {
            let member = hosts.host(node)?.member();
            if member.is_some_and(|m| m.services().context.status().is_leader) {
                return Ok(node);
            }
        }
        Err("nobody leads".to_owned())
    };
    hosts.soon(SOON, look).await
}

/// Begins a switch and completes when its step has begun; false when it was over before.
async fn until_step(hosts: &Hosts, node: u64, to: Mode, step: Step) -> Result<bool, String> {
    let host = hosts.host(node)?;
    let mut status = host.watch_status();
    let switch = {
        let hosts = hosts.clone();
        async move {
            let _ = hosts.change(node, to, MINUTE).await;
        }
    };
    let env = host.door().env().clone();
    drop(host);
    // The operator's task, not the host's: it outlives it.
    hosts.operator.spawn("switch", switch);
    drop(env);
    let reached = status.wait_for(|s| {
        let at = s.progress.as_ref().map(|p| p.step);
        at == Some(step) || (at.is_none() && s.mode == to)
    });
    let reached = hosts.operator.timeout(MINUTE, reached).await;
    let reached = reached.ok_or("the step never came")?;
    reached
        .map(|s| s.progress.is_some())
        .map_err(|_| "the host ended".to_owned())
}

async fn works(hosts: &Hosts, node: u64) -> Story {
    hosts.soon(SOON, || hosts.put(node, "b", "2")).await?;
    let got = hosts.soon(SOON, || hosts.get(node, "b")).await?;
    require(
        got.as_deref() == Some(b"2"),
        "the endpoint reads what it wrote",
    )
}

async fn settled(hosts: &Hosts, node: u64) -> Result<Host, String> {
    let look = || async {
        let host = hosts.host(node)?;
        match host.status().progress {
            None => Ok(host),
            Some(progress) => Err(format!("still at {:?}", progress.step)),
        }
    };
    hosts.soon(MINUTE, look).await
}

#[test]
fn w1_a_crash_after_the_storage_went_founds_no_cluster() {
    differs(3, old(), |hosts| async move {
        require(
            until_step(&hosts, 2, Mode::Client, Step::Done).await?,
            "the last step was seen",
        )?;
        hosts.kill(2);
        hosts.start(2).await?;
        let host = settled(&hosts, 2).await?;
        require(host.status().mode == Mode::Client, "it is a client")?;
        works(&hosts, 2).await?;
        require(hosts.members(2).await?.len() == 2, "of its own cluster")
    });
}

#[test]
fn w2_a_demotion_that_costs_the_quorum_is_refused_before_anything_is_touched() {
    differs(3, old(), |hosts| async move {
        hosts.kill(3);
        hosts.sim().sleep(Duration::from_secs(10)).await;
        hosts.soon(SOON, || hosts.put(1, "a", "2")).await?;
        let refused = hosts.change(1, Mode::Client, Duration::from_secs(20)).await;
        let why = refused.err().ok_or("it was not refused")?;
        require(why.contains("h3"), &why)?;
        works(&hosts, 1).await?;
        require(hosts.members(2).await?.len() == 3, "nothing was changed")
    });
}

#[test]
fn w3_a_failed_promotion_leaves_a_client() {
    differs(3, hasty(), |hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        for node in 1..=3 {
            hosts.sim().cut(node, 4);
        }
        let within = Duration::from_secs(4);
        let failed = hosts.change(4, Mode::Server, within).await;
        require(failed.is_err(), "it cannot catch up")?;
        works(&hosts, 4).await?;
        hosts.kill(4);
        hosts.start(4).await?;
        let host = settled(&hosts, 4).await?;
        require(host.status().mode == Mode::Client, "it is a client still")?;
        works(&hosts, 4).await
    });
}

#[test]
fn w4_a_learner_of_a_crashed_switch_is_resumed() {
    differs(3, old(), |hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        require(
            until_step(&hosts, 4, Mode::Server, Step::CatchUp).await?,
            "a learner was added",
        )?;
        hosts.kill(4);
        hosts.start(4).await?;
        let host = settled(&hosts, 4).await?;
        works(&hosts, 4).await?;
        let members = hosts.soon(SOON, || hosts.members(1)).await?;
        let learners = members.iter().filter(|m| m.is_learner).count();
        require(learners == 0, "no learner stays behind")?;
        let is_server = host.status().mode == Mode::Server;
        require(
            is_server == (members.len() == 4),
            "the host is what the cluster says",
        )
    });
}

#[test]
fn w5_cleaning_up_has_time_of_its_own() {
    let planted = Edges {
        cleaning: Cleaning::SharedDeadline,
        ..Edges::default()
    };
    differs(3, planted, |hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        for node in 1..=3 {
            hosts.sim().cut(node, 4);
        }
        let failed = hosts.change(4, Mode::Server, Duration::from_secs(4)).await;
        require(failed.is_err(), "it cannot catch up")?;
        let members = hosts.members(1).await?;
        require(members.len() == 3, "its learner is gone when it says so")?;
        require(!hosts.has_storage(4), "and its storage")
    });
}

#[test]
fn w7_whatever_step_the_power_fails_at_the_host_works_again() {
    let story = |to: Mode| {
        move |hosts: Hosts| async move {
            let (from, node) = match to {
                Mode::Client => (Mode::Server, 2),
                Mode::Server => (Mode::Client, 4),
            };
            if node == 4 {
                hosts.start(4).await?;
                works(&hosts, 4).await?;
            }
            for step in Edges::default().steps(from, to)? {
                if hosts.host(node)?.status().mode == to {
                    hosts.change(node, from, MINUTE).await?;
                }
                if until_step(&hosts, node, to, *step).await? {
                    hosts.kill(node);
                    hosts.start(node).await?;
                }
                let host = settled(&hosts, node).await?;
                works(&hosts, node)
                    .await
                    .map_err(|why| format!("{step:?}: {why}"))?;
                let members = hosts.soon(SOON, || hosts.members(1)).await?;
                let is_member = members.iter().any(|m| m.name == format!("h{node}"));
                let is_server = host.status().mode == Mode::Server;
                require(
                    is_member == is_server,
                    &format!("{step:?}: list and mode agree"),
                )?;
            }
            Ok(())
        }
    };
    for to in [Mode::Client, Mode::Server] {
        assert_eq!(tell(3, Edges::default(), story(to)), Ok(()));
        assert!(
            tell(3, old(), story(to)).is_err(),
            "the old order survives too"
        );
    }
}

#[test]
fn w8_leadership_is_handed_over_first_and_thin_clusters_are_told_of() {
    differs(3, without(Step::HandOver), |hosts| async move {
        let node = leader(&hosts, 3).await?;
        until_step(&hosts, node, Mode::Client, Step::RemoveSelf).await?;
        let member = hosts.host(node)?.member().ok_or("it runs still")?;
        require(
            !member.services().context.status().is_leader,
            "a leader removes itself",
        )?;
        let warnings = hosts.host(node)?.status().warnings.join(" ");
        require(warnings.contains("no fault tolerance"), "nobody was warned")?;
        settled(&hosts, node).await?;
        works(&hosts, node).await
    });
}

#[test]
fn w10_any_member_lets_a_host_in() {
    let planted = Edges {
        asked: Asked::FirstOnly,
        ..Edges::default()
    };
    differs(3, planted, |hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        let known = hosts.host(4)?.status().endpoints;
        let first = (1..=3).find(|node| known.first() == Some(&super::client_url(*node)));
        hosts.cut_clients(4, first.ok_or("it knows no member")?);
        hosts.change(4, Mode::Server, MINUTE).await?;
        require(hosts.members(2).await?.len() == 4, "it votes")
    });
}

#[test]
fn w11_a_demoted_hosts_address_still_answers() {
    differs(3, without(Step::ToMembers), |hosts| async move {
        let _ = hosts.change(2, Mode::Client, MINUTE).await;
        hosts.put(2, "c", "3").await?;
        let got = hosts.get(2, "c").await?;
        require(got.as_deref() == Some(b"3"), "it answers")
    });
}

#[test]
fn w12_a_member_that_never_started_does_not_keep_hosts_out() {
    let story = |hosts: Hosts| async move {
        hosts.start(4).await?;
        works(&hosts, 4).await?;
        let added = hosts.at(1, |host| async move {
            let request = tenon_proto::etcdserverpb::MemberAddRequest {
                peer_urls: vec![crate::default_url(9)],
                is_learner: false,
            };
            let added = host.client().member_add(request).await;
            added.map(|_| ()).map_err(|e| e.to_string())
        });
        added.await??;
        hosts.change(4, Mode::Server, MINUTE).await?;
        let members = hosts.members(4).await?;
        require(
            members.iter().any(|m| m.name.is_empty()),
            "it is still there",
        )?;
        require(
            members.iter().any(|m| m.name == "h4"),
            "and the host came in",
        )
    };
    assert_eq!(tell(3, Edges::default(), story), Ok(()));
}

#[test]
fn hosts_that_join_at_once_wait_for_each_other() {
    let story = |hosts: Hosts| async move {
        hosts.start_all(4..=6).await?;
        let join = |node| {
            let hosts = hosts.clone();
            async move { hosts.change(node, Mode::Server, MINUTE).await }
        };
        let joined = futures_util::future::join3(join(4), join(5), join(6)).await;
        joined.0.and(joined.1).and(joined.2)?;
        require(hosts.members(1).await?.len() == 6, "all vote")
    };
    assert_eq!(tell(3, Edges::default(), story), Ok(()));
}

#[test]
fn five_hosts_become_one_and_the_last_refuses() {
    let story = |hosts: Hosts| async move {
        for node in 1..=4 {
            hosts.change(node, Mode::Client, MINUTE).await?;
            works(&hosts, node).await?;
        }
        let last = hosts.change(5, Mode::Client, MINUTE).await;
        let why = last.err().ok_or("the last one left")?;
        require(why.contains("last voting member"), &why)?;
        for node in 1..=5 {
            works(&hosts, node).await?;
        }
        Ok(())
    };
    assert_eq!(tell(5, Edges::default(), story), Ok(()));
}
