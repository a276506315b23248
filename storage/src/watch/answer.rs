//! Room storage, watches: what the hub tells a client's stream. Plain data, and its form on the wire.

use super::{Event, History, Lost, fragments};
use prost::Message;
use std::sync::Arc;
use tenon_proto::etcdserverpb::{ResponseHeader, WatchResponse};
use tenon_proto::mvccpb;

/// Field number of events in a response fits one byte of tag.
const EVENT_TAG_BYTES: usize = 1;

/// Events for one watcher, shared with the other watchers that get the very same ones.
#[derive(Debug)]
pub struct Batch {
    /// Ascending by revision; inside a revision in the order of the operations. Never empty.
    pub events: Vec<Arc<Event>>,
    /// Sum of weights, bytes.
    pub bytes: usize,
}

impl Batch {
    pub(super) fn new(events: Vec<Arc<Event>>) -> Arc<Batch> {
        let bytes = events.iter().map(|event| event.weight()).sum();
        Arc::new(Batch { events, bytes })
    }
}

/// What an answer says.
#[derive(Clone, Debug)]
pub enum Say {
    /// The watcher exists.
    Created,
    /// It does not: created and cancelled at once, with this reason; id -1.
    Refused(String),
    /// The client's cancel was carried out.
    Canceled,
    /// Its next revision is compacted; header revision 0.
    Compacted {
        /// The store's compaction revision.
        revision: i64,
    },
    /// Everything up to the header's revision was sent; id -1 when it is about the whole stream.
    Progress,
    /// Changes.
    Events {
        /// Them.
        batch: Arc<Batch>,
        /// The client asked for previous pairs.
        prev_kv: bool,
        /// The client allowed splitting.
        fragment: bool,
    },
}

/// One message of a stream, in order.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The watcher's id on this stream, or -1.
    pub watch_id: i64,
    /// For `header.revision`.
    pub revision: i64,
    /// Its content.
    pub say: Say,
}

impl Answer {
    /// The responses to send for it, in order: one, or several parts when the client allowed
    /// fragments and one would not stay below `limit` bytes. `header` is the answering member's;
    /// its revision is filled in here. Previous pairs are looked up in `history` unless known.
    ///
    /// # Errors
    /// [`Lost`] when one cannot be looked up.
    pub fn into_responses(
        self,
        mut header: ResponseHeader,
        history: &dyn History,
        limit: usize,
    ) -> Result<Vec<WatchResponse>, Lost> {
        header.revision = self.revision;
        let mut response = WatchResponse {
            header: Some(header),
            watch_id: self.watch_id,
            ..WatchResponse::default()
        };
        match self.say {
            Say::Created => response.created = true,
            Say::Refused(reason) => {
                response.created = true;
                response.canceled = true;
                response.cancel_reason = reason;
            }
            Say::Canceled => response.canceled = true,
            Say::Compacted { revision } => {
                response.canceled = true;
                response.compact_revision = revision;
            }
            Say::Progress => {}
            Say::Events {
                batch,
                prev_kv,
                fragment,
            } => {
                let events = batch.events.iter();
                response.events = events
                    .map(|event| event.to_wire(prev_kv, history))
                    .collect::<Result<_, Lost>>()?;
                if fragment {
                    return Ok(split(response, limit));
                }
            }
        }
        Ok(vec![response])
    }
}

/// Parts of `response` below `limit` bytes, all but the last marked as fragments.
fn split(mut response: WatchResponse, limit: usize) -> Vec<WatchResponse> {
    if response.encoded_len() < limit || response.events.len() < 2 {
        return vec![response];
    }
    let events = std::mem::take(&mut response.events);
    response.fragment = true;
    let sizes: Vec<usize> = events.iter().map(share_of).collect();
    let parts = fragments(response.encoded_len(), &sizes, limit);
    let mut events = events.into_iter();
    let mut responses: Vec<WatchResponse> = parts
        .into_iter()
        .map(|part| {
            let mut response = response.clone();
            response.events = events.by_ref().take(part.len()).collect();
            response
        })
        .collect();
    if let Some(last) = responses.last_mut() {
        last.fragment = false;
    }
    responses
}

/// Bytes an event adds to a response.
fn share_of(event: &mvccpb::Event) -> usize {
    let body = event.encoded_len();
    EVENT_TAG_BYTES + prost::length_delimiter_len(body) + body
}
