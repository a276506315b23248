//! Room `client`: locks, fair and fenced.

use crate::queue::Place;
use crate::session::Session;
use bytes::Bytes;
use tenon_proto::error::Error;
use tenon_proto::ids::Revision;

impl Session {
    /// Waits for the lock `name`, in order of arrival. Dropping the future gives the place up. One session
    /// holds a lock once: asking again gives a guard of the same place, whose dropping changes nothing.
    ///
    /// # Errors
    /// `SessionExpired` when the session is lost meanwhile; what any call may meet.
    pub async fn lock(&self, name: impl Into<Bytes>) -> Result<LockGuard, Error> {
        let place = Place::join(self, name.into(), Bytes::new()).await?;
        place.wait_for_turn(self).await?;
        Ok(LockGuard { place })
    }
}

/// A held lock. It holds only as long as its session does: whoever acts under it must also watch
/// [`Session::lost`], or hand [`LockGuard::revision`] to what it changes. Dropping it unlocks in the
/// background.
#[derive(Debug)]
pub struct LockGuard {
    place: Place,
}

impl LockGuard {
    /// The key that is the lock; it exists while the lock is held. Compare its create revision with
    /// [`LockGuard::revision`] in a transaction to write only as holder.
    pub fn key(&self) -> &Bytes {
        self.place.key()
    }

    /// The fencing number: every later holder of this lock has a larger one. A resource that remembers the
    /// largest number seen can refuse those who do not know yet that they lost the lock.
    pub fn revision(&self) -> Revision {
        self.place.created()
    }

    /// Unlocks and waits for it.
    ///
    /// # Errors
    /// What any write may meet; the lock is then free when the session's lease ends.
    pub async fn unlock(self) -> Result<(), Error> {
        self.place.leave().await
    }
}
