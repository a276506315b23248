//! Room `sim`: one direction between two nodes.

use super::NetState;
use super::pipe::{Pipe, PipeId};
use crate::NodeId;
use crate::executor::Life;
use crate::rng::SimRng;

/// How long a message takes: evenly between the bounds, and now and then up to `tail`. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Shortest.
    pub min: u64,
    /// Longest but for the tail.
    pub max: u64,
    /// Longest of all.
    pub tail: u64,
    /// How many of a million messages are in the tail.
    pub tail_ppm: u32,
}

impl Delay {
    fn draw(&self, rng: &mut SimRng) -> u64 {
        match rng.chance(self.tail_ppm) {
            true => rng.between(self.max, self.tail.max(self.max)),
            false => rng.between(self.min, self.max.max(self.min)),
        }
    }
}

/// The state of one direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Time a message takes.
    pub delay: Delay,
    /// How many of a million messages (and dials) are lost; a lost message breaks its stream.
    pub loss_ppm: u32,
    /// Nothing passes.
    pub cut: bool,
    /// Nothing passes before this moment, in nanoseconds since the start of the simulation.
    pub clogged_until: u64,
    /// How many of a million streams with something held go on when a cut heals; the others break.
    pub survives_cut_ppm: u32,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        let delay = Delay {
            min: 100_000,
            max: 1_000_000,
            tail: 20_000_000,
            tail_ppm: 5_000,
        };
        LinkConfig {
            delay,
            loss_ppm: 0,
            cut: false,
            clogged_until: 0,
            survives_cut_ppm: 500_000,
        }
    }
}

impl LinkConfig {
    /// Whether something passes at `now`.
    pub(crate) fn is_open(&self, now: u64) -> bool {
        !self.cut && self.clogged_until <= now
    }
}

impl NetState {
    pub(crate) fn link(&self, from: NodeId, to: NodeId) -> &LinkConfig {
        self.links.get(&(from, to)).unwrap_or(&self.default)
    }

    pub(super) fn draw_delay(&mut self, from: NodeId, to: NodeId) -> u64 {
        let delay = self.link(from, to).delay;
        delay.draw(&mut self.rng)
    }

    pub(super) fn links_lose(&mut self, from: NodeId, to: NodeId) -> bool {
        let ppm = self.link(from, to).loss_ppm;
        self.rng.chance(ppm)
    }

    pub(super) fn add_pipes(&mut self, from: Life, to: Life) -> (PipeId, PipeId) {
        let (there, back) = (PipeId(self.next_pipe), PipeId(self.next_pipe + 1));
        self.next_pipe += 2;
        self.pipes.insert(there, Pipe::new(there, back, from, to));
        self.pipes.insert(back, Pipe::new(back, there, to, from));
        (there, back)
    }
}
