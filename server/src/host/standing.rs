//! Room `server/host`: whether the cluster survives that a host leaves or joins, and what to tell the operator. A
//! pure judgement of what the leader hears.

use crate::service::cluster::BEHIND_MAX;
use tenon_proto::host::{MemberStanding, StandingResponse};
use tenon_proto::ids::MemberId;

fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

pub(super) fn show(member: &MemberStanding) -> String {
    let name = match member.name.as_str() {
        "" => "a member that has told no name yet",
        name => name,
    };
    format!("{name} ({})", MemberId(member.id))
}

/// Why a voter does not count; `None` when it does.
fn missing(member: &MemberStanding) -> Option<String> {
    let who = show(member);
    if !member.heard {
        let urls = member.peer_urls.join(",");
        return Some(format!("{who} at {urls} is not heard by the leader"));
    }
    (member.behind > BEHIND_MAX).then(|| {
        let behind = member.behind;
        format!("{who} is {behind} entries behind the leader")
    })
}

const BRING_BACK: &str = "bring those members back, or remove the ones that are gone for good with \
                          `etcdctl member remove ID`, and try again";

/// What remains when the voter `own` leaves.
///
/// # Errors
/// Why it must not: who is missing, and what to do.
pub fn judge_leaving(standing: &StandingResponse, own: MemberId) -> Result<Vec<String>, String> {
    let voters: Vec<_> = standing.members.iter().filter(|m| !m.is_learner).collect();
    let rest: Vec<_> = voters.iter().filter(|m| m.id != own.get()).collect();
    if rest.is_empty() {
        return Err(
            "this host is the last voting member of its cluster, and without it the data would be \
             gone; make another host a server first"
                .to_owned(),
        );
    }
    let gone: Vec<String> = rest.iter().filter_map(|m| missing(m)).collect();
    let (live, needed) = (rest.len() - gone.len(), quorum(rest.len()));
    if live < needed {
        return Err(format!(
            "without this host {} voting member(s) remain, {needed} of them must be live and caught up, \
             and {live} are: {}; {BRING_BACK}",
            rest.len(),
            gone.join("; ")
        ));
    }
    let mut warnings: Vec<String> = gone;
    if rest.len() <= 2 {
        warnings.push(format!(
            "no fault tolerance remains: the cluster has {} voting member(s) afterwards and stops when \
             one fails",
            rest.len()
        ));
    } else if live == needed {
        warnings.push("no fault tolerance remains until the missing members are back".to_owned());
    }
    Ok(warnings)
}

/// Whether a switch with these warnings leaves fault tolerance.
pub fn tolerates_faults(warnings: &[String]) -> bool {
    !warnings.iter().any(|w| w.starts_with("no fault tolerance"))
}

/// What holds when one more voter joins. `own` are the learners of this host from an earlier attempt.
///
/// # Errors
/// Why it must not.
pub fn judge_joining(standing: &StandingResponse) -> Result<Vec<String>, String> {
    let voters: Vec<_> = standing.members.iter().filter(|m| !m.is_learner).collect();
    let gone: Vec<String> = voters.iter().filter_map(|m| missing(m)).collect();
    let (live, needed) = (voters.len() - gone.len(), quorum(voters.len() + 1));
    // The first member beside a sole one is let in although two need two: it catches up before it votes.
    if voters.len() > 1 && live < needed {
        return Err(format!(
            "with this host the cluster has {} voting members, {needed} of the present ones must be live \
             and caught up, and {live} are: {}; {BRING_BACK}",
            voters.len() + 1,
            gone.join("; ")
        ));
    }
    let mut warnings = gone;
    if (voters.len() + 1) % 2 == 0 {
        warnings.push(format!(
            "{} voting members tolerate no more failures than {}",
            voters.len() + 1,
            voters.len()
        ));
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(voters: &[(bool, u64)]) -> StandingResponse {
        let member = |(at, (heard, behind)): (usize, &(bool, u64))| MemberStanding {
            id: at as u64 + 1,
            name: format!("m{}", at + 1),
            peer_urls: vec![format!("http://m{}:2380", at + 1)],
            heard: *heard,
            behind: *behind,
            ..MemberStanding::default()
        };
        StandingResponse {
            leader: 1,
            members: voters.iter().enumerate().map(member).collect(),
            ..StandingResponse::default()
        }
    }

    #[test]
    fn leaving_is_refused_by_name() {
        let (live, dead, slow) = ((true, 0), (false, 0), (true, 2_000));
        let leave = |voters: &[_]| judge_leaving(&cluster(voters), MemberId(1));
        assert!(leave(&[live]).unwrap_err().contains("last voting member"));
        let two = leave(&[live, dead]).unwrap_err();
        assert!(
            two.contains("m2 (2) at http://m2:2380 is not heard") && two.contains("member remove"),
            "{two}"
        );
        let three = leave(&[live, live, slow]).unwrap_err();
        assert!(
            three.contains("2 voting member(s) remain, 2 of them"),
            "{three}"
        );
        assert!(three.contains("m3 (3) is 2000 entries behind"), "{three}");
        for fine in [vec![live; 5], vec![live; 4]] {
            assert_eq!(leave(&fine), Ok(vec![]));
        }
        for few in [vec![live; 2], vec![live; 3], vec![live, live, live, dead]] {
            let warnings = leave(&few).unwrap();
            assert!(!tolerates_faults(&warnings), "{few:?}: {warnings:?}");
        }
    }

    #[test]
    fn joining_needs_a_quorum_of_those_who_are_there() {
        let (live, dead) = ((true, 0), (false, 0));
        let join = |voters: &[_]| judge_joining(&cluster(voters));
        assert!(join(&[live]).unwrap()[0].contains("2 voting members tolerate"));
        assert_eq!(join(&[live, live]), Ok(vec![]));
        assert!(join(&[live, dead]).unwrap_err().contains("m2 (2)"));
        assert!(join(&[live, live, dead]).is_err());
        assert_eq!(join(&[live, live, live]).unwrap().len(), 1);
    }
}
