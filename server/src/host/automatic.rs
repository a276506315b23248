//! Room `server/host`: automatic membership (docs/adr/0005): what is configured, and how a standby judges by its
//! looks at the cluster whether there is a place for it. Pure; what follows from it is done in `standby`.

use super::standing::{judge_joining, show};
use std::collections::BTreeMap;
use std::time::Duration;
use tenon_env::Instant;
use tenon_proto::host::{MemberStanding, StandingResponse};
use tenon_proto::ids::MemberId;

/// Pause between a standby's looks.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// Longest time between two looks of which the second goes on with what the first began to count.
const GAP: Duration = Duration::from_secs(5);
/// Time after which a voter that is not heard is replaced, unless told otherwise.
pub const REPLACE_AFTER: Duration = Duration::from_secs(300);

/// Automatic membership, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Automatic {
    target: u32,
    replace_after: Duration,
}

impl Automatic {
    /// Up to `target` voters; one that is not heard for `replace_after` is replaced.
    ///
    /// # Errors
    /// A text that names the value that cannot be, and which can.
    pub fn new(target: u32, replace_after: Duration) -> Result<Automatic, String> {
        if ![1, 3, 5, 7].contains(&target) {
            return Err(format!(
                "--voters-target {target}: a cluster has 1, 3, 5 or 7 voters"
            ));
        }
        if replace_after < 3 * LOOK {
            return Err(format!(
                "--replace-after {replace_after:?}: at least three seconds, or a restart looks like a death"
            ));
        }
        Ok(Automatic {
            target,
            replace_after,
        })
    }

    /// The number of voters aimed at.
    pub fn target(&self) -> u32 {
        self.target
    }
}

/// What a look at the cluster comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There is one; when it is a dead member's, that one's.
    Free(Option<MemberId>),
    /// There is none, and why.
    None(String),
}

/// Who a standby is, for members that list it from an earlier life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'a> {
    pub(super) name: &'a str,
    pub(super) peer_urls: &'a [String],
}

impl Own<'_> {
    /// Whether a member was this host before its disk was emptied: it has this host's name and exactly its URLs.
    fn was(&self, member: &MemberStanding) -> bool {
        let sorted = |urls: &[String]| {
            let mut urls = urls.to_vec();
            urls.sort();
            urls
        };
        let named = member.name == self.name || (member.name.is_empty() && member.joining);
        named && sorted(&member.peer_urls) == sorted(self.peer_urls)
    }
}

/// What a standby saw at its looks: since when which member is not heard.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    silent: BTreeMap<u64, Instant>,
    looked: Instant,
}

impl Vigil {
    /// Judges by one more look.
    pub(super) fn look(
        &mut self,
        now: Instant,
        standing: &StandingResponse,
        own: Own<'_>,
        automatic: &Automatic,
    ) -> Place {
        if now - self.looked > GAP {
            self.silent.clear();
        }
        self.looked = now;
        let unheard = || standing.members.iter().filter(|m| !m.heard);
        self.silent.retain(|id, _| unheard().any(|m| m.id == *id));
        for member in unheard() {
            self.silent.entry(member.id).or_insert(now);
        }
        let replaced = self.replaced(now, standing, own, automatic);
        let rest = without(standing, replaced);
        let place = judge(&rest, automatic, replaced);
        match place {
            Ok(()) => Place::Free(replaced),
            Err(why) => Place::None(why),
        }
    }

    /// Whose place this host may take: its own of an earlier life, or that of the member that is dead for longest.
    fn replaced(
        &self,
        now: Instant,
        standing: &StandingResponse,
        own: Own<'_>,
        automatic: &Automatic,
    ) -> Option<MemberId> {
        let unheard = || standing.members.iter().filter(|m| !m.heard);
        if let Some(former) = unheard().find(|m| own.was(m)) {
            return Some(MemberId(former.id));
        }
        let blocks = unheard().filter(|m| !m.is_learner || m.joining);
        let since = |m: &MemberStanding| self.silent.get(&m.id).copied().unwrap_or(now);
        let longest = blocks.min_by_key(|m| (since(m), m.id))?;
        (now - since(longest) >= automatic.replace_after).then_some(MemberId(longest.id))
    }
}

/// The cluster as it is once a member is gone.
pub(super) fn without(standing: &StandingResponse, gone: Option<MemberId>) -> StandingResponse {
    let mut rest = standing.clone();
    rest.members.retain(|m| Some(MemberId(m.id)) != gone);
    rest
}

