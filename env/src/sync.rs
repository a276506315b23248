//! Room `env`: channels that behave alike in reality and in the simulator: tokio's mpsc, oneshot, mutex,
//! semaphore and notify (they wake in order), and our own [`watch`], because tokio's wakes its receivers in
//! random order (DESIGN §3).

pub mod watch;

pub use tokio::sync::{
    AcquireError, Mutex, MutexGuard, Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore,
    SemaphorePermit, TryAcquireError, TryLockError, mpsc, oneshot,
};
