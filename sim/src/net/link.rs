//! Room `sim`: one direction between two nodes.

use super::NetState;
use super::pipe::{Pipe, PipeId};
use crate::NodeId;
use crate::chronicle::What;
use crate::executor::Life;
use crate::rng::SimRng;
use bytes::Bytes;

/// How long a lost message stays away before it is sent again, in nanoseconds: shortest and longest.
const RESEND: (u64, u64) = (200_000_000, 1_200_000_000);

/// Delays up to this are not worth a word, in nanoseconds.
const USUAL_MOST: u64 = 20_000_000;

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
    /// How many of a million messages (and dials) are lost for good; that breaks the message's stream.
    pub loss_ppm: u32,
    /// How many of a million messages are lost and sent again after `RESEND` nanoseconds, as TCP does; what
    /// follows on the stream waits behind them.
    pub resend_ppm: u32,
    /// How many of a million messages come twice. Not for streams of Tenon's members, see `net`.
    pub duplicate_ppm: u32,
    /// How many of a million messages may come before earlier ones of their stream. Not for streams of Tenon's
    /// members, see `net`.
    pub reorder_ppm: u32,
    /// Bytes per second that all streams of this direction share; 0 is no bound.
    pub bytes_per_second: u64,
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
            resend_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            bytes_per_second: 0,
            cut: false,
            clogged_until: 0,
            survives_cut_ppm: 500_000,
        }
    }
}

impl LinkConfig {
    /// What to say of a change from `before` to this.
    pub(super) fn told(
        &self,
        before: &LinkConfig,
        (from, to): (NodeId, NodeId),
        now: u64,
    ) -> Vec<What> {
        let mut told = Vec::new();
        match (before.cut, self.cut) {
            (false, true) => told.push(What::Cut(from, to)),
            (true, false) => told.push(What::Mended(from, to)),
            _ => {}
        }
        if self.clogged_until > before.clogged_until.max(now) {
            told.push(What::Clogged(from, to, self.clogged_until - now));
        }
        let quality = |link: &LinkConfig| LinkConfig {
            cut: false,
            clogged_until: 0,
            ..link.clone()
        };
        let (was, is) = (quality(before), quality(self));
        if was != is && is.is_bad() {
            told.push(What::Link(from, to, self.describe()));
        }
        told
    }

    /// Whether it is worse than links are now and then.
    fn is_bad(&self) -> bool {
        let spoiled = [
            self.loss_ppm,
            self.resend_ppm,
            self.duplicate_ppm,
            self.reorder_ppm,
        ];
        spoiled.iter().any(|ppm| *ppm > 0)
            || self.bytes_per_second > 0
            || self.delay.max > USUAL_MOST
    }

    fn describe(&self) -> String {
        let d = &self.delay;
        let mut text = format!("delay {}–{} µs", d.min / 1_000, d.max / 1_000);
        for (what, n) in [
            ("lost", self.loss_ppm),
            ("sent again", self.resend_ppm),
            ("twice", self.duplicate_ppm),
            ("out of order", self.reorder_ppm),
        ] {
            if n > 0 {
                text.push_str(&format!(", {n} ppm {what}"));
            }
        }
        if self.bytes_per_second > 0 {
            text.push_str(&format!(", {} bytes/s", self.bytes_per_second));
        }
        text
    }

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

    /// When a link of bounded bandwidth has taken up `bytes` more.
    fn occupy(&mut self, from: NodeId, to: NodeId, bytes: usize, now: u64) -> u64 {
        let bound = self.link(from, to).bytes_per_second;
        if bound == 0 {
            return now;
        }
        let took = u128::from(bytes as u64) * 1_000_000_000 / u128::from(bound);
        let free = self.busy.entry((from, to)).or_insert(0);
        *free = (*free).max(now).saturating_add(took as u64);
        *free
    }

    /// Puts a message that is not lost on its way.
    pub(super) fn carry(&mut self, id: PipeId, message: &Bytes, now: u64) {
        let pipe = &self.pipes[&id];
        let (from, to) = (pipe.from.node, pipe.to.node);
        let link = self.link(from, to).clone();
        let mut at = self.occupy(from, to, message.len(), now) + self.draw_delay(from, to);
        if self.rng.chance(link.resend_ppm) {
            at += self.rng.between(RESEND.0, RESEND.1);
            self.counts.resent += 1;
        }
        let passes = self.rng.chance(link.reorder_ppm);
        let twice = self.rng.chance(link.duplicate_ppm);
        let again = twice.then(|| at + self.draw_delay(from, to));
        let pipe = self.pipes.get_mut(&id).expect("present");
        match passes {
            true => self.counts.reordered += u64::from(pipe.push_past(at, message.clone())),
            false => pipe.push(at, message.clone()),
        }
        if let Some(again) = again {
            pipe.push_past(again, message.clone());
            self.counts.duplicated += 1;
        }
    }

    pub(super) fn add_pipes(&mut self, from: Life, to: Life) -> (PipeId, PipeId) {
        let (there, back) = (PipeId(self.next_pipe), PipeId(self.next_pipe + 1));
        self.next_pipe += 2;
        self.pipes.insert(there, Pipe::new(there, back, from, to));
        self.pipes.insert(back, Pipe::new(back, there, to, from));
        (there, back)
    }
}
