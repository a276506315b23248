//! Room `server/service`: streams of clients that ask for a member with a leader (`hasleader`). Pure
//! waiting on raft's status and the clock.

use std::time::Duration;
use tenon_env::{BoxFuture, Env, sync::watch};
use tenon_proto::error::Error;
use tenon_raft::RaftStatus;

/// Election timeouts without a leader after which such a stream ends.
const TIMEOUTS_MAX: u32 = 3;

/// Completes once no leader was seen at three looks in a row, one election timeout apart. It looks
/// instead of following the status, which changes with every entry.
pub async fn lost(env: Env, status: watch::Receiver<RaftStatus>, election: Duration) {
    let mut without = 0;
    while without < TIMEOUTS_MAX {
        env.sleep(election).await;
        without = if status.borrow().leader.is_none() {
            without + 1
        } else {
            0
        };
    }
}

/// Completes with the reason for which every such stream ends: the member stops, or `lost` completes.
pub async fn cut(mut stopping: watch::Receiver<bool>, lost: BoxFuture<'static, ()>) -> Error {
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => Error::Stopped,
        () = lost => Error::NoLeader,
    }
}
