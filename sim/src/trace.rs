//! Room `sim`: the trace: a hash over every event that the simulator executed. Two runs of one seed must end
//! with the same hash; where they part, something reached outside the simulated world.

/// Running hash over events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    hash: u64,
    events: u64,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
        }
    }
}

/// What kind of event; the numbers only tell kinds apart inside one build.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Poll = 1,
    Timer,
    Event,
    Spawn,
    Kill,
    Restart,
    Pause,
    Clock,
    Disk,
    Crash,
    Dial,
    Message,
    Broken,
    Note,
}

impl Trace {
    pub(crate) fn event(&mut self, kind: Kind, words: &[u64]) {
        self.events += 1;
        self.word(kind as u64);
        for word in words {
            self.word(*word);
        }
    }

    fn word(&mut self, word: u64) {
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        let mixed = (self.hash ^ (self.hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    /// How many events are in it.
    pub fn events(&self) -> u64 {
        self.events
    }
}

/// A hash of bytes for traces; not for storage.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut trace = Trace::default();
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        trace.word(u64::from_le_bytes(word));
    }
    trace.word(bytes.len() as u64);
    trace.hash()
}
