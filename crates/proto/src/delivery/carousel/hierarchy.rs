//! The order of sending on several levels: hierarchical buffers (Lucas et al. 2010, application scheduler).
//!
//! Time is cut into buffers, as long as the base takes for one packet. All packets of a buffer, on all
//! levels, are ranked by the sequencer, so that a receiver of any rate has the first so many of each buffer.
//! Place i of buffer b is position b + x_i of the ring of all symbols, x being the application scheduler's
//! offsets: who has the first L places goes round the ring at L points at once, as far apart as they can be.
//! A change of rate adds or takes away the last points.
//!
//! Symbols of a rateless code are never sent twice: there the ring only says which block is next. Where all
//! blocks are long and of one size each channel goes round them by itself: the first places of a buffer are
//! now one more and now one less, by which some blocks would get a little more than others, and the last one
//! to be whole keeps a receiver waiting. Not each level: of its highest one a receiver has the end of each
//! slot, which would always be the same blocks' where a slot has as many packets as there are blocks.

use rand::RngExt as _;

use super::ring::Ring;
use super::{CarouselBlock, Start, Visit};
use crate::delivery::offsets::Offsets;
use crate::layering::Layering;
use crate::layering::sequencer::{Arrangement, Order};
use crate::machine::ChannelId;
use crate::time::{Duration, Instant};

/// A buffer is no shorter: laying one out costs as much as some ten packets.
const BUFFER_MIN: Duration = Duration::from_millis(100);
/// And no longer, however slow the base is.
const BUFFER_MAX: Duration = Duration::from_secs(10);
/// Most places of a buffer that have an offset of their own: 10 s at 150 Mbit/s, or 100 ms at 15 Gbit/s.
/// Those beyond share them.
const PLACES_MAX: usize = 1 << 17;

/// Least symbols of a block that are long: each channel goes round such blocks many times until they are
/// whole.
const LONG_BLOCK: u32 = 1_000;

/// The symbols of a session in hierarchical buffers.
///
/// Memory: 24 bytes a block and what the ring takes; 8 a channel, or, where packets go by places, 32 bytes
/// for each packet of a buffer, 24 for each level and boundary in it. Time per packet: O(1) beside what the
/// ring takes; once a buffer O(levels log levels). No allocation per packet once a buffer of the highest rate
/// has been sent.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    blocks: Vec<CarouselBlock>,
    /// The blocks that are sent, by their place in the ring.
    live: Vec<u32>,
    ring: Ring,
    offsets: Offsets,
    /// Position of place 0 of buffer 0 on the ring.
    first: u64,
    /// Next fresh symbol of each rateless block.
    fresh: Vec<u32>,
    /// Fresh symbols of all blocks.
    fresh_sent: u64,
    /// Where each channel goes round the blocks by itself: packets of content that it has sent.
    sent: Option<Vec<u64>>,
    arrangement: Arrangement,
    /// Length of a buffer, once the base's rate is known.
    time: Option<Duration>,
    /// b: buffers begun, less 1.
    buffer: u64,
    /// Packets of this buffer that the layering did not count.
    uncounted: u64,
    pass_symbols: u64,
}

/// A place in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// b: the buffer's number.
    pub buffer: u64,
    /// i: 0 is what every receiver has.
    pub index: u64,
    /// The channel whose packet it is.
    pub channel: ChannelId,
}

impl Hierarchy {
    /// The order of sending of `blocks`.
    ///
    /// # Panics
    /// When a block has no symbols, or fewer encoding symbols than source symbols.
    pub fn new(blocks: Vec<CarouselBlock>) -> Self {
        Self::starting(blocks, Start::First)
    }

    /// The same from another start on.
    ///
    /// # Panics
    /// As [`Hierarchy::new`].
    pub fn starting(blocks: Vec<CarouselBlock>, start: Start) -> Self {
        super::check(&blocks);
        let live = (0..u32::try_from(blocks.len()).expect("a session has below 2^32 blocks")).collect();
        let mut hierarchy = Self {
            live,
            ring: Ring::new(&[]),
            offsets: Offsets::new(1),
            first: 0,
            sent: None,
            fresh: start.first_symbols(&blocks),
            fresh_sent: 0,
            pass_symbols: 0,
            blocks,
            arrangement: Arrangement::default(),
            time: None,
            buffer: 0,
            uncounted: 0,
        };
        hierarchy.lay_ring();
        hierarchy.first = first_position(&hierarchy.ring, start);
        hierarchy
    }

    /// Stops sending the blocks that `keeps` refuses; fresh symbols of the others go on where they are.
    pub fn retain(&mut self, keeps: impl Fn(u32) -> bool) {
        let (sent, before) = (u128::from(self.fresh_sent), self.pass_symbols.max(1));
        self.live.retain(|block| keeps(*block));
        self.lay_ring();
        // The share of those that are left.
        let sent = sent * u128::from(self.pass_symbols) / u128::from(before);
        self.fresh_sent = u64::try_from(sent).expect("no more than before");
    }

