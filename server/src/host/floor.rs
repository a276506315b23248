//! Room `server/host`: what a host has answered already. Its answers never go back behind that, whoever gives
//! them. Pure but for one look at a running member.

use crate::service::Services;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tenon_proto::etcdserverpb::ResponseHeader;

/// The newest answer of a host. Revision and term only grow; the cluster is fixed by the first answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Newest revision in any answer; 0 before the first.
    pub revision: i64,
    /// Newest raft term in any answer.
    pub raft_term: u64,
    /// The cluster; 0 while unknown.
    pub cluster_id: u64,
}

impl Floor {
    /// Whether an answer with this header does not go back. Revision 0 stands for "none given" in a few answers,
    /// and says nothing.
    pub fn allows(&self, header: &ResponseHeader) -> bool {
        self.is_of_cluster(header)
            && (header.revision == 0 || header.revision >= self.revision)
            && header.raft_term >= self.raft_term
    }

    /// Whether an answer with this header comes from the same cluster.
    pub fn is_of_cluster(&self, header: &ResponseHeader) -> bool {
        self.cluster_id == 0 || header.cluster_id == self.cluster_id
    }

    fn raise(&mut self, to: Floor) {
        self.revision = self.revision.max(to.revision);
        self.raft_term = self.raft_term.max(to.raft_term);
        if self.cluster_id == 0 {
            self.cluster_id = to.cluster_id;
        }
    }
}

impl From<&ResponseHeader> for Floor {
    fn from(header: &ResponseHeader) -> Floor {
        Floor {
            revision: header.revision,
            raft_term: header.raft_term,
            cluster_id: header.cluster_id,
        }
    }
}

#[derive(Default)]
struct State {
    floor: Floor,
    /// Answers of an earlier run of this host are not in the floor yet.
    owes_a_read: bool,
    /// It holds nothing: for a planted table of edges.
    forgets: bool,
    /// Members that answer through this host, or did a moment ago: what they have applied counts as answered, so
    /// that their calls need not be followed one by one.
    members: Vec<Weak<Services>>,
}

/// A floor shared by all that answer for one host. Clones are the same floor.
#[derive(Clone, Default)]
pub struct SharedFloor(Arc<Mutex<State>>);

impl SharedFloor {
    /// A floor that begins here.
    pub fn new(floor: Floor) -> SharedFloor {
        let shared = SharedFloor::default();
        shared.raise(floor);
        shared
    }

    /// The floor of a host that answered before this process began, through members elsewhere, and does not know
    /// what. Nothing is given until a linearizable answer was seen: no earlier answer is newer than that.
    pub fn of_earlier_run() -> SharedFloor {
        let floor = SharedFloor::default();
        floor.0.lock().owes_a_read = true;
        floor
    }

    /// A floor that holds nothing, for the proof that somebody would notice.
    pub(super) fn forgetful() -> SharedFloor {
        let floor = SharedFloor::default();
        floor.0.lock().forgets = true;
        floor
    }

    /// Whether a linearizable answer must be seen before any is given.
    pub(super) fn owes_a_read(&self) -> bool {
        self.0.lock().owes_a_read
    }

    /// A linearizable answer was seen.
    pub(super) fn settle(&self, at: Floor) {
        let mut state = self.0.lock();
        state.floor.raise(at);
        state.owes_a_read = false;
    }

    /// The floor now.
    pub fn now(&self) -> Floor {
        let mut state = self.0.lock();
        if state.forgets {
            return Floor::default();
        }
        let running: Vec<_> = state.members.iter().filter_map(Weak::upgrade).collect();
        for services in running {
            state.floor.raise(of_member(&services));
        }
        state.members.retain(|member| member.strong_count() > 0);
        state.floor
    }

    /// Takes note of an answer.
    pub fn raise(&self, to: Floor) {
        self.0.lock().floor.raise(to);
    }

    /// From now on what this member applies counts as answered, until [`SharedFloor::unfollow`] or its end.
    pub(super) fn follow(&self, services: &Arc<Services>) {
        self.0.lock().members.push(Arc::downgrade(services));
    }

    /// The member answers no more through this host.
    pub(super) fn unfollow(&self, services: &Arc<Services>) {
        let mut state = self.0.lock();
        state.floor.raise(of_member(services));
        let own = Arc::as_ptr(services);
        state.members.retain(|member| member.as_ptr() != own);
    }
}

fn of_member(services: &Services) -> Floor {
    Floor::from(&services.context.current_header())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64, raft_term: u64) -> ResponseHeader {
        ResponseHeader {
            cluster_id,
            member_id: 1,
            revision,
            raft_term,
        }
    }

    #[test]
    fn it_only_rises_and_keeps_its_cluster() {
        let floor = SharedFloor::default();
        assert_eq!(floor.now(), Floor::default());
        assert!(floor.now().allows(&header(7, 1, 1)));
        floor.raise(Floor::from(&header(7, 10, 2)));
        floor.raise(Floor::from(&header(9, 5, 3)));
        let now = floor.now();
        assert_eq!((now.cluster_id, now.revision, now.raft_term), (7, 10, 3));
        let allowed = [
            (header(7, 10, 3), true),
            (header(7, 11, 4), true),
            (header(7, 0, 3), true),
            (header(7, 9, 3), false),
            (header(7, 10, 2), false),
            (header(8, 10, 3), false),
        ];
        for (header, expected) in allowed {
            assert_eq!(now.allows(&header), expected, "{header:?}");
        }
    }
}
