//! Room `env`: randomness. Each node has a stream of its own, so that one node's draws never move another's.

/// A node's random numbers. Not for keys or certificates.
pub trait Rng: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
    /// Fills `buf` with random bytes.
    fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}
