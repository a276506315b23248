//! Room `sim`, cluster: a watch as the code under test holds it. It ends when its member goes down, or when the
//! client hears nothing over a cut; going on from the right revision is the code's own business, which is what
//! many get wrong.

use super::client::{Client, Entry};
use crate::world::WatchStream;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::key_range::prefix_end;
use tenon_proto::mvccpb::event::EventType;
use tenon_server::service::watch::NeedsLeader;

/// How long a client hears nothing before it takes the stream for broken.
const SILENCE: Duration = Duration::from_secs(3);

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this value now.
    Put(Entry),
    /// It is gone since this revision.
    Deleted(String, i64),
}

impl Change {
    /// The revision of the change.
    pub fn revision(&self) -> i64 {
        match self {
            Change::Put(entry) => entry.modified,
            Change::Deleted(_, revision) => *revision,
        }
    }
}

/// Why a watch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The stream broke. What came is all there is up to the last change told; the rest is elsewhere.
    Broken,
    /// The revision asked for is compacted; history begins after this one.
    Compacted(i64),
}

/// A watch.
pub struct Watch {
    client: Client,
    stream: WatchStream,
    waiting: VecDeque<Change>,
    over: Option<WatchEnd>,
}

impl Client {
    /// Watches all keys that begin with `prefix`, from revision `from` on (0: from now on). `None` when no member
    /// could be asked.
    pub async fn watch_prefix(&self, prefix: &str, from: i64) -> Option<Watch> {
        let stream = self.world.watch(self.target()?, NeedsLeader::Yes)?;
        let create = pb::WatchCreateRequest {
            key: Bytes::copy_from_slice(prefix.as_bytes()),
            range_end: prefix_end(prefix.as_bytes()),
            start_revision: from,
            ..Default::default()
        };
        stream.create(create).await;
        let mut watch = Watch {
            client: self.clone(),
            stream,
            waiting: VecDeque::new(),
            over: None,
        };
        // The first answer only says that the watch stands.
        watch.receive().await;
        Some(watch)
    }
}

impl Watch {
    /// The next change, in the order of revisions.
    ///
    /// # Errors
    /// [`WatchEnd`], again and again once it is over.
    pub async fn next(&mut self) -> Result<Change, WatchEnd> {
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Ok(change);
            }
            if let Some(end) = self.over {
                return Err(end);
            }
            self.receive().await;
        }
    }

    async fn receive(&mut self) {
        let Some(response) = self.stream.next().await else {
            self.over = Some(WatchEnd::Broken);
            return;
        };
        let way = self
            .client
            .world
            .sim()
            .passage(self.stream.node, self.client.node());
        match way {
            Some(delay) => self.client.world.sim().sleep(delay).await,
            None => {
                self.client.sleep(SILENCE).await;
                self.over = Some(WatchEnd::Broken);
                return;
            }
        }
        if response.canceled {
            self.over = Some(match response.compact_revision {
                0 => WatchEnd::Broken,
                revision => WatchEnd::Compacted(revision),
            });
        }
        for event in response.events {
            let is_put = event.r#type() == EventType::Put;
            if let Some(kv) = event.kv {
                let entry = Entry::from(kv);
                self.waiting.push_back(match is_put {
                    true => Change::Put(entry),
                    false => Change::Deleted(entry.key, entry.modified),
                });
            }
        }
    }
}
