//! Room `env`: a channel that keeps the last value only. Like tokio's watch, but waiting receivers wake in
//! the order in which they began to wait, so that a simulated run repeats.
//!
//! - The version goes up by one with every value sent; a receiver remembers the version it saw last.
//! - A waiting receiver stands in the line once; it leaves it when woken or dropped.
//! - The line is locked after, never before, the value's lock is let go.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

struct Shared<T> {
    state: RwLock<State<T>>,
    line: Mutex<Line>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct State<T> {
    value: T,
    version: u64,
    closed: bool,
}

#[derive(Default)]
struct Line {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl<T> Shared<T> {
    fn wake_all(&self) {
        let woken = std::mem::take(&mut self.line.lock().waiting);
        for waker in woken.into_values() {
            waker.wake();
        }
    }
}

/// The value, locked for reading. Must be dropped before the next `await` and before any `send`.
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.value.fmt(f)
    }
}

/// The value was not taken because no receiver is left.
#[derive(Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// No sender is left, and the last value has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

impl std::fmt::Display for RecvError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the sender is gone")
    }
}

impl std::error::Error for RecvError {}

/// A channel that holds `value`, which the receiver counts as seen.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: RwLock::new(State {
            value,
            version: 0,
            closed: false,
        }),
        line: Mutex::new(Line::default()),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (
        Sender {
            shared: shared.clone(),
        },
        Receiver { shared, seen: 0 },
    )
}

/// Changes the value. The channel closes when the last sender is dropped.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// A channel without a receiver yet.
    pub fn new(value: T) -> Sender<T> {
        channel(value).0
    }

    /// Replaces the value and wakes every waiter; gives it back when no receiver is left.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.receiver_count() == 0 {
            return Err(SendError(value));
        }
        self.send_replace(value);
        Ok(())
    }

    /// Replaces the value, receivers or not, and returns the old one.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|held| std::mem::swap(held, &mut value));
        value
    }

    /// Changes the value in place and wakes every waiter.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Changes the value in place; wakes the waiters only when `modify` says that it did. Returns that.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut state = self.shared.state.write();
        if !modify(&mut state.value) {
            return false;
        }
        state.version += 1;
        drop(state);
        self.shared.wake_all();
        true
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.state.read())
    }

    /// A receiver that has seen the value now held.
    pub fn subscribe(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::SeqCst);
        let seen = self.shared.state.read().version;
        Receiver {
            shared: self.shared.clone(),
            seen,
        }
    }

    /// Receivers alive.
    pub fn receiver_count(&self) -> usize {
        self.shared.receivers.load(Ordering::SeqCst)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::SeqCst);
        Sender {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.shared.state.write().closed = true;
            self.shared.wake_all();
        }
    }
}

/// Sees the last value and waits for the next.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T> Receiver<T> {
    /// The value now; does not count it as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.state.read())
    }

    /// The value now, counted as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.state.read();
        self.seen = state.version;
        Ref(state)
    }

    /// Whether a value came that was not seen; an error once the sender is gone, as in tokio.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let state = self.shared.state.read();
        if state.closed {
            Err(RecvError)
        } else {
            Ok(state.version != self.seen)
        }
    }

    /// Makes the value held count as unseen.
    pub fn mark_changed(&mut self) {
        self.seen = self.shared.state.read().version.wrapping_sub(1);
    }

    /// Makes the value held count as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.state.read().version;
    }

    /// Waits for a value not seen yet and counts it as seen; at once when there is one. An error when
    /// every sender is gone and nothing is unseen. May be cancelled without loss.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        next_version(&self.shared, &mut self.seen).await
    }

    /// Waits until the value, the one held now included, fulfils `wanted`; counts it as seen. An error
    /// when every sender is gone and the last value does not fulfil it.
    pub async fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvError> {
        let shared = &self.shared;
        loop {
            if let Some(found) = look(shared, &mut self.seen, &mut wanted)? {
                return Ok(found);
            }
            next_version(shared, &mut self.seen).await?;
        }
    }

    /// Whether both ends belong to one channel.
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::SeqCst);
        Receiver {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One look of `wait_for`: the value when it is `wanted`, an error when none can come any more.
fn look<'a, T>(
    shared: &'a Shared<T>,
    seen: &mut u64,
    wanted: &mut impl FnMut(&T) -> bool,
) -> Result<Option<Ref<'a, T>>, RecvError> {
    let state = shared.state.read();
    *seen = state.version;
    if wanted(&state.value) {
        return Ok(Some(Ref(state)));
    }
    if state.closed {
        Err(RecvError)
    } else {
        Ok(None)
    }
}

async fn next_version<T>(shared: &Shared<T>, seen: &mut u64) -> Result<(), RecvError> {
    let (version, fresh) = Changed {
        shared,
        seen: *seen,
        place: None,
    }
    .await;
    *seen = version;
    if fresh { Ok(()) } else { Err(RecvError) }
}

/// Resolves to the version held and whether it is a new one.
struct Changed<'a, T> {
    shared: &'a Shared<T>,
    seen: u64,
    place: Option<u64>,
}

impl<T> Changed<'_, T> {
    fn look(&self) -> Option<(u64, bool)> {
        let state = self.shared.state.read();
        let fresh = state.version != self.seen;
        (fresh || state.closed).then_some((state.version, fresh))
    }
}

impl<T> Future for Changed<'_, T> {
    type Output = (u64, bool);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(u64, bool)> {
        if let Some(answer) = self.look() {
            return Poll::Ready(answer);
        }
        {
            let mut line = self.shared.line.lock();
            let place = self
                .place
                .filter(|p| line.waiting.contains_key(p))
                .unwrap_or_else(|| {
                    line.next += 1;
                    line.next
                });
            line.waiting.insert(place, cx.waker().clone());
            self.place = Some(place);
        }
        // A value sent between the look and the line has woken nobody: look again.
        match self.look() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.line.lock().waiting.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests;
