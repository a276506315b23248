//! Room `tests`: a cluster of real processes: founding, writes through each member, a killed leader, members that
//! come and go, leadership that moves. May touch processes; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real files")]

use tenon_tests::cluster::{Cluster, field};

/// Elections within tenths of a second.
const FAST: &[&str] = &[
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--log-level=warn",
];

fn put(key: &str, value: &str) -> String {
    format!("key: \"{key}\" value: \"{value}\"")
}

fn get(key: &str) -> String {
    format!("key: \"{key}\"")
}

fn holds(value: &str) -> impl Fn(&str) -> bool + '_ {
    move |answer| answer.contains(&format!("value:\"{value}\""))
}

#[test]
fn three_members_outlive_their_leader() {
    let mut cluster = Cluster::found(3, FAST);
    for at in 0..3 {
        let key = format!("k{at}");
        cluster.call_soon(at, "Put", &put(&key, "1"));
        for other in 0..3 {
            let read = cluster.call(other, "Range", &get(&key)).expect("a read");
            assert!(holds("1")(&read), "{read}");
        }
    }
    let list = cluster.call_soon(1, "MemberList", "");
    for member in &cluster.members {
        assert!(list.contains(&member.url), "published by itself: {list}");
    }

    // A lease is kept alive by the leader, whoever is asked.
    cluster.call_soon(0, "LeaseGrant", "ID: 77 TTL: 60");
    for at in 0..3 {
        let ttl = cluster.call_soon(at, "LeaseTimeToLive", "ID: 77");
        assert_eq!(field(&ttl, "grantedTTL"), Some(60), "{ttl}");
    }

    let leader = cluster.leader(0);
    cluster.kill(leader);
    let rest: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    for at in &rest {
        cluster.call_soon(*at, "Put", &put("after", "2"));
        let read = cluster.call_soon(*at, "Range", &get("k0"));
        assert!(holds("1")(&read), "{read}");
    }
    let list = cluster.list();
    cluster.start(leader, &list, "new");
    cluster.wait_serving(leader);
    let read = cluster.call_soon(leader, "Range", &get("after"));
    assert!(holds("2")(&read), "{read}");
    cluster.assert_same_keys(&[0, 1, 2]);

    // Two of three are down: nothing is written, and reads of this member's own state go on.
    cluster.kill(rest[0]);
    cluster.kill(leader);
    let alone = rest[1];
    cluster.until(alone, "Status", "", |s| s.contains("etcdserver: no leader"));
    let own = "key: \"after\" serializable: true";
    assert!(holds("2")(&cluster.call_soon(alone, "Range", own)));
    let lost = cluster.call(alone, "Put", &put("lost", "1"));
    // etcd's words for a write that found no leader until its time was up.
    let text = "DeadlineExceeded: context deadline exceeded";
    assert_eq!(lost, Err(text.to_owned()));
}

/// A learner: one at a time, known by its URL, without a vote. Its index.
fn add_learner(cluster: &mut Cluster) -> usize {
    let fourth = cluster.push(FAST);
    let url = cluster.members[fourth].peer_url.clone();

    let add = format!("peerURLs: \"{url}\" isLearner: true");
    cluster.until(1, "MemberAdd", &add, |answer| answer.contains(&url));
    // With a second URL, or its id would be the same for the rest of this second.
    let more = format!("{add} peerURLs: \"http://127.0.0.1:2\"");
    let again = cluster.call(1, "MemberAdd", &more);
    let exists = "FailedPrecondition: etcdserver: Peer URLs already exists";
    assert_eq!(again, Err(exists.to_owned()));
    let second = cluster.call(
        1,
        "MemberAdd",
        "peerURLs: \"http://127.0.0.1:1\" isLearner: true",
    );
    let many = "FailedPrecondition: etcdserver: too many learner members in cluster";
    assert_eq!(second, Err(many.to_owned()));
    let list = cluster.list();
    cluster.start(fourth, &list, "existing");
    let own = "key: \"a\" serializable: true";
    assert!(holds("1")(&cluster.until(fourth, "Range", own, holds("1"))));
    let refused = cluster.call(fourth, "Put", &put("b", "1"));
    let text = "FailedPrecondition: etcdserver: rpc not supported for learner";
    assert_eq!(refused, Err(text.to_owned()));
    fourth
}

