//! Room `env`: channels that behave alike in reality and in the simulator: tokio's mpsc, oneshot, mutex and
//! notify (they wake in order), and our own [`watch`], because tokio's wakes its receivers in random order
//! (DESIGN §3).

pub use tokio::sync::{Mutex, Notify, Semaphore, mpsc, oneshot};
