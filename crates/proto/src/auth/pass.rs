//! Passes: a hash chain in the signatures of each channel. A pass only selects the signatures that deserve a
//! check.
//!
//! Chain c covers the numbers c * [`CHAIN`] + 1 to (c + 1) * [`CHAIN`]. The pass before a chain's first one
//! is the chain's anchor, which every signature of the chain before carries. So a change of chains costs a
//! receiver no unselected check.

use headwater_wire::auth::Pass;

use super::hash::SessionKeys;
use crate::machine::ChannelId;

/// Signatures for each chain. Two chains take 1 ms of a sender's processor when a channel starts.
pub(crate) const CHAIN: u32 = 1 << 12;
/// Distance between stored passes.
const CHECKPOINT: u32 = 1 << 6;
/// Most numbers between two verified signatures such that the pass of the later one fits.
pub(crate) const STEPS_MAX: u32 = 16;

/// Largest number of a signature: 14 days at 1 Gbit/s, after which a sender starts a new session.
pub(crate) const NUMBER_MAX: u32 = u32::MAX - 4 * CHAIN;

const STORED: usize = (CHAIN / CHECKPOINT) as usize;

/// Number before the first number of the chain of `number`.
fn anchor_number(number: u32) -> u32 {
    (number - 1) / CHAIN * CHAIN
}

/// Stored passes of a chain, one in each [`CHECKPOINT`] numbers, with the anchor.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// Number of the anchor.
    start: u32,
    /// Passes of the numbers start + CHECKPOINT, start + 2 * CHECKPOINT, ...
    stored: [Pass; STORED],
    /// Pass of the number `at`, which falls to the anchor's number while the chain is computed.
    last: Pass,
    at: u32,
}

impl Chain {
    fn new(secret: &[u8; 32], channel: ChannelId, start: u32) -> Self {
        let at = start + CHAIN;
        let last = SessionKeys::last_pass(secret, channel, at);
        let mut chain = Self { start, stored: [[0; 6]; STORED], last, at };
        chain.store();
        chain
    }

    fn store(&mut self) {
        let offset = self.at - self.start;
        if offset > 0 && offset.is_multiple_of(CHECKPOINT) {
            self.stored[(offset / CHECKPOINT) as usize - 1] = self.last;
        }
    }

    /// Computes so many passes; none below the anchor.
    fn step(&mut self, keys: &SessionKeys, channel: ChannelId, steps: u32) {
        for _ in 0..steps.min(self.at - self.start) {
            self.last = keys.previous_pass(channel, self.at, self.last);
            self.at -= 1;
            self.store();
        }
    }
}

/// Passes of a sender's channel, in at most 3 kB.
#[derive(Debug)]
pub(crate) struct PassChain {
    channel: ChannelId,
    secret: [u8; 32],
    current: Chain,
    next: Chain,
    /// Chain after the next, computed by one step for each signature.
    growing: Chain,
    /// Passes of the current segment between two stored passes.
    segment: [Pass; CHECKPOINT as usize],
    /// First number of the segment; 0 for none.
    segment_start: u32,
}

impl PassChain {
    /// Computes two chains.
    pub(crate) fn new(keys: &SessionKeys, secret: [u8; 32], channel: ChannelId) -> Self {
        let whole = |start| {
            let mut chain = Chain::new(&secret, channel, start);
            chain.step(keys, channel, CHAIN);
            chain
        };
        let segment = [[0; 6]; CHECKPOINT as usize];
        let growing = Chain::new(&secret, channel, 2 * CHAIN);
        let (current, next) = (whole(0), whole(CHAIN));
        Self { channel, secret, current, next, growing, segment, segment_start: 0 }
    }

    /// Returns the pass of a number and the anchor of the next chain. Numbers come in order, each once.
    pub(crate) fn pass(&mut self, keys: &SessionKeys, number: u32) -> (Pass, Pass) {
        if anchor_number(number) != self.current.start {
            self.growing.step(keys, self.channel, CHAIN);
            let start = self.growing.start + CHAIN;
            let grown = core::mem::replace(&mut self.growing, Chain::new(&self.secret, self.channel, start));
            self.current = core::mem::replace(&mut self.next, grown);
        }
        self.growing.step(keys, self.channel, 1);
        let offset = number - 1 - self.current.start;
        let within = offset % CHECKPOINT;
        if self.segment_start != number - within {
            self.segment_start = number - within;
            self.fill_segment(keys, offset / CHECKPOINT);
        }
        (self.segment[within as usize], self.next.last)
    }

    fn fill_segment(&mut self, keys: &SessionKeys, segment: u32) {
        let mut pass = self.current.stored[segment as usize];
        let numbers = self.segment_start..self.segment_start + CHECKPOINT;
        for (number, place) in numbers.zip(&mut self.segment).rev() {
            *place = pass;
            pass = keys.previous_pass(self.channel, number, pass);
        }
    }
}

/// The last verified signature of a receiver's channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub(crate) number: u32,
    pub(crate) pass: Pass,
    pub(crate) next_pass: Pass,
}

impl Reference {
    /// Returns whether the pass of a later signature fits: at most [`STEPS_MAX`] hashes.
    pub(crate) fn fits(&self, keys: &SessionKeys, channel: ChannelId, later: &Self) -> bool {
        let steps = later.number.wrapping_sub(self.number);
        if later.number <= self.number || steps > STEPS_MAX {
            return false;
        }
        let anchor = anchor_number(later.number);
        let is_same_chain = anchor_number(self.number) == anchor;
        let (end, expected) = if is_same_chain { (self.number, self.pass) } else { (anchor, self.next_pass) };
        let walked = (end + 1..=later.number)
            .rev()
            .fold(later.pass, |pass, number| keys.previous_pass(channel, number, pass));
        walked == expected && (!is_same_chain || self.next_pass == later.next_pass)
    }
}