/// Promoted, it takes part like any other.
fn promote(cluster: &Cluster, fourth: usize) {
    let id = cluster.id(fourth);
    let promote = format!("ID: {id}");
    cluster.until(2, "MemberPromote", &promote, |_| true);
    cluster.until(fourth, "Put", &put("b", "2"), |_| true);
    let voter = cluster.call(2, "MemberPromote", &promote);
    let text = "FailedPrecondition: etcdserver: can only promote a learner member";
    assert_eq!(voter, Err(text.to_owned()));
}

/// Leadership moves to it, asked of the leader only. Another member that does not lead.
fn move_leader(cluster: &Cluster, fourth: usize) -> usize {
    let id = cluster.id(fourth);
    let leader = cluster.leader(0);
    let other = (0..3).find(|at| *at != leader).expect("three members");
    let to = format!("targetID: {id}");
    let text = "FailedPrecondition: etcdserver: not leader";
    assert_eq!(cluster.call(other, "MoveLeader", &to), Err(text.to_owned()));
    let nobody = cluster.call(leader, "MoveLeader", "targetID: 1");
    let text = "FailedPrecondition: etcdserver: bad leader transferee";
    assert_eq!(nobody, Err(text.to_owned()));
    cluster.until(leader, "MoveLeader", &to, |_| true);
    cluster.until(other, "Status", "", |s| field(s, "leader") == Some(id));
    other
}

#[test]
fn a_member_comes_and_another_goes() {
    let mut cluster = Cluster::found(3, FAST);
    cluster.call_soon(0, "Put", &put("a", "1"));
    let fourth = add_learner(&mut cluster);
    promote(&cluster, fourth);
    let other = move_leader(&cluster, fourth);

    // One that is removed ends by itself, and cannot come back under its id.
    let gone = cluster.id(other);
    let remove = format!("ID: {gone}");
    cluster.until(fourth, "MemberRemove", &remove, |_| true);
    assert_eq!(
        cluster.wait_exit(other),
        Some(0),
        "{}",
        cluster.log_end(other)
    );
    let twice = cluster.call(fourth, "MemberRemove", &remove);
    let text = "NotFound: etcdserver: member not found";
    assert_eq!(twice, Err(text.to_owned()));
    let list = cluster.list();
    cluster.start(other, &list, "new");
    assert_eq!(
        cluster.wait_exit(other),
        Some(0),
        "{}",
        cluster.log_end(other)
    );

    // Told to stop, a leader hands over first: nobody waits for an election.
    cluster.terminate(fourth);
    assert_eq!(
        cluster.wait_exit(fourth),
        Some(0),
        "{}",
        cluster.log_end(fourth)
    );
    let rest: Vec<usize> = (0..3).filter(|at| *at != other).collect();
    cluster.call_soon(rest[0], "Put", &put("c", "3"));
    cluster.assert_same_keys(&rest);
}

#[test]
fn a_sole_member_grows_and_a_wiped_one_is_refused() {
    let mut cluster = Cluster::found(1, FAST);
    cluster.call_soon(0, "Put", &put("a", "1"));
    let second = cluster.push(FAST);
    let url = cluster.members[second].peer_url.clone();
    let list = cluster.list();

    // Nobody invited it yet.
    cluster.start(second, &list, "existing");
    assert_eq!(cluster.wait_exit(second), Some(1));
    assert!(cluster.log_end(second).contains("member count is unequal"));

    let add = format!("peerURLs: \"{url}\"");
    let added = cluster.call(0, "MemberAdd", &add).expect("added");
    assert!(added.contains(&url), "{added}");
    cluster.start(second, &list, "existing");
    cluster.wait_serving(second);
    cluster.call_soon(second, "Put", &put("b", "2"));
    let read = cluster.call_soon(0, "Range", &get("b"));
    assert!(holds("2")(&read), "{read}");
    let voters = |list: &str| !list.contains("isLearner:true");
    cluster.until(0, "MemberList", "linearizable: true", voters);

    // Its disk is lost. Under its old id it must not vote again.
    cluster.kill(second);
    std::fs::remove_dir_all(cluster.data_dir(second)).expect("removed");
    let id = format!("{:x}", member_id(&cluster, &url));
    cluster.start(second, &list, "existing");
    assert_eq!(cluster.wait_exit(second), Some(1));
    let log = cluster.log_end(second);
    assert!(log.contains(&id), "it says who: {log}");
}

/// The id of the member with this peer URL, by the list that needs no leader.
fn member_id(cluster: &Cluster, url: &str) -> u64 {
    let list = cluster.call_soon(0, "MemberList", "");
    let rows = list.split("members");
    let row = rows.into_iter().find(|row| row.contains(url));
    field(row.expect("it is listed"), "ID").expect("an id")
}
