//! Room `raft`: keeps the log short. openraft purges only what a snapshot covers; a snapshot here is a view
//! that costs nothing, so one is announced whenever enough entries may go. The WAL removes a segment once the
//! engine holds it durably.

use crate::config::RaftConfig;
use crate::node::Node;
use std::time::Duration;
use tenon_env::Env;
use tenon_proto::ids::LogIndex;

/// How often the log is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// What the log looks like.
struct Extent {
    /// First index still readable, and the newest that the engine holds.
    first: u64,
    durable: u64,
    bytes: u64,
}

/// The newest index that may go, keeping as many entries that the engine holds as `config` says, or fewer when the log is
/// larger than it says. Entries are taken to be of one size; the next look corrects the error.
fn purge_through(extent: &Extent, config: &RaftConfig) -> Option<u64> {
    let bytes_max = config.wal_bytes_max;
    let entries = (extent.durable + 1).saturating_sub(extent.first);
    let mut gone = entries.saturating_sub(config.snapshot_catchup_entries);
    if extent.bytes > bytes_max {
        let excess = u128::from(extent.bytes - bytes_max) * u128::from(entries);
        let share = excess.div_ceil(u128::from(extent.bytes));
        gone = gone
            .max(u64::try_from(share).unwrap_or(u64::MAX))
            .min(entries);
    } else if gone < config.purge_entries_min.max(1) {
        return None;
    }
    gone.checked_sub(1).map(|last| extent.first + last)
}

/// Purges for as long as the member runs.
pub(crate) async fn purge(env: Env, node: Node) {
    loop {
        env.sleep(PERIOD).await;
        let durable = node.store().engine_durable().0;
        if durable == 0 {
            // No snapshot can be had yet: the engine is new, or cannot write.
            continue;
        }
        let wal = node.wal();
        let first = wal
            .purge_intent()
            .map_or(wal.first_index().0, |id| id.index + 1);
        let extent = Extent {
            first,
            durable,
            bytes: wal.size().0,
        };
        let Some(through) = purge_through(&extent, node.config()) else {
            continue;
        };
        if node.announce_snapshot(through).await.is_err() {
            return;
        }
    }
}

/// Tells the WAL what the engine holds, for as long as the member runs.
pub(crate) async fn follow_engine(node: Node) {
    let mut durable = node.store().watch_engine_durable();
    loop {
        let index = *durable.borrow_and_update();
        if index > LogIndex(0) {
            node.wal().set_engine_durable(index);
        }
        if durable.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::ids::{ClusterId, MemberId};

    fn through(first: u64, durable: u64, bytes: u64) -> Option<u64> {
        let config = RaftConfig {
            wal_bytes_max: 1 << 20,
            ..RaftConfig::new(MemberId(1), ClusterId(1))
        };
        purge_through(
            &Extent {
                first,
                durable,
                bytes,
            },
            &config,
        )
    }

    #[test]
    fn what_goes_is_decided_by_entries_first_and_bytes_last() {
        assert_eq!(through(0, 10, 0), None);
        assert_eq!(through(0, 4999, 0), None, "all are to be kept");
        assert_eq!(through(0, 5998, 0), None, "too few to bother");
        assert_eq!(through(0, 5999, 0), Some(999));
        assert_eq!(through(1000, 5999, 0), None);
        assert_eq!(
            through(0, 99, 2 << 20),
            Some(49),
            "half the bytes are too many"
        );
        assert_eq!(through(50, 49, 2 << 20), None, "nothing is left to purge");
    }
}
