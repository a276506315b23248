//! Room proto: newtypes for every position and id, and how member and cluster ids are computed.
//! Numbers only; what they mean for the log or the store belongs to the rooms that own those.

use sha1::{Digest, Sha1};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number, as messages carry it.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl From<$inner> for $name {
            fn from(number: $inner) -> $name {
                $name(number)
            }
        }

        impl From<$name> for $inner {
            fn from(id: $name) -> $inner {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A revision of the key space. A fresh store is at 1 and its first write makes 2; requests use 0
    /// for "newest".
    Revision(i64), "{}"
);
number!(
    /// A lease. 0 means "none" in a put and "choose one" in a grant; negative ids are legal. Displays
    /// in decimal; [`LeaseId::hex`] is what keys of locks carry.
    LeaseId(i64), "{}"
);
number!(
    /// A member, by the hash [`member_id`]. 0 is nobody. Displays in hexadecimal, as etcd does.
    MemberId(u64), "{:x}"
);
number!(
    /// A cluster, by the hash [`cluster_id`]. Displays in hexadecimal, as etcd does.
    ClusterId(u64), "{:x}"
);
number!(
    /// A raft term; 0 before the first election.
    Term(u64), "{}"
);
number!(
    /// A position in the replicated log.
    LogIndex(u64), "{}"
);
number!(
    /// A watcher on one stream; -1 stands for the stream itself.
    WatchId(i64), "{}"
);

impl LeaseId {
    /// Lower-case hexadecimal without padding; a negative id has a minus sign, as Go prints it.
    pub fn hex(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        format!("{sign}{:x}", self.0.unsigned_abs())
    }
}

/// The id of a member with these peer URLs: a hash of the URLs, sorted, and of `token_or_time`, the
/// cluster token for a member of the first configuration or the decimal Unix seconds of the addition.
pub fn member_id<S: AsRef<str>>(peer_urls: &[S], token_or_time: &str) -> MemberId {
    let mut urls: Vec<&str> = peer_urls.iter().map(AsRef::as_ref).collect();
    urls.sort_unstable();
    let mut hash = Sha1::new();
    for url in urls {
        hash.update(url);
    }
    hash.update(token_or_time);
    MemberId(first_eight(hash))
}

/// The id of the cluster whose first configuration has these members, in any order.
pub fn cluster_id(members: &[MemberId]) -> ClusterId {
    let mut members = members.to_vec();
    members.sort_unstable();
    let mut hash = Sha1::new();
    for member in members {
        hash.update(member.0.to_be_bytes());
    }
    ClusterId(first_eight(hash))
}

fn first_eight(hash: Sha1) -> u64 {
    let digest = hash.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values printed by a running etcd 3.7.3 with `--initial-cluster-token tenon-ids`.
    #[test]
    fn ids_are_those_etcd_computes() {
        let m1 = member_id(
            &["http://127.0.0.1:24381", "http://127.0.0.1:24380"],
            "tenon-ids",
        );
        let m2 = member_id(&["http://127.0.0.1:24390"], "tenon-ids");
        let m3 = member_id(&["http://127.0.0.1:24391"], "tenon-ids");
        assert_eq!(m1.to_string(), "2a5d92039b02bf7f");
        assert_eq!(cluster_id(&[m3, m1, m2]).to_string(), "d9255aa160f8d7a6");

        // A member added later hashes the second of its addition instead of the token.
        let added = member_id(
            &["http://127.0.0.1:24399", "http://127.0.0.1:24398"],
            "1796060620",
        );
        assert_eq!(added.to_string(), "d9ebad3a32306e0a");
    }

    #[test]
    fn lease_ids_print_as_go_prints_them() {
        assert_eq!(LeaseId(0x694d_8257_011c_8500).hex(), "694d8257011c8500");
        assert_eq!(
            (LeaseId(10).hex(), LeaseId(-10).hex()),
            ("a".into(), "-a".into())
        );
        assert_eq!(LeaseId(i64::MIN).hex(), "-8000000000000000");
        assert_eq!(
            (LeaseId(10).to_string(), MemberId(10).to_string()),
            ("10".into(), "a".into())
        );
    }
}
