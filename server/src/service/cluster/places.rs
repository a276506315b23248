//! Room `server/service`: places for voters under automatic membership (docs/adr/0005): whether one is free, and
//! whether a dead member may go so that one becomes free. Asked at the deed, of the members as they are. Pure.

use std::collections::BTreeMap;
use tenon_proto::code::Code;
use tenon_proto::error::Error;
use tenon_proto::ids::MemberId;
use tenon_storage::Member;

/// Entries that a live voter may lack and still count as caught up.
pub const BEHIND_MAX: u64 = 1000;

fn refused(why: String) -> Error {
    Error::other(Code::FailedPrecondition, format!("tenon: {why}"))
}

fn votes(member: &Member) -> bool {
    !member.is_learner || member.added_as_voter
}

/// Whether there is a place below the target; 0 stands for no target.
pub(super) fn check_place(members: &[Member], target: u32) -> Result<(), Error> {
    let has_place = |m: &&Member| votes(m) || m.promote_auto;
    let taken = members.iter().filter(has_place).count();
    if target > 0 && taken >= target as usize {
        return Err(refused(format!(
            "{taken} of {target} places for voters are taken"
        )));
    }
    Ok(())
}

/// Whether a member may be removed as dead: the leader does not hear it, and among the others a quorum of all voters
/// is live and caught up, so that they agree before and after. `heard` has how many entries each lacks.
pub(super) fn check_replace(
    members: &[Member],
    heard: &BTreeMap<MemberId, u64>,
    dead: MemberId,
) -> Result<(), Error> {
    if heard.contains_key(&dead) {
        return Err(refused(format!(
            "member {dead} is heard by the leader again"
        )));
    }
    let voters = || members.iter().filter(|m| votes(m));
    let live = voters().filter(|m| heard.get(&m.id).is_some_and(|behind| *behind <= BEHIND_MAX));
    let (live, needed) = (live.count(), voters().count() / 2 + 1);
    if voters().any(|m| m.id == dead) && live < needed {
        return Err(refused(format!(
            "member {dead} cannot be replaced: {needed} of the others must be live and caught up, and {live} are"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members 1.. of which the last `learners` are on their way to a vote.
    fn members(count: u64, learners: u64) -> Vec<Member> {
        let member = |id| Member {
            id: MemberId(id),
            name: format!("m{id}"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: id > count - learners,
            token_or_time: String::new(),
            promote_auto: id > count - learners,
            added_as_voter: false,
            published: true,
        };
        (1..=count).map(member).collect()
    }

    #[test]
    fn learners_on_their_way_take_places() {
        assert_eq!(check_place(&members(2, 0), 3), Ok(()));
        assert_eq!(check_place(&members(9, 0), 0), Ok(()), "no target");
        for taken in [members(3, 0), members(3, 1), members(4, 0)] {
            let why = check_place(&taken, 3).unwrap_err();
            assert!(why.message().contains("of 3 places"), "{why}");
        }
        let mut by_hand = members(3, 1);
        by_hand[2].promote_auto = false;
        assert_eq!(check_place(&by_hand, 3), Ok(()), "may never vote");
    }

    #[test]
    fn the_dead_go_only_while_a_quorum_of_all_is_well() {
        let judge = |members: &[Member], heard: &[(u64, u64)], dead| {
            let heard = heard.iter().map(|(id, behind)| (MemberId(*id), *behind));
            check_replace(members, &heard.collect(), MemberId(dead)).map_err(|e| e.message())
        };
        assert_eq!(judge(&members(3, 0), &[(1, 0), (2, 9)], 3), Ok(()));
        let again = judge(&members(3, 0), &[(1, 0), (2, 0), (3, 0)], 3);
        assert!(again.unwrap_err().contains("heard by the leader again"));
        for heard in [&[(1, 0)][..], &[(1, 0), (2, BEHIND_MAX + 1)]] {
            let why = judge(&members(3, 0), heard, 3).unwrap_err();
            assert!(
                why.contains("2 of the others") && why.contains("1 are"),
                "{why}"
            );
        }
        assert_eq!(judge(&members(2, 1), &[(1, 0)], 2), Ok(()), "a learner");
        let five = [(1, 0), (2, 0), (3, 0)];
        assert_eq!(judge(&members(5, 0), &five, 5), Ok(()), "two are dead");
    }
}
