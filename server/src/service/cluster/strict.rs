//! Room `server/service`: etcd's strict reconfig check: which changes of members the cluster survives. Pure.

use std::collections::BTreeSet;
use tenon_proto::error::Error;
use tenon_proto::ids::MemberId;
use tenon_storage::Member;

/// Members as far as the check looks at them.
pub(super) struct View<'a> {
    /// All members.
    pub(super) members: &'a [Member],
    /// Those that the leader hears, itself among them; empty without a leader.
    pub(super) heard: &'a BTreeSet<MemberId>,
}

fn quorum(members: usize) -> usize {
    members / 2 + 1
}

impl View<'_> {
    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(|m| !m.is_learner || m.added_as_voter)
    }

    fn heard_voters(&self) -> usize {
        self.voters().filter(|m| self.heard.contains(&m.id)).count()
    }

    fn started(&self, except: Option<MemberId>) -> (usize, usize) {
        let rest = self.voters().filter(|m| Some(m.id) != except);
        let started = |m: &Member| usize::from(!m.name.is_empty());
        rest.fold((0, 0), |(up, all), m| (up + started(m), all + 1))
    }

    /// Whether a member may be added.
    pub(super) fn check_add(&self, learner: bool) -> Result<(), Error> {
        let (started, voters) = self.started(None);
        // The first addition to a sole member is always allowed, or no cluster could grow.
        let first = voters == 1 && started == 1;
        if !learner && !first && started < quorum(voters + 1) {
            return Err(Error::MemberNotEnoughStarted);
        }
        if voters > 1 && self.heard_voters() < quorum(voters + 1) {
            return Err(Error::Unhealthy);
        }
        Ok(())
    }

    /// Whether the vote of a new member could be missed: those that are heard stay a quorum without it.
    pub(super) fn can_vote_at_once(&self) -> bool {
        self.heard_voters() >= quorum(self.voters().count() + 1)
    }

    /// Whether a learner may become a voter.
    pub(super) fn check_promote(&self) -> Result<(), Error> {
        let (started, voters) = self.started(None);
        if started + 1 < quorum(voters + 1) {
            return Err(Error::MemberNotEnoughStarted);
        }
        Ok(())
    }

    /// Whether a member may be removed; asked before it is known to exist, as etcd does.
    pub(super) fn check_remove(&self, id: MemberId) -> Result<(), Error> {
        let known = self.members.iter().find(|m| m.id == id);
        if known.is_some_and(|m| m.is_learner) {
            return Ok(());
        }
        let (started, rest) = self.started(Some(id));
        if started < quorum(rest) {
            return Err(Error::MemberNotEnoughStarted);
        }
        // A member that is down is in no active quorum.
        if !self.heard.is_empty() && !self.heard.contains(&id) {
            return Ok(());
        }
        let voters = self.voters().count();
        if self.heard_voters() < 2 + voters.saturating_sub(1) / 2 {
            return Err(Error::Unhealthy);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members 1.. of which the first `started` published themselves; the last `learners` do not vote.
    fn members(count: u64, started: u64, learners: u64) -> Vec<Member> {
        let member = |id| Member {
            id: MemberId(id),
            name: if id <= started {
                format!("m{id}")
            } else {
                String::new()
            },
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: id > count - learners,
            token_or_time: String::new(),
            promote_auto: false,
            added_as_voter: false,
            published: id <= started,
        };
        (1..=count).map(member).collect()
    }

    fn heard(ids: &[u64]) -> BTreeSet<MemberId> {
        ids.iter().map(|id| MemberId(*id)).collect()
    }

    fn view<T>(members: &[Member], ids: &[u64], ask: impl Fn(&View<'_>) -> T) -> T {
        let heard = heard(ids);
        ask(&View {
            members,
            heard: &heard,
        })
    }

    #[test]
    fn additions_leave_a_quorum_of_started_members_that_are_heard() {
        let add =
            |members: &[Member], ids: &[u64], learner| view(members, ids, |v| v.check_add(learner));
        let few = Err(Error::MemberNotEnoughStarted);
        assert_eq!(
            add(&members(1, 1, 0), &[1], false),
            Ok(()),
            "the first addition"
        );
        assert_eq!(add(&members(2, 1, 0), &[1], false), few.clone());
        assert_eq!(add(&members(2, 2, 0), &[1, 2], false), Ok(()));
        assert_eq!(add(&members(3, 3, 0), &[1, 2, 3], false), Ok(()));
        assert_eq!(add(&members(3, 2, 0), &[1, 2, 3], false), few);
        assert_eq!(
            add(&members(3, 3, 0), &[1, 2], false),
            Err(Error::Unhealthy)
        );
        assert_eq!(add(&members(3, 3, 0), &[1, 2], true), Err(Error::Unhealthy));
        assert_eq!(
            add(&members(3, 2, 0), &[1, 2, 3], true),
            Ok(()),
            "a learner"
        );
        assert_eq!(
            add(&members(3, 3, 0), &[], false),
            Err(Error::Unhealthy),
            "no leader"
        );
    }

    #[test]
    fn removals_leave_a_quorum_too() {
        let remove = |members: &[Member], ids: &[u64], id| {
            view(members, ids, |v| v.check_remove(MemberId(id)))
        };
        let few = Err(Error::MemberNotEnoughStarted);
        assert_eq!(remove(&members(1, 1, 0), &[1], 1), few.clone());
        assert_eq!(remove(&members(2, 1, 0), &[1], 1), few.clone());
        assert_eq!(remove(&members(2, 1, 0), &[1], 2), Ok(()), "never started");
        assert_eq!(remove(&members(3, 3, 0), &[1, 2, 3], 1), Ok(()));
        assert_eq!(remove(&members(3, 3, 0), &[1, 2], 3), Ok(()), "down");
        assert_eq!(remove(&members(3, 3, 0), &[1, 2], 1), Err(Error::Unhealthy));
        assert_eq!(
            remove(&members(1, 1, 0), &[1], 9),
            Ok(()),
            "unknown and not heard"
        );
        assert_eq!(
            remove(&members(3, 1, 0), &[1, 2, 3], 9),
            few,
            "asked before it is looked for"
        );
        assert_eq!(remove(&members(2, 2, 1), &[1], 2), Ok(()), "a learner");
    }

    #[test]
    fn the_second_member_does_not_vote_before_it_is_there() {
        assert!(!view(&members(1, 1, 0), &[1], |v| v.can_vote_at_once()));
        assert!(view(&members(2, 2, 0), &[1, 2], |v| v.can_vote_at_once()));
        assert!(!view(&members(3, 3, 0), &[1, 2], |v| v.can_vote_at_once()));
        assert_eq!(
            view(&members(2, 2, 1), &[1, 2], |v| v.check_promote()),
            Ok(())
        );
    }
}