fn judge(
    rest: &StandingResponse,
    automatic: &Automatic,
    replaced: Option<MemberId>,
) -> Result<(), String> {
    let voters = rest.members.iter().filter(|m| !m.is_learner).count();
    if voters >= automatic.target as usize {
        let dead = replaced.map_or_else(String::new, |id| {
            format!("; member {id} is gone, and its place is not wanted")
        });
        let silent = rest.members.iter().find(|m| !m.heard && replaced.is_none());
        let silent = silent.map_or_else(String::new, |m| {
            let after = automatic.replace_after;
            format!(
                "; {} is not heard, and is replaced when that lasts {after:?}",
                show(m)
            )
        });
        let target = automatic.target;
        return Err(format!(
            "{voters} of {target} voters are there{dead}{silent}"
        ));
    }
    if let Some(learner) = rest.members.iter().find(|m| m.is_learner) {
        return Err(format!("{} is on its way to a vote", show(learner)));
    }
    judge_joining(rest).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(100 + seconds)
    }

    /// Voters m1.., heard or not.
    fn cluster(heard: &[bool]) -> StandingResponse {
        let member = |(at, heard): (usize, &bool)| MemberStanding {
            id: at as u64 + 1,
            name: format!("m{}", at + 1),
            peer_urls: vec![format!("http://m{}:2380", at + 1)],
            heard: *heard,
            ..MemberStanding::default()
        };
        StandingResponse {
            leader: 1,
            members: heard.iter().enumerate().map(member).collect(),
            ..StandingResponse::default()
        }
    }

    fn learner(cluster: &mut StandingResponse, at: usize) {
        (cluster.members[at].is_learner, cluster.members[at].joining) = (true, true);
    }

    struct Looker {
        vigil: Vigil,
        automatic: Automatic,
    }

    impl Looker {
        fn new(target: u32) -> Looker {
            Looker {
                vigil: Vigil::default(),
                automatic: Automatic::new(target, AFTER).unwrap(),
            }
        }

        fn look_as(&mut self, own: &str, second: u64, cluster: &StandingResponse) -> Place {
            let urls = [format!("http://{own}:2380")];
            let own = Own {
                name: own,
                peer_urls: &urls,
            };
            self.vigil.look(at(second), cluster, own, &self.automatic)
        }

        fn look(&mut self, second: u64, cluster: &StandingResponse) -> Place {
            self.look_as("m9", second, cluster)
        }

        /// What the last of looks at each second from one to the other comes to.
        fn looks(&mut self, from: u64, to: u64, cluster: &StandingResponse) -> Place {
            let looks = (from..=to).map(|second| self.look(second, cluster));
            looks.last().expect("a look")
        }
    }

    fn waits(place: Place, why: &str) {
        assert!(
            matches!(&place, Place::None(text) if text.contains(why)),
            "{place:?}, not {why:?}"
        );
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for target in [0, 2, 4, 8] {
            let why = Automatic::new(target, AFTER).unwrap_err();
            assert!(why.contains("1, 3, 5 or 7"), "{why}");
        }
        let soon = Automatic::new(3, Duration::from_secs(1)).unwrap_err();
        assert!(soon.contains("--replace-after 1s"), "{soon}");
    }

    #[test]
    fn places_below_the_target_are_free() {
        let mut looker = Looker::new(3);
        assert_eq!(looker.look(0, &cluster(&[true])), Place::Free(None));
        assert_eq!(looker.look(1, &cluster(&[true, true])), Place::Free(None));
        waits(looker.look(2, &cluster(&[true; 3])), "3 of 3 voters");
        let mut joining = cluster(&[true, true]);
        learner(&mut joining, 1);
        waits(looker.look(3, &joining), "m2 (2) is on its way");
    }

    #[test]
    fn who_is_silent_for_long_enough_at_every_look_is_dead() {
        let dead = cluster(&[true, true, false]);
        let mut looker = Looker::new(3);
        waits(looker.looks(0, 9, &dead), "m3 (3) is not heard");
        assert_eq!(looker.look(10, &dead), Place::Free(Some(MemberId(3))));
        // Heard once.
        looker.look(11, &cluster(&[true; 3]));
        waits(looker.looks(12, 21, &dead), "m3 (3)");
        assert_eq!(looker.look(22, &dead), Place::Free(Some(MemberId(3))));
        // Not looked at for a while.
        waits(looker.look(90, &dead), "m3 (3)");
        waits(looker.looks(91, 99, &dead), "m3 (3)");
        assert_eq!(looker.look(100, &dead), Place::Free(Some(MemberId(3))));
    }

    #[test]
    fn nobody_is_replaced_without_a_quorum_of_all_among_the_others() {
        let mut slow = cluster(&[true, true, false]);
        slow.members[1].behind = 5000;
        let mut looker = Looker::new(3);
        waits(
            looker.looks(0, 30, &slow),
            "1 are: m2 (2) is 5000 entries behind",
        );
        let two_dead = cluster(&[true, true, true, false, false]);
        let mut looker = Looker::new(5);
        assert_eq!(
            looker.looks(0, 10, &two_dead),
            Place::Free(Some(MemberId(4)))
        );
        let mut above = Looker::new(3);
        waits(above.looks(0, 30, &two_dead), "4 of 3 voters");
    }

    #[test]
    fn a_learner_that_died_on_its_way_is_replaced_and_one_by_hand_is_not() {
        let mut stuck = cluster(&[true, true, false]);
        learner(&mut stuck, 2);
        let mut looker = Looker::new(3);
        waits(looker.looks(0, 9, &stuck), "on its way");
        assert_eq!(looker.look(10, &stuck), Place::Free(Some(MemberId(3))));
        stuck.members[2].joining = false;
        waits(looker.look(11, &stuck), "on its way");
    }

    #[test]
    fn a_host_replaces_its_own_former_member_at_once() {
        let emptied = cluster(&[true, true, false]);
        let mut looker = Looker::new(3);
        let place = looker.look_as("m3", 0, &emptied);
        assert_eq!(place, Place::Free(Some(MemberId(3))));
        let mut other = emptied.clone();
        other.members[2].name = "other".to_owned();
        waits(looker.look_as("m3", 1, &other), "3 of 3 voters");
        waits(
            looker.look_as("m3", 2, &cluster(&[true; 3])),
            "3 of 3 voters",
        );
    }
}
