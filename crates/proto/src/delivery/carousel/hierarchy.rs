//! Order of sending on several levels: hierarchical buffers (Lucas et al. 2010, application scheduler).
//!
//! Time is divided into buffers, each as long as the base channel takes to send one packet. The sequencer
//! ranks all packets of a buffer, on all levels, so that a receiver of any rate receives the first places of
//! each buffer. Place i of buffer b is position b - f_i + x_i on the ring of all symbols, where x are the
//! application scheduler's offsets and f_i the packets without content at place i (FDT, authentication): a
//! receiver of the first L places goes round the ring at L points at once, as far apart as possible, and no
//! symbol is left out. A change of rate adds or removes the last points.
//!
//! Long blocks with repair symbols: the ring is divided at the points of a receiver of the highest rate. From
//! each point to the next, source symbols come first. No repair symbol is needed before half of that way,
//! while repair symbols are being made, and receivers of high rates decode little. All places together send
//! the symbols of each block in order, so that a receiver of any rate writes runs. To stay together, places
//! do not wait for packets without content (f = 0): a repair symbol replaces what is left out. LDPC, whose
//! order within a block is random, gains nothing.
//!
//! A rateless code never repeats a symbol: the ring only determines the next block. If all blocks are long
//! and of the same size, each channel cycles through the blocks independently. With places, the number of
//! places that a receiver gets would vary by one from buffer to buffer, some blocks would get slightly more
//! symbols than the rest, and the receiver would wait for the block that completes last. The cycle belongs to
//! a channel, not to a level: a receiver gets only the end of each slot of its highest level. If a slot had
//! as many packets as there are blocks, that end would always serve the same blocks.

use rand::RngExt as _;

use super::ring::Ring;
use super::{CarouselBlock, Start, Visit};
use crate::delivery::carousel::Offsets;
use crate::layering::Layering;
use crate::layering::sequencer::{Arrangement, Order};
use crate::machine::ChannelId;
use crate::time::{Duration, Instant};

/// Minimum length of a buffer: laying out a buffer costs as much time as about ten packets.
const BUFFER_MIN: Duration = Duration::from_millis(100);
/// Maximum length of a buffer, however slow the base channel is.
const BUFFER_MAX: Duration = Duration::from_secs(10);
/// Maximum number of places in a buffer with separate offsets: 10 s at 150 Mbit/s, or 100 ms at 15 Gbit/s.
/// Places beyond the maximum reuse the offsets.
const PLACES_MAX: usize = 1 << 17;

/// Minimum number of symbols in a long block: each channel cycles through long blocks many times until the
/// blocks are whole.
const LONG_BLOCK: u32 = 1_000;

/// Symbols of a session in hierarchical buffers.
///
/// Memory: 24 bytes a block and the memory of the ring; 8 bytes a channel, or, if packets go by places, 32
/// bytes for each packet of a buffer, 8 bytes for each place with an offset of its own (at most 2^17), and 24
/// bytes for each level and boundary in the buffer. Time per packet: O(1) plus the time of the ring; once a
/// buffer O(levels log levels). No allocation per packet after the first buffer at the highest rate.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    blocks: Vec<CarouselBlock>,
    /// Blocks that are sent, by position in the ring.
    live: Vec<u32>,
    ring: Ring,
    offsets: Offsets,
    /// Position of place 0 of buffer 0 on the ring.
    first: u64,
    /// Number of places of a receiver of the highest rate, once known.
    places: Option<u32>,
    /// Time since the first buffer of a session that never ended, at the start of this session.
    clock: Option<Duration>,
    /// Next fresh symbol of each rateless block.
    fresh: Vec<u32>,
    /// Number of fresh symbols sent, over all blocks.
    fresh_sent: u64,
    /// Content packets sent on each channel; `None` unless each channel cycles through the blocks
    /// independently.
    sent: Option<Vec<u64>>,
    arrangement: Arrangement,
    /// Length of a buffer, once the base channel's rate is known.
    time: Option<Duration>,
    /// f: packets without content at each place, if there are no repair symbols. A symbol left out would come
    /// only with another place.
    without_content: Vec<u64>,
    /// b: number of buffers begun, minus 1.
    buffer: u64,
    /// Packets of this buffer that the layering did not count.
    uncounted: u64,
    pass_symbols: u64,
}

/// Place in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// b: number of the buffer.
    pub buffer: u64,
    /// i: rank in the buffer; every receiver gets place 0.
    pub index: u64,
    /// Channel of the packet.
    pub channel: ChannelId,
}

