//! Room `raft`: snapshots on their way out. A view is read piece by piece on a lane and streamed; when the
//! stream breaks, another goes on with the same view where the receiver stopped. One piece is in memory.

use super::greeting::NoStream;
use super::link::Link;
use super::wire;
use crate::types::{Vote, from_vote, to_vote};
use bytes::Bytes;
use prost::Message;
use std::time::Duration;
use tenon_env::{Lane, NetStream, StreamKind};
use tenon_proto::peer::{
    SnapshotBegin, SnapshotContent, SnapshotEnd, SnapshotFrom, SnapshotPart, SnapshotRecord,
    SnapshotReply, SnapshotRow, snapshot_reply,
};
use tenon_storage::engine::Table;
use tenon_storage::state::SnapshotView;

/// Bytes of records in one piece.
const PIECE_BYTES: usize = 1 << 20;
/// Streams that may break without progress before the transfer is given up.
const BREAKS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// How long the receiver may take for its last answer: it rebuilds its index then.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);

/// How one stream ended.
enum Ended {
    /// The receiver's vote.
    Done(Vote),
    Broken(String),
}

/// A snapshot and how to send it.
pub(super) struct Sending {
    pub(super) link: Link,
    pub(super) vote: Vote,
    pub(super) view: SnapshotView,
    /// Bytes per second; 0 = as fast as it goes.
    pub(super) rate: u64,
}

impl Sending {
    /// Streams the snapshot until the receiver has installed it; the receiver's vote.
    pub(super) async fn run(self) -> Result<Vote, String> {
        let transfer = self.link.env().rng.next_u64();
        let mut furthest = 0;
        let mut breaks = 0;
        loop {
            let mut sent = 0;
            match self.stream(transfer, &mut sent).await {
                Ok(Ended::Done(vote)) => return Ok(vote),
                Ok(Ended::Broken(why)) | Err(why) => {
                    tracing::info!("a snapshot to member {:x} broke: {why}", self.link.target());
                    if sent > furthest {
                        furthest = sent;
                        breaks = 0;
                    }
                    breaks += 1;
                    if breaks >= BREAKS_MAX {
                        return Err(why);
                    }
                }
            }
            self.link.env().sleep(PAUSE).await;
        }
    }

    async fn stream(&self, transfer: u64, sent: &mut u64) -> Result<Ended, String> {
        let broken = |error: std::io::Error| error.to_string();
        let dialled = self.link.dial(StreamKind::Bulk).await;
        let mut stream = dialled.map_err(|e: NoStream| e.to_string())?;
        let begin = SnapshotBegin {
            vote: Some(from_vote(&self.vote)),
            last: Some(self.view.log_id()),
            transfer,
        };
        stream
            .send(begin.encode_to_vec().into())
            .await
            .map_err(broken)?;
        let from = match reply(&mut *stream).await?.outcome {
            Some(snapshot_reply::Outcome::From(from)) => from,
            Some(snapshot_reply::Outcome::Done(vote)) => return Ok(Ended::Done(to_vote(&vote))),
            Some(snapshot_reply::Outcome::Failed(why)) => return Ok(Ended::Broken(why)),
            None => return Ok(Ended::Broken("an empty reply".to_owned())),
        };
        *sent = from.records;
        let end = self.parts(&mut *stream, from, sent).await?;
        self.send(
            &mut *stream,
            SnapshotContent {
                end: Some(end),
                ..Default::default()
            },
        )
        .await?;
        let last = self
            .link
            .env()
            .timeout(INSTALL_WITHIN, reply(&mut *stream))
            .await;
        Ok(
            match last.ok_or("no answer to a snapshot's end")??.outcome {
                Some(snapshot_reply::Outcome::Done(vote)) => Ended::Done(to_vote(&vote)),
                Some(snapshot_reply::Outcome::Failed(why)) => Ended::Broken(why),
                Some(snapshot_reply::Outcome::From(_)) | None => {
                    Ended::Broken("an answer out of turn".to_owned())
                }
            },
        )
    }

    /// Sends what is missing; what was sent in all.
    async fn parts(
        &self,
        stream: &mut dyn NetStream,
        from: SnapshotFrom,
        sent: &mut u64,
    ) -> Result<SnapshotEnd, String> {
        let mut end = SnapshotEnd {
            rows: from.rows,
            records: from.records,
        };
        if !from.rows_done {
            let rows = self.rows().await?;
            end.rows = rows.len() as u64;
            self.send(
                stream,
                SnapshotContent {
                    rows,
                    ..Default::default()
                },
            )
            .await?;
        }
        let mut next = (from.main, from.sub);
        loop {
            let view = self.view.clone();
            let read = move || view.records(next, PIECE_BYTES);
            let piece = self.link.env().blocking(Lane::Snapshot, read).await;
            let piece = piece
                .map_err(|e| e.to_string())?
                .map_err(|e| e.to_string())?;
            let Some((last, _)) = piece.last() else {
                return Ok(end);
            };
            next = (last.main, last.sub + 1);
            end.records += piece.len() as u64;
            let records = piece.into_iter().map(|(key, value)| SnapshotRecord {
                main: key.main,
                sub: key.sub,
                tombstone: key.tombstone,
                value,
            });
            let content = SnapshotContent {
                records: records.collect(),
                ..Default::default()
            };
            self.send(stream, content).await?;
            *sent = end.records;
        }
    }

    async fn rows(&self) -> Result<Vec<SnapshotRow>, String> {
        let view = self.view.clone();
        let read = move || {
            let mut all = Vec::new();
            for (number, table) in (0..).zip(Table::ALL) {
                let rows = view.rows(table)?;
                all.extend(rows.into_iter().map(|(key, value)| SnapshotRow {
                    table: number,
                    key,
                    value,
                }));
            }
            Ok::<_, tenon_storage::engine::EngineError>(all)
        };
        let rows = self.link.env().blocking(Lane::Snapshot, read).await;
        rows.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    async fn send(
        &self,
        stream: &mut dyn NetStream,
        content: SnapshotContent,
    ) -> Result<(), String> {
        let content = Bytes::from(content.encode_to_vec());
        let bytes = content.len() as u64;
        let part = SnapshotPart {
            crc32c: crc32c::crc32c(&content),
            content,
        };
        stream
            .send(part.encode_to_vec().into())
            .await
            .map_err(|e| e.to_string())?;
        if let Some(nanos) = (bytes * 1_000_000_000).checked_div(self.rate) {
            self.link.env().sleep(Duration::from_nanos(nanos)).await;
        }
        Ok(())
    }
}

async fn reply(stream: &mut dyn NetStream) -> Result<SnapshotReply, String> {
    match stream.recv().await {
        Ok(Some(bytes)) => wire::decode(bytes),
        Ok(None) => Err("the stream ended".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
