//! Room `server/service`: a snapshot of everything this member stores, as a stream: an archive in small blobs,
//! each with what is still to come, and the hash by itself at the end. One piece is in memory; the view it is
//! read from is let go when the client stands still.

use super::context::Context;
use crate::version::CLUSTER_VERSION;
use bytes::Bytes;
use std::time::Duration;
use tenon_env::Lane;
use tenon_env::sync::mpsc;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_storage::archive::ArchiveWriter;
use tenon_storage::engine::EngineError;

/// Where blobs go.
pub type Blobs = mpsc::Sender<Result<pb::SnapshotResponse, Error>>;

/// Bytes of one blob at most; etcd's.
const BLOB_BYTES: usize = 32 << 10;
/// Bytes of the hash at the end.
const HASH_BYTES: u64 = 32;
/// How long a client may take nothing: a view that is held keeps the engine from reusing room.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Sends the state to `out`: everything applied when this was called. Ends early when the receiver is gone.
pub(super) async fn send(context: &Context, out: &Blobs) -> Result<(), Error> {
    let began = context.env().now();
    let within = context.config().request_timeout();
    let drained = context
        .env()
        .timeout(within, context.store().wait_drained());
    drained.await.ok_or(Error::Timeout)?;
    let view = context.store().snapshot().ok_or(Error::Stopped)?;
    tracing::info!(view = ?view, "sending a snapshot to a client");
    let mut writer = ArchiveWriter::new(view);
    let total = loop {
        let (back, length) = step(context, writer, ArchiveWriter::measure).await?;
        writer = back;
        if let Some(length) = length {
            break length;
        }
    };
    let mut left = total - HASH_BYTES;
    loop {
        let (back, piece) = step(context, writer, ArchiveWriter::next_piece).await?;
        writer = back;
        let Some(mut piece) = piece else { break };
        while !piece.is_empty() {
            let blob = piece.split_to(piece.len().min(BLOB_BYTES));
            left = left.saturating_sub(blob.len() as u64);
            if !send_blob(context, out, left, blob).await? {
                return Ok(());
            }
        }
    }
    assert_eq!(writer.written(), total, "a snapshot is as long as was said");
    let took = context.env().now() - began;
    context.counters().snapshots.observe(took);
    Ok(())
}

/// One step of reading, where it blocks nobody.
async fn step<T: Send + 'static>(
    context: &Context,
    mut writer: ArchiveWriter,
    read: impl FnOnce(&mut ArchiveWriter) -> Result<T, EngineError> + Send + 'static,
) -> Result<(ArchiveWriter, T), Error> {
    let job = move || {
        let outcome = read(&mut writer);
        (writer, outcome)
    };
    let done = context.env().blocking(Lane::Snapshot, job).await;
    let (writer, outcome) = done.map_err(|_gone| Error::Stopped)?;
    match outcome {
        Ok(value) => Ok((writer, value)),
        Err(error) => {
            tracing::error!(%error, "a snapshot cannot be read");
            Err(Error::Stopped)
        }
    }
}

/// False when the client is gone.
async fn send_blob(context: &Context, out: &Blobs, left: u64, blob: Bytes) -> Result<bool, Error> {
    let answer = pb::SnapshotResponse {
        header: None,
        remaining_bytes: left,
        blob,
        version: CLUSTER_VERSION.to_owned(),
    };
    match context.env().timeout(STALL_MAX, out.send(Ok(answer))).await {
        Some(sent) => Ok(sent.is_ok()),
        None => {
            tracing::warn!("a client takes nothing of its snapshot; it is given up");
            Err(Error::Timeout)
        }
    }
}
