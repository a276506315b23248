//! Room `sim`: seeded random numbers. A stream of our own (SplitMix64), so that no update of a library ever
//! changes what a kept seed does. Every consumer forks a stream of its own: a draw in one place never moves
//! the draws of another.

use parking_lot::Mutex;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct SimRng {
    state: u64,
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SimRng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> SimRng {
        SimRng {
            state: mix(seed ^ 0x5851_f42d_4c95_7f2d),
        }
    }

    /// An independent stream for `purpose`; the same for the same seed and purpose, whatever was drawn.
    pub fn fork(seed: u64, purpose: &str, number: u64) -> SimRng {
        let mut state = mix(seed);
        for byte in purpose.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        SimRng {
            state: mix(state ^ mix(number)),
        }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Evenly from `0..bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to choose from");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Evenly from `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range {low}..={high}");
        low + self.below((high - low).saturating_add(1))
    }

    /// True in `per_million` of a million draws.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// The stream a node sees through its `Env`.
pub(crate) struct NodeRng(pub(crate) Mutex<SimRng>);

impl tenon_env::Rng for NodeRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}