    /// Lays the ring of the blocks that are sent.
    fn lay_ring(&mut self) {
        let blocks: Vec<_> = self.live.iter().map(|block| self.blocks[*block as usize]).collect();
        self.ring = Ring::new(&blocks);
        let is_long = |block: &CarouselBlock| block.rateless && block.symbols >= LONG_BLOCK;
        self.sent = (self.ring.is_of_blocks() && blocks.iter().all(is_long)).then(Vec::new);
        // Channels begin as far apart on the ring as its places are.
        let places = if self.sent.is_some() { blocks.len() as u64 } else { self.ring.positions() };
        self.offsets = Offsets::new(places.max(1));
        self.pass_symbols = blocks.iter().map(|block| u64::from(block.symbols)).sum();
    }

    /// Source symbols of the session.
    pub fn pass_symbols(&self) -> u64 {
        self.pass_symbols
    }

    /// A block as it was given.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn block(&self, block: u32) -> CarouselBlock {
        self.blocks[block as usize]
    }

    /// The place of the next packet of a level, which leaves at `at` by the layering's schedule. To be asked
    /// once for each, whatever it carries.
    pub fn place(&mut self, layering: &dyn Layering, level: u16, at: Instant) -> Place {
        let channel = layering.channel(level, at);
        if self.sent.is_some() {
            return Place { buffer: 0, index: 0, channel };
        }
        if self.time.is_none_or(|_| at >= self.arrangement.end()) {
            self.begin(layering, at);
        }
        let index = self.arrangement.next(level, at).map(|pdu| pdu.number);
        // A control that sends what it did not count sends what is worth least.
        let index = index.unwrap_or_else(|| {
            self.uncounted += 1;
            self.arrangement.packets() + self.uncounted - 1
        });
        Place { buffer: self.buffer, index, channel }
    }

    fn begin(&mut self, layering: &dyn Layering, at: Instant) {
        let (time, start) = match self.time {
            None => (buffer_time(layering, at), at),
            Some(time) => {
                self.buffer += 1;
                let end = self.arrangement.end();
                // A silence of buffers is not made up for.
                (time, if at < end + time { end } else { at })
            }
        };
        self.time = Some(time);
        self.uncounted = 0;
        // As many parts as packets, and more than there can be.
        self.arrangement.lay(layering, start, time, u64::MAX, Order::Tiles);
    }

    /// What the packet at a place carries; `None` when there are no blocks at all.
    pub fn visit(&mut self, place: Place) -> Option<Visit> {
        if let Some(sent) = &mut self.sent {
            let channel = usize::from(place.channel.0);
            if sent.len() <= channel {
                sent.resize(channel + 1, 0);
            }
            let position = sent[channel] + self.offsets.get(channel);
            sent[channel] += 1;
            let place = usize::try_from(position.checked_rem(self.live.len() as u64)?).ok()?;
            return Some(self.fresh_symbol(self.live[place]));
        }
        let (block, number) = self.block_at(place)?;
        let CarouselBlock { encoding_symbols: n, rateless, .. } = self.blocks[block as usize];
        if rateless {
            return Some(self.fresh_symbol(block));
        }
        let esi = u32::try_from(number % u64::from(n)).expect("below n, a u32");
        Some(Visit { block, esi })
    }

    /// The block at a place, and a number among its symbols, where blocks have places on the ring.
    fn block_at(&mut self, place: Place) -> Option<(u32, u64)> {
        let positions = self.ring.positions();
        let index = usize::try_from(place.index).unwrap_or(usize::MAX) % PLACES_MAX;
        let position = self.first + place.buffer.checked_rem(positions)? + self.offsets.get(index);
        let (live, number) = self.ring.at(position % positions);
        Some((self.live[live], number))
    }

    /// Whether the packet at a place can be left out: not where it is of a block of one symbol that has had
    /// no more than its share, as nothing else stands for it, and receivers of many small files would wait
    /// for the last one.
    pub fn can_spare(&mut self, place: Place) -> bool {
        if self.sent.is_some() {
            return true;
        }
        let Some((block, _)) = self.block_at(place) else { return true };
        let CarouselBlock { symbols, rateless, .. } = self.blocks[block as usize];
        let had = u128::from(self.fresh[block as usize]) * u128::from(self.pass_symbols);
        !rateless || symbols > 1 || had > self.fresh_sent.into()
    }

    /// The next symbol of a rateless block.
    fn fresh_symbol(&mut self, block: u32) -> Visit {
        let fresh = &mut self.fresh[block as usize];
        let esi = *fresh;
        *fresh = (esi + 1) % self.blocks[block as usize].encoding_symbols;
        self.fresh_sent += 1;
        Visit { block, esi }
    }
}

/// Draws where on the ring a session begins.
fn first_position(ring: &Ring, start: Start) -> u64 {
    let drawn = start.draw().filter(|_| ring.positions() > 0);
    drawn.map_or(0, |mut draw| draw.random_range(0..ring.positions()))
}

/// The time in which the base sends one packet.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^63, and positive")]
fn buffer_time(layering: &dyn Layering, at: Instant) -> Duration {
    let nanos = 1e9 / layering.cumulative_rate(0, at).max(f64::MIN_POSITIVE);
    Duration::from_nanos(nanos.min(1e18) as u64).clamp(BUFFER_MIN, BUFFER_MAX)
}

#[cfg(test)]
mod tests;
