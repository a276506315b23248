//! Room `sim`, L1: watchers. The first watches every key and makes the timeline; the others watch parts of it
//! from any revision. Each goes on in the next life where the last one ended.

use super::host::{Host, MEMBER};
use crate::check::Finding;
use crate::check::watches::Watched;
use crate::history::History;
use crate::workload::seen::{Part, Seen, begin, note, tell, told_all};
use crate::world::WatchStream;
use bytes::Bytes;
use tenon_env::sync::oneshot;
use tenon_proto::etcdserverpb as pb;
use tenon_server::service::watch::NeedsLeader;

/// Watches every key from the first revision on, in every life, and makes the timeline.
pub(super) async fn watch_all(mut host: Host, seen: Seen, history: History) {
    let all = Bytes::from_static(b"\0");
    while let Some(running) = host.running().await {
        let mut stream = WatchStream::at(&running.member, MEMBER, running.life, NeedsLeader::No);
        let create = pb::WatchCreateRequest {
            key: all.clone(),
            range_end: all.clone(),
            start_revision: seen.last() + 1,
            prev_kv: true,
            ..Default::default()
        };
        stream.create(create).await;
        while let Some(answer) = stream.next().await {
            if answer.canceled {
                let compacted = answer.compact_revision;
                seen.fail(Finding(format!(
                    "the watch of all was cancelled: {answer:?}, {compacted}"
                )));
                return;
            }
            let now = host.sim.now().as_nanos() as u64;
            if let Err(finding) = told_all(&seen, &history, answer, now) {
                seen.fail(finding);
                return;
            }
        }
        wait_for_next_life(&mut host, running.life).await;
    }
}

async fn wait_for_next_life(host: &mut Host, life: u64) {
    // The stream may break a moment before the host is marked down.
    while let Some(running) = host.running().await {
        if running.life != life {
            return;
        }
        host.sim.sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Watches a part; each uninterrupted stretch is noted for the checker. Ends when `end` is told.
pub(super) async fn watch_part(
    mut host: Host,
    seen: Seen,
    part: Part,
    mut end: oneshot::Receiver<()>,
) {
    let mut start = part.start;
    let mut watched: Option<Watched> = None;
    while let Some(running) = host.running().await {
        let mut stream = WatchStream::at(&running.member, MEMBER, running.life, NeedsLeader::No);
        let create = pb::WatchCreateRequest {
            key: part.key.clone(),
            range_end: part.range_end.clone(),
            start_revision: start,
            ..Default::default()
        };
        stream.create(create).await;
        loop {
            let answer = tokio::select! {
                biased;
                _ = &mut end => {
                    let last = seen.last();
                    note(&seen, watched.map(|w| Watched { last, ..w }));
                    return;
                }
                answer = stream.next() => answer,
            };
            let Some(answer) = answer else { break };
            let header = answer.header.as_ref().map_or(0, |h| h.revision);
            if answer.canceled {
                // History it wanted is gone: a new stretch begins where it can.
                note(&seen, watched.take());
                start = answer.compact_revision.max(1);
                break;
            }
            if answer.created {
                let first = if start > 0 { start } else { header + 1 };
                watched.get_or_insert_with(|| begin(&part, first));
                start = first;
                continue;
            }
            if let Some(watched) = &mut watched {
                tell(watched, answer.events, &mut start);
            }
        }
        if host
            .running()
            .await
            .is_some_and(|now| now.life == running.life)
        {
            host.sim.sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    note(&seen, watched);
}
