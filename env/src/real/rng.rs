//! Room `env`: randomness seeded once from the operating system.

use crate::Rng;
use parking_lot::Mutex;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng as _, SeedableRng};

/// A node's own generator behind a lock; draws are rare and short.
pub(super) struct RealRng(Mutex<StdRng>);

impl RealRng {
    /// # Panics
    /// When the operating system gives no random bytes: nothing sensible could follow.
    pub(super) fn new() -> RealRng {
        let rng = StdRng::try_from_rng(&mut SysRng).expect("the operating system gives randomness");
        RealRng(Mutex::new(rng))
    }
}

impl Rng for RealRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }

    fn fill(&self, buf: &mut [u8]) {
        self.0.lock().fill_bytes(buf);
    }
}
