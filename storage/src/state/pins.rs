//! Room storage, state: revisions that long reads stand on. Compaction's sweep waits for them, but not
//! for ever: a pin older than its time is broken, and its reader is told "compacted". Pure data.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_env::Instant;
use tenon_env::sync::Notify;

/// How long a read may hold up compaction's sweep.
pub(crate) const PIN_TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Held {
    revision: i64,
    since: Instant,
    broken: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Table {
    held: BTreeMap<u64, Held>,
    next: u64,
}

/// All pins of a store.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    table: Mutex<Table>,
    released: Notify,
}

/// A pinned revision; released on drop.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    id: u64,
    broken: Arc<AtomicBool>,
}

impl Pins {
    /// Pins `revision`. To be called under the store's lock, so that no sweep past it has begun.
    pub(crate) fn pin(self: &Arc<Pins>, revision: i64, now: Instant) -> Pin {
        let broken = Arc::new(AtomicBool::new(false));
        let mut table = self.table.lock();
        let id = table.next;
        table.next += 1;
        table.held.insert(
            id,
            Held {
                revision,
                since: now,
                broken: broken.clone(),
            },
        );
        Pin {
            pins: self.clone(),
            id,
            broken,
        }
    }

    /// Whether a sweep at `revision` must still wait; breaks pins whose time is over.
    pub(crate) fn hold_up(&self, revision: i64, now: Instant) -> bool {
        let mut table = self.table.lock();
        table.held.retain(|_, held| {
            let over = held.revision < revision && now.since(held.since) >= PIN_TIME_MAX;
            if over {
                held.broken.store(true, Ordering::Release);
            }
            !over
        });
        table.held.values().any(|held| held.revision < revision)
    }

    /// Breaks every pin: the state they stand on was replaced.
    pub(crate) fn break_all(&self) {
        for (_, held) in std::mem::take(&mut self.table.lock().held) {
            held.broken.store(true, Ordering::Release);
        }
    }

    /// Completes at the next release.
    pub(crate) fn released(&self) -> impl Future<Output = ()> + '_ {
        self.released.notified()
    }
}

impl Pin {
    /// Whether the pinned state may be gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.table.lock().held.remove(&self.id);
        self.pins.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_waits_for_older_reads_until_their_time_is_over() {
        let pins = Arc::new(Pins::default());
        let start = Instant(0);
        let pin = pins.pin(5, start);
        let newer = pins.pin(9, start);
        assert!(
            !pins.hold_up(5, start),
            "a read at the revision itself loses nothing"
        );
        assert!(pins.hold_up(6, start));
        assert!(pins.hold_up(6, start + PIN_TIME_MAX / 2));
        assert!(!pins.hold_up(6, start + PIN_TIME_MAX));
        assert!(pin.is_broken() && !newer.is_broken());
        drop(pin);
        drop(newer);
        assert!(!pins.hold_up(100, start));
    }
}
