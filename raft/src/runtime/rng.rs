//! Room `raft`: openraft's random numbers come from the node's own stream.

use rand::TryRng;
use std::convert::Infallible;
use std::sync::Arc;
use tenon_env::Rng;

/// The node's stream.
pub(crate) struct NodeRng(Arc<dyn Rng>);

impl NodeRng {
    pub(super) fn new(rng: Arc<dyn Rng>) -> NodeRng {
        NodeRng(rng)
    }
}

impl TryRng for NodeRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let [a, b, c, d, ..] = self.0.next_u64().to_le_bytes();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(dst);
        Ok(())
    }
}
