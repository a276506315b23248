//! Room `client`: the queue behind locks and elections, in etcd's scheme of keys, so that holders of other
//! client libraries and of the server's own Lock service stand in the same line.
//!
//! A place in the queue of `name` is the key `name/<lease id in hexadecimal>`, attached to that lease. The
//! key with the smallest create revision is at the head; each one waits for the key just before it to go.

use crate::call::Client;
use crate::request;
use crate::retry::Repeat;
use crate::session::Session;
use crate::watch::{WatchError, WatchOptions, WatchUpdate};
use bytes::Bytes;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use tenon_proto::etcdserverpb::response_op::Response as Answer;
use tenon_proto::ids::Revision;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::event::EventType;

/// The keys of all places in the queue of `name`.
pub(crate) fn places(name: &Bytes) -> KeyRange {
    KeyRange::prefix([name.as_ref(), b"/"].concat())
}

/// The head of the queue: a read of its one pair.
pub(crate) fn head(name: &Bytes) -> pb::RangeRequest {
    pb::RangeRequest {
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        limit: 1,
        ..request::range(&places(name))
    }
}

/// A place in a queue. Dropping it leaves the queue, in the background and as far as servers can be reached,
/// unless it was only found again.
#[derive(Debug)]
pub(crate) struct Place {
    client: Client,
    name: Bytes,
    key: Bytes,
    lease: i64,
    created: Revision,
    /// Whether the key was there before, put by an earlier join under the same lease.
    pub(crate) rejoined: bool,
    left: bool,
}

impl Place {
    /// Joins at the end, or finds the place that this session already has.
    pub(crate) async fn join(session: &Session, name: Bytes, value: Bytes) -> Result<Place, Error> {
        let lease = session.lease();
        let key = Bytes::from([name.as_ref(), b"/", lease.hex().as_bytes()].concat());
        let put = pb::PutRequest {
            lease: lease.get(),
            ..request::put(key.clone(), value)
        };
        let get = request::range(&KeyRange::single(key.clone()));
        let txn = pb::TxnRequest {
            compare: vec![request::created_at(key.clone(), 0)],
            success: vec![request::op(put)],
            failure: vec![request::op(get)],
        };
        // A second try finds what the first one did.
        let answer = session.client().txn_as(Repeat::Harmless, txn).await?;
        let created = match answer.succeeded {
            true => answer.header.map(|h| h.revision),
            false => first_created(&answer),
        };
        Ok(Place {
            client: session.client().clone(),
            name,
            key,
            lease: lease.get(),
            created: Revision(created.ok_or_else(malformed)?),
            rejoined: !answer.succeeded,
            left: false,
        })
    }

    pub(crate) fn name(&self) -> &Bytes {
        &self.name
    }

    pub(crate) fn key(&self) -> &Bytes {
        &self.key
    }

    /// Revision at which it was created; larger than that of every earlier holder of the same queue.
    pub(crate) fn created(&self) -> Revision {
        self.created
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until this place is the head.
    ///
    /// # Errors
    /// `SessionExpired` when the place is gone or the session lost meanwhile.
    pub(crate) async fn wait_for_turn(&self, session: &Session) -> Result<(), Error> {
        tokio::select! {
            biased;
            _ = session.lost() => return Err(Error::SessionExpired),
            turn = self.all_before_gone() => turn?,
        }
        // The lease may have ended while waiting, and the keys before with it.
        match self.client.get(self.key.clone()).await? {
            Some(kv) if kv.create_revision == self.created.get() => Ok(()),
            _ => Err(Error::SessionExpired),
        }
    }

    async fn all_before_gone(&self) -> Result<(), Error> {
        loop {
            let before = pb::RangeRequest {
                sort_order: SortOrder::Descend.into(),
                sort_target: SortTarget::Create.into(),
                limit: 1,
                max_create_revision: self.created.get() - 1,
                ..request::range(&places(&self.name))
            };
            let answer = self.client.range(before).await?;
            let Some(kv) = answer.kvs.into_iter().next() else {
                return Ok(());
            };
            let now = answer.header.ok_or_else(malformed)?.revision;
            gone(&self.client, kv.key, Revision(now + 1)).await?;
        }
    }

    /// Leaves the queue.
    ///
    /// # Errors
    /// What any write may meet; the place then ends with its lease.
    pub(crate) async fn leave(mut self) -> Result<(), Error> {
        self.left = true;
        leave(&self.client, &self.key, self.created).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A place found again belongs to the one who took it first.
        if self.left || self.rejoined {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (client, key, created) = (self.client.clone(), self.key.clone(), self.created);
            runtime.spawn(async move {
                if let Err(error) = leave(&client, &key, created).await {
                    tracing::debug!(%error, "a place in a queue stays until its lease ends");
                }
            });
        }
    }
}

/// Deletes the key unless it was made anew since.
async fn leave(client: &Client, key: &Bytes, created: Revision) -> Result<(), Error> {
    let delete = request::delete(&KeyRange::single(key.clone()));
    let txn = pb::TxnRequest {
        compare: vec![request::created_at(key.clone(), created.get())],
        success: vec![request::op(delete)],
        failure: vec![],
    };
    // A second try finds nothing to delete.
    client.txn_as(Repeat::Harmless, txn).await.map(|_| ())
}

/// Waits until the key is deleted at or after `start`, or may have been: the caller looks again.
async fn gone(client: &Client, key: Bytes, start: Revision) -> Result<(), Error> {
    let options = WatchOptions {
        no_put: true,
        ..WatchOptions::of(KeyRange::single(key)).from(start)
    };
    let result = async {
        let mut watch = client.watch(options).await?;
        loop {
            if let WatchUpdate::Events(events) = watch.next().await?
                && events.iter().any(|e| e.r#type() == EventType::Delete)
            {
                return Ok(());
            }
        }
    };
    match result.await {
        Ok(()) | Err(WatchError::Compacted { .. }) => Ok(()),
        Err(WatchError::Refused(error)) => Err(error),
    }
}

fn first_created(answer: &pb::TxnResponse) -> Option<i64> {
    match answer.responses.first()?.response.as_ref()? {
        Answer::ResponseRange(range) => range.kvs.first().map(|kv| kv.create_revision),
        _ => None,
    }
}

pub(crate) fn malformed() -> Error {
    let text = "tenon: the server's answer lacks what the request asked for";
    Error::other(tenon_proto::code::Code::Internal, text)
}
