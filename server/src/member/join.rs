//! Room `server/member`: who a member with an empty data directory is in a cluster that runs already. Pure: what
//! peers tell is asked by the shell, or by the simulator, and stands in the configuration.

use super::config::{KnownMember, MemberConfig, RunningCluster};
use super::data_dir::Identity;
use std::collections::BTreeMap;
use tenon_proto::ids::MemberId;
use tenon_proto::log::Node;

/// Whether the member of this id took part in the cluster: it published itself.
pub fn has_run(running: &RunningCluster, member: MemberId) -> bool {
    let mut members = running.members.iter();
    members.any(|m| m.id == member && !m.client_urls.is_empty())
}

/// The identity of a member that joins: its peer URLs are one of those the cluster lists. The error is etcd's
/// text.
pub fn identity(
    config: &MemberConfig,
    running: Option<&RunningCluster>,
) -> Result<Identity, String> {
    let Some(running) = running else {
        return Err(
            "cannot fetch cluster info from peer urls: could not retrieve cluster information \
             from the given URLs"
                .to_owned(),
        );
    };
    if let Some(member) = config.cluster.joins_as {
        return Ok(Identity {
            member,
            cluster: running.id,
            first: None,
            known: peers(running),
        });
    }
    let invalid = |why: String| format!("error validating peerURLs {}: {why}", show(running));
    let own = own_member(config, running).map_err(invalid)?;
    Ok(Identity {
        member: own.id,
        cluster: running.id,
        first: None,
        known: peers(running),
    })
}

/// Every member that runs stands in the initial cluster, and the other way round; the one of our name.
fn own_member<'a>(
    config: &MemberConfig,
    running: &'a RunningCluster,
) -> Result<&'a KnownMember, String> {
    if running.members.len() != config.initial_cluster.len() {
        return Err("member count is unequal".to_owned());
    }
    let mut own = None;
    for member in &running.members {
        let mut listed = config.initial_cluster.iter();
        let Some((name, _)) = listed.find(|(_, urls)| same(urls, &member.peer_urls)) else {
            return Err(format!(
                "PeerURLs: no match found for existing member ({}, {}), last resolver error (<nil>)",
                member.id,
                show_urls(&member.peer_urls)
            ));
        };
        if *name == config.name {
            own = Some(member);
        }
    }
    own.ok_or_else(|| "member count is unequal".to_owned())
}

/// The members that a joining one may ask, itself among them.
fn peers(running: &RunningCluster) -> BTreeMap<u64, Node> {
    let node = |m: &KnownMember| Node {
        peer_urls: m.peer_urls.clone(),
        birth: String::new(),
    };
    running
        .members
        .iter()
        .map(|m| (m.id.get(), node(m)))
        .collect()
}

fn same(a: &[String], b: &[String]) -> bool {
    let sorted = |urls: &[String]| {
        let mut urls = urls.to_vec();
        urls.sort();
        urls
    };
    sorted(a) == sorted(b)
}

fn show_urls(urls: &[String]) -> String {
    format!("[{}]", urls.join(" "))
}

fn show(running: &RunningCluster) -> String {
    let member = |m: &KnownMember| {
        format!(
            "&{{ID:{} RaftAttributes:{{PeerURLs:{} IsLearner:{}}} Attributes:{{Name:{} ClientURLs:{}}}}}",
            m.id,
            show_urls(&m.peer_urls),
            m.is_learner,
            m.name,
            show_urls(&m.client_urls)
        )
    };
    let members: Vec<String> = running.members.iter().map(member).collect();
    format!(
        "{{ClusterID:{} Members:[{}] RemovedMemberIDs:[]}}",
        running.id,
        members.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;
    use tenon_proto::ids::ClusterId;

    fn member(id: u64, url: &str, client: &[&str]) -> KnownMember {
        KnownMember {
            id: MemberId(id),
            name: String::new(),
            peer_urls: vec![url.to_owned()],
            client_urls: client.iter().map(|u| (*u).to_owned()).collect(),
            is_learner: false,
        }
    }

    fn running() -> RunningCluster {
        RunningCluster {
            id: ClusterId(7),
            members: vec![
                member(1, "http://a:1", &["http://a:2"]),
                member(2, "http://b:1", &[]),
            ],
        }
    }

    #[test]
    fn a_joining_member_is_found_by_its_urls() {
        let mut joins = config("b", &["http://b:1"]);
        let only = identity(&joins, Some(&running())).unwrap_err();
        assert!(only.ends_with(": member count is unequal"), "{only}");
        let mut cluster = |name: &str, url: &str| {
            joins
                .initial_cluster
                .insert(name.to_owned(), vec![url.to_owned()]);
            identity(&joins, Some(&running()))
        };
        let other = cluster("a", "http://a:9").unwrap_err();
        assert!(
            other.starts_with("error validating peerURLs {ClusterID:7 Members:[&{ID:1 ")
                && other.contains("PeerURLs: no match found for existing member (1, [http://a:1])"),
            "{other}"
        );
        let found = cluster("a", "http://a:1").unwrap();
        assert_eq!((found.member, found.cluster), (MemberId(2), ClusterId(7)));
        assert_eq!(found.first, None);
        assert!(found.known.keys().eq(&[1, 2]));
        let alone = identity(&joins, None).unwrap_err();
        assert!(alone.starts_with("cannot fetch cluster info"), "{alone}");
    }

    #[test]
    fn who_published_itself_has_run() {
        assert!(has_run(&running(), MemberId(1)));
        assert!(!has_run(&running(), MemberId(2)), "added, never started");
        assert!(!has_run(&running(), MemberId(3)));
    }
}
