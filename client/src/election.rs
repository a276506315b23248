//! Room `client`: elections: one leader at a time, with a value that all may read.

use crate::call::Client;
use crate::queue::{Place, head, malformed, places};
use crate::request;
use crate::retry::Repeat;
use crate::session::Session;
use crate::watch::{Watch, WatchError, WatchOptions, WatchUpdate};
use bytes::Bytes;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb as pb;
use tenon_proto::ids::Revision;
use tenon_proto::key_range::KeyRange;
use tenon_proto::mvccpb::event::EventType;
use tenon_proto::mvccpb::{Event, KeyValue};

impl Session {
    /// Waits to become leader of the election `name` and proclaims `value`. A session that leads already
    /// proclaims the new value. Dropping the future withdraws the candidacy.
    ///
    /// # Errors
    /// `SessionExpired` when the session is lost meanwhile; what any call may meet.
    pub async fn campaign(
        &self,
        name: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<Leadership, Error> {
        let value = value.into();
        let place = Place::join(self, name.into(), value.clone()).await?;
        place.wait_for_turn(self).await?;
        let leadership = Leadership { place };
        if leadership.place.rejoined {
            leadership.proclaim(value).await?;
        }
        Ok(leadership)
    }
}

impl Client {
    /// The leader's pair: its value is what it proclaimed.
    ///
    /// # Errors
    /// `ElectionNoLeader`; those of [`Client::range`].
    pub async fn leader(&self, name: impl Into<Bytes>) -> Result<KeyValue, Error> {
        let answer = self.range(head(&name.into())).await?;
        let leader = answer.kvs.into_iter().next();
        leader.ok_or(Error::ElectionNoLeader)
    }

    /// Tells of every leader and every value from now on, beginning with those in place.
    pub fn observe(&self, name: impl Into<Bytes>) -> Observer {
        Observer {
            client: self.clone(),
            name: name.into(),
            state: Observing::Look,
        }
    }
}

/// A held leadership. As with locks, it holds only as long as its session. Dropping it resigns in the
/// background.
#[derive(Debug)]
pub struct Leadership {
    place: Place,
}

impl Leadership {
    /// The leader's key.
    pub fn key(&self) -> &Bytes {
        self.place.key()
    }

    /// The election's name.
    pub fn name(&self) -> &Bytes {
        self.place.name()
    }

    /// The fencing number: every later leader of this election has a larger one.
    pub fn revision(&self) -> Revision {
        self.place.created()
    }

    /// Replaces the value, if this is still the leader.
    ///
    /// # Errors
    /// `ElectionNotLeader`; what any call may meet.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        let key = self.place.key().clone();
        let put = pb::PutRequest {
            lease: self.place.lease(),
            ..request::put(key.clone(), value)
        };
        let txn = pb::TxnRequest {
            compare: vec![request::created_at(key, self.revision().get())],
            success: vec![request::op(put)],
            failure: vec![],
        };
        // A second try proclaims the same value.
        let answer = self.place.client().txn_as(Repeat::Harmless, txn).await?;
        match answer.succeeded {
            true => Ok(()),
            false => Err(Error::ElectionNotLeader),
        }
    }

    /// Resigns and waits for it.
    ///
    /// # Errors
    /// What any write may meet; the leadership then ends with the session's lease.
    pub async fn resign(self) -> Result<(), Error> {
        self.place.leave().await
    }
}

/// Follows an election. Values that were replaced before they could be read are left out; the newest never is.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    name: Bytes,
    state: Observing,
}

#[derive(Debug)]
enum Observing {
    /// Read who leads.
    Look,
    /// Nobody leads: wait for any candidate.
    Vacant(Watch),
    /// Somebody leads: wait for a new value or the end.
    Led(Watch),
}

impl Observer {
    /// Waits for the next leader or value.
    ///
    /// # Errors
    /// What any call may meet; asking again goes on.
    pub async fn next(&mut self) -> Result<KeyValue, Error> {
        loop {
            match &mut self.state {
                Observing::Look => {
                    if let Some(leader) = self.look().await? {
                        return Ok(leader);
                    }
                }
                Observing::Vacant(watch) => {
                    next_events(watch).await?;
                    self.state = Observing::Look;
                }
                Observing::Led(watch) => {
                    let events = next_events(watch).await?;
                    // A deleted key put anew stands at the end of the queue.
                    let only_puts = events.iter().all(|e| e.r#type() == EventType::Put);
                    match events.into_iter().next_back() {
                        Some(event) if only_puts => return event.kv.ok_or_else(malformed),
                        _ => self.state = Observing::Look,
                    }
                }
            }
        }
    }

    async fn look(&mut self) -> Result<Option<KeyValue>, Error> {
        let answer = self.client.range(head(&self.name)).await?;
        let start = Revision(answer.header.ok_or_else(malformed)?.revision + 1);
        let leader = answer.kvs.into_iter().next();
        let keys = match &leader {
            Some(kv) => KeyRange::single(kv.key.clone()),
            None => places(&self.name),
        };
        let watch = self.client.watch(WatchOptions::of(keys).from(start));
        let watch = watch.await.map_err(Error::from)?;
        self.state = match &leader {
            Some(_) => Observing::Led(watch),
            None => Observing::Vacant(watch),
        };
        Ok(leader)
    }
}

/// The next events; none when the history is gone, so that the caller looks anew.
async fn next_events(watch: &mut Watch) -> Result<Vec<Event>, Error> {
    loop {
        match watch.next().await {
            Ok(WatchUpdate::Events(events)) => return Ok(events),
            Ok(WatchUpdate::Progress(_)) => {}
            Err(WatchError::Compacted { .. }) => return Ok(Vec::new()),
            Err(WatchError::Refused(error)) => return Err(error),
        }
    }
}
