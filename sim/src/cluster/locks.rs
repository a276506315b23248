//! Room `sim`, cluster: locks and elections as etcd's clients make them: a key per holder on the holder's lease;
//! the oldest key holds.

use super::client::{Client, Entry};
use crate::world::CallError;
use std::time::Duration;

/// Pause between looks at who is before us.
const PAUSE: Duration = Duration::from_millis(100);

/// A lock, held for as long as its key stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The key that stands for us.
    pub key: String,
    /// The revision of its creation: greater than that of every earlier holder, so a fence for writes.
    pub fence: i64,
    /// The lease it hangs on.
    pub lease: i64,
}

impl Client {
    /// Takes the lock `name` with a lease; waits while others hold it. Holding it says nothing about the next
    /// moment: guard writes with [`Client::put_if_created`].
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Refused`] with `LeaseNotFound` when the lease ended meanwhile.
    pub async fn lock(&self, name: &str, lease: i64) -> Result<Lock, CallError> {
        self.campaign(name, "", lease).await
    }

    /// Becomes the leader of the election `name`, with a word for others; waits while another leads.
    ///
    /// # Errors
    /// As [`Client::lock`].
    pub async fn campaign(&self, name: &str, word: &str, lease: i64) -> Result<Lock, CallError> {
        let (prefix, key) = (format!("{name}/"), format!("{name}/{lease:016x}"));
        let gone = CallError::Refused(tenon_proto::error::Error::LeaseNotFound);
        // Of an attempt with unknown outcome the key tells the truth.
        let asked = self.put_if_created((&key, 0), &key, word, lease).await;
        if let Err(error @ (CallError::Refused(_) | CallError::NotSent)) = asked {
            return Err(error);
        }
        loop {
            let (entries, _) = self.get_prefix(&prefix).await?;
            let ours = entries.iter().find(|e| e.key == key);
            let fence = ours.ok_or(gone.clone())?.created;
            if entries.iter().all(|e| e.created >= fence) {
                return Ok(Lock { key, fence, lease });
            }
            self.sleep(PAUSE).await;
        }
    }

    /// Who leads the election `name`, or holds the lock of that name.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn holder(&self, name: &str) -> Result<Option<Entry>, CallError> {
        let (entries, _) = self.get_prefix(&format!("{name}/")).await?;
        Ok(entries.into_iter().min_by_key(|e| e.created))
    }

    /// Gives up a lock or a leadership.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn unlock(&self, lock: &Lock) -> Result<(), CallError> {
        self.delete(&lock.key).await.map(|_| ())
    }
}