impl Hierarchy {
    /// Creates an order of sending over `blocks`.
    ///
    /// # Panics
    /// When a block has no symbols, or fewer encoding symbols than source symbols.
    pub fn new(blocks: Vec<CarouselBlock>) -> Self {
        Self::starting(blocks, Start::First)
    }

    /// Creates an order of sending over `blocks` that begins at `start`.
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
            places: None,
            clock: start.clock(),
            sent: None,
            fresh: start.first_symbols(&blocks, None),
            fresh_sent: 0,
            pass_symbols: 0,
            blocks,
            arrangement: Arrangement::default(),
            time: None,
            without_content: Vec::new(),
            buffer: 0,
            uncounted: 0,
        };
        hierarchy.lay_ring();
        hierarchy.first = first_position(&hierarchy.ring, start);
        hierarchy
    }

    /// Stops sending the blocks that `keeps` rejects; the fresh symbols of the remaining blocks continue.
    pub fn retain(&mut self, keeps: impl Fn(u32) -> bool) {
        let (sent, before) = (u128::from(self.fresh_sent), self.pass_symbols.max(1));
        self.live.retain(|block| keeps(*block));
        self.lay_ring();
        // The share of the remaining blocks.
        let sent = sent * u128::from(self.pass_symbols) / u128::from(before);
        self.fresh_sent = u64::try_from(sent).expect("no more than before");
    }

    /// Adds blocks, which are sent once [`Self::select`] selects them.
    ///
    /// # Panics
    /// As [`Hierarchy::new`].
    pub(in crate::delivery) fn extend(&mut self, blocks: &[CarouselBlock]) {
        super::check(blocks);
        self.blocks.extend_from_slice(blocks);
        self.fresh.resize(self.blocks.len(), 0);
    }

    /// Sends the blocks that `selects` accepts, each from its next fresh symbol on, and no others.
    pub(in crate::delivery) fn select(&mut self, selects: impl Fn(u32) -> bool) {
        let end = u32::try_from(self.blocks.len()).expect("a session has below 2^32 blocks");
        self.live = (0..end).filter(|block| selects(*block)).collect();
        self.lay_ring();
        self.fresh_sent = self.live.iter().map(|block| u64::from(self.fresh[*block as usize])).sum();
    }

    /// Lays out the ring of the blocks that are sent.
    fn lay_ring(&mut self) {
        let blocks: Vec<_> = self.live.iter().map(|block| self.blocks[*block as usize]).collect();
        self.ring = Ring::new(&blocks);
        self.without_content.clear();
        let is_long = |block: &CarouselBlock| block.symbols >= LONG_BLOCK;
        let are_long = self.ring.is_of_blocks() && blocks.iter().all(is_long);
        let are_rateless = blocks.iter().all(|block| block.rateless);
        self.sent = (are_long && are_rateless).then(Vec::new);
        if let Some(places) = self.places.filter(|_| are_long) {
            self.ring.divide(places);
        }
        // Channels begin at the same offsets on the ring as places.
        let places = if self.sent.is_some() { blocks.len() as u64 } else { self.ring.points() };
        self.offsets = Offsets::new(places.max(1));
        self.pass_symbols = blocks.iter().map(|block| u64::from(block.symbols)).sum();
    }

    /// Number of source symbols in the session.
    pub fn pass_symbols(&self) -> u64 {
        self.pass_symbols
    }

    /// Returns a block.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn block(&self, block: u32) -> CarouselBlock {
        self.blocks[block as usize]
    }

    /// Returns the place of a level's next packet, which leaves at `at` by the layering's schedule. The
    /// caller asks once for each packet, whatever the packet carries.
    pub fn place(&mut self, layering: &dyn Layering, level: u16, at: Instant) -> Place {
        let channel = layering.channel(level, at);
        if self.sent.is_some() {
            return Place { buffer: 0, index: 0, channel };
        }
        if self.time.is_none_or(|_| at >= self.arrangement.end()) {
            self.begin(layering, at);
        }
        let index = self.arrangement.next(level, at).map(|pdu| pdu.number);
        // A packet that the control sends without having counted it gets a place of least value.
        let index = index.unwrap_or_else(|| {
            self.uncounted += 1;
            self.arrangement.packets() + self.uncounted - 1
        });
        let place = Place { buffer: self.buffer, index, channel };
        self.take(place);
        place
    }

    /// Counts a packet as one without content, until its place is visited.
    fn take(&mut self, place: Place) {
        if self.ring.has_repair() {
            return;
        }
        let index = ring_place(place);
        if self.without_content.len() <= index {
            self.without_content.resize(index + 1, 0);
        }
        self.without_content[index] += 1;
    }

    fn begin(&mut self, layering: &dyn Layering, at: Instant) {
        let (time, start) = match self.time {
            None => {
                let time = buffer_time(layering, at);
                self.places = layering.most_packets(time).map(places);
                self.lay_ring();
                if let Some(clock) = self.clock {
                    let past = clock.as_nanos().saturating_add(at.as_nanos()) / time.as_nanos();
                    self.first = past.checked_rem(self.ring.positions()).unwrap_or(0);
                }
                (time, at)
            }
            Some(time) => {
                self.buffer += 1;
                let end = self.arrangement.end();
                // Buffers missed during a silence are not made up for.
                (time, if at < end + time { end } else { at })
            }
        };
        self.time = Some(time);
        self.uncounted = 0;
        // As many parts as packets: the limit is beyond any possible number.
        self.arrangement.lay(layering, start, time, u64::MAX, Order::Tiles, None);
    }

    /// Returns the symbol for the packet at a place; `None` if there are no blocks.
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
        if let Some(without_content) = self.without_content.get_mut(ring_place(place)) {
            *without_content = without_content.saturating_sub(1);
        }
        let CarouselBlock { encoding_symbols: n, rateless, .. } = self.blocks[block as usize];
        if rateless {
            return Some(self.fresh_symbol(block));
        }
        let esi = u32::try_from(number % u64::from(n)).expect("below n, a u32");
        Some(Visit { block, esi })
    }

    /// Returns the block at a place and a number among the block's symbols, if blocks have places on the
    /// ring.
    fn block_at(&mut self, place: Place) -> Option<(u32, u64)> {
        let positions = self.ring.positions();
        let index = ring_place(place);
        // The packet of this place counts as one without content until the place is visited.
        let without_content = self.without_content.get(index).map_or(0, |count| count.saturating_sub(1));
        let round = place.buffer.saturating_sub(without_content).checked_rem(positions)?;
        let position = self.first + round + self.ring.point(self.offsets.get(index));
        let (live, number) = self.ring.at(position % positions);
        Some((self.live[live], number))
    }

    /// Whether the packet at a place may be omitted. A block of one symbol that has received no more than its
    /// share must not be omitted: no other symbol replaces the packet, and receivers of many small files
    /// would wait for the last file.
    pub fn can_spare(&mut self, place: Place) -> bool {
        if self.sent.is_some() {
            return true;
        }
        let Some((block, _)) = self.block_at(place) else { return true };
        let CarouselBlock { symbols, rateless, .. } = self.blocks[block as usize];
        let had = u128::from(self.fresh[block as usize]) * u128::from(self.pass_symbols);
        !rateless || symbols > 1 || had > self.fresh_sent.into()
    }

    /// Returns the next symbol of a rateless block.
    fn fresh_symbol(&mut self, block: u32) -> Visit {
        let fresh = &mut self.fresh[block as usize];
        let esi = *fresh;
        *fresh = (esi + 1) % self.blocks[block as usize].encoding_symbols;
        self.fresh_sent += 1;
        Visit { block, esi }
    }
}

/// Returns the index of a place among those with separate offsets.
fn ring_place(place: Place) -> usize {
    usize::try_from(place.index).unwrap_or(usize::MAX) % PLACES_MAX
}

/// Returns the number of places with separate offsets for so many packets in a buffer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^17, and positive")]
fn places(packets: f64) -> u32 {
    packets.min(PLACES_MAX as f64) as u32
}

/// Draws the position on the ring at which a session begins.
fn first_position(ring: &Ring, start: Start) -> u64 {
    let drawn = start.draw().filter(|_| ring.positions() > 0);
    drawn.map_or(0, |mut draw| draw.random_range(0..ring.positions()))
}

/// Returns the time in which the base channel sends one packet, within the bounds of a buffer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^63, and positive")]
fn buffer_time(layering: &dyn Layering, at: Instant) -> Duration {
    let nanos = 1e9 / layering.cumulative_rate(0, at).max(f64::MIN_POSITIVE);
    Duration::from_nanos(nanos.min(1e18) as u64).clamp(BUFFER_MIN, BUFFER_MAX)
}

#[cfg(test)]
mod tests;
