//! Room `raft`: snapshots on their way in. Pieces go into an engine beside the running one; a transfer whose
//! stream broke waits for its next stream. Only one is received at a time.

use super::wire;
use crate::node::Node;
use crate::types::{Config, Vote, from_vote, stored_membership, to_log_id, to_vote};
use openraft::async_runtime::WatchReceiver;
use openraft::storage::Snapshot;
use openraft::type_config::alias::SnapshotMetaOf;
use prost::Message;
use std::time::Duration;
use tenon_env::{Lane, NetStream};
use tenon_proto::ids::MemberId;
use tenon_proto::log::LogId;
use tenon_proto::peer::{
    SnapshotBegin, SnapshotContent, SnapshotFrom, SnapshotPart, SnapshotReply, snapshot_reply,
};
use tenon_storage::engine::{RecordKey, Table};
use tenon_storage::state::{SnapshotReceiver, SnapshotView};

/// How long a sender may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A transfer that is not finished.
pub(crate) struct Receiving {
    transfer: u64,
    last: LogId,
    receiver: SnapshotReceiver,
    from: SnapshotFrom,
}

/// Takes one stream from `peer` to its end.
pub(super) async fn receive(node: &Node, peer: MemberId, mut stream: Box<dyn NetStream>) {
    let outcome = match take(node, &mut *stream).await {
        Ok(vote) => snapshot_reply::Outcome::Done(from_vote(&vote)),
        Err(why) => {
            tracing::info!("a snapshot from member {peer} broke: {why}");
            snapshot_reply::Outcome::Failed(why)
        }
    };
    let _ = send(&mut *stream, outcome).await;
}

async fn send(stream: &mut dyn NetStream, outcome: snapshot_reply::Outcome) -> Result<(), String> {
    let reply = SnapshotReply {
        outcome: Some(outcome),
    };
    stream
        .send(reply.encode_to_vec().into())
        .await
        .map_err(|e| e.to_string())
}

async fn next<M: Message + Default>(node: &Node, stream: &mut dyn NetStream) -> Result<M, String> {
    match node.env().timeout(SILENCE_MAX, stream.recv()).await {
        Some(Ok(Some(bytes))) => wire::decode(bytes),
        Some(Ok(None)) => Err("the stream ended".to_owned()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the sender is silent".to_owned()),
    }
}

async fn take(node: &Node, stream: &mut dyn NetStream) -> Result<Vote, String> {
    let begin: SnapshotBegin = next(node, stream).await?;
    let vote = begin
        .vote
        .as_ref()
        .map(to_vote)
        .ok_or("a snapshot without a vote")?;
    let last = begin.last.ok_or("a snapshot without a position")?;
    let mine = node.raft().server_metrics().borrow_watched().vote;
    if mine > vote {
        return Ok(mine);
    }
    let Ok(mut held) = node.receiving().try_lock() else {
        return Err("another snapshot is being received".to_owned());
    };
    let known = held
        .take()
        .filter(|r| r.transfer == begin.transfer && r.last == last);
    let mut receiving = match known {
        Some(receiving) => receiving,
        None => Receiving {
            transfer: begin.transfer,
            last,
            receiver: open(node).await?,
            from: SnapshotFrom::default(),
        },
    };
    send(
        stream,
        snapshot_reply::Outcome::From(receiving.from.clone()),
    )
    .await?;
    loop {
        let content = match content(node, stream).await {
            Ok(content) => content,
            Err(why) => {
                *held = Some(receiving);
                return Err(why);
            }
        };
        node.heard();
        if let Some(end) = content.end {
            if (end.rows, end.records) != (receiving.from.rows, receiving.from.records) {
                return Err("a snapshot with a gap".to_owned());
            }
            return install(node, vote, receiving).await;
        }
        receiving = store(node, receiving, content).await?;
    }
}

async fn content(node: &Node, stream: &mut dyn NetStream) -> Result<SnapshotContent, String> {
    let part: SnapshotPart = next(node, stream).await?;
    if crc32c::crc32c(&part.content) != part.crc32c {
        return Err("a snapshot's piece is damaged".to_owned());
    }
    wire::decode(part.content)
}

async fn open(node: &Node) -> Result<SnapshotReceiver, String> {
    let store = node.store().clone();
    let opened = node
        .env()
        .blocking(Lane::Snapshot, move || store.receive_snapshot())
        .await;
    opened
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())
}

/// Puts one piece into the waiting engine. After an error the transfer begins anew.
async fn store(
    node: &Node,
    mut receiving: Receiving,
    content: SnapshotContent,
) -> Result<Receiving, String> {
    let step = move || {
        let from = &mut receiving.from;
        from.rows += content.rows.len() as u64;
        for row in content.rows {
            let table = usize::try_from(row.table)
                .ok()
                .and_then(|n| Table::ALL.get(n));
            let table = *table.ok_or("a row of a table this version does not know")?;
            (from.table, from.key) = (row.table, row.key.clone());
            let put = receiving.receiver.rows(table, vec![(row.key, row.value)]);
            put.map_err(|e| e.to_string())?;
        }
        let records = content.records.into_iter().map(|r| {
            (
                RecordKey {
                    main: r.main,
                    sub: r.sub,
                    tombstone: r.tombstone,
                },
                r.value,
            )
        });
        let records: Vec<_> = records.collect();
        if let Some((last, _)) = records.last() {
            from.rows_done = true;
            from.records += records.len() as u64;
            (from.main, from.sub) = (last.main, last.sub + 1);
        }
        receiving
            .receiver
            .records(records)
            .map_err(|e| e.to_string())?;
        Ok(receiving)
    };
    node.env()
        .blocking(Lane::Snapshot, step)
        .await
        .map_err(|e| e.to_string())?
}

/// Hands the finished snapshot to openraft, which has it installed unless it is not needed.
async fn install(node: &Node, vote: Vote, receiving: Receiving) -> Result<Vote, String> {
    let finish = move || receiving.receiver.finish().map_err(|e| e.to_string());
    let view = node
        .env()
        .blocking(Lane::Snapshot, finish)
        .await
        .map_err(|e| e.to_string())??;
    if view.log_id() != receiving.last {
        return Err("a snapshot of another position than announced".to_owned());
    }
    let snapshot = Snapshot {
        meta: meta(&view)?,
        snapshot: view,
    };
    let response = node.raft().install_full_snapshot(vote, snapshot).await;
    Ok(response.map_err(|e| e.to_string())?.vote)
}

/// What openraft wants to know of a view.
pub(crate) fn meta(view: &SnapshotView) -> Result<SnapshotMetaOf<Config>, String> {
    let (id, membership) = view.membership().map_err(|e| e.to_string())?;
    let last_membership = stored_membership(id.as_ref(), &membership)
        .ok_or("the snapshot holds an impossible membership")?;
    Ok(SnapshotMetaOf::<Config> {
        last_log_id: Some(to_log_id(&view.log_id())),
        last_membership,
    })
}
