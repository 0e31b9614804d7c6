//! The sender: all levels at their constant rates, one packet after the other.

use headwater_wire::Cci;
use headwater_wire::cci::FlidSlCci;
use headwater_wire::fdt;

use super::INDICES;
use super::layers::Layers;
use crate::control::{Departure, SenderControl};
use crate::layering::Layering;
use crate::layering::spacing::Spacing;
use crate::machine::{ChannelId, Ecn};
use crate::time::Instant;

/// Sends on [`Layers`] as their schedule says, and never faster than 1.25 times their total rate.
///
/// A packet carries the slot, channel and trigger of its place in the schedule, even if it leaves some packets later.
/// Sequence numbers count what was sent on a channel, so a sender that fell behind leaves no holes that look like loss. Time per
/// packet: O(levels).
#[derive(Clone, Debug)]
pub struct Sender {
    layers: Layers,
    /// The next packet of each level.
    next: Vec<Next>,
    /// The level whose packet is the next of all.
    level: u16,
    /// The next sequence number of each channel.
    sequences: Vec<u16>,
    spacing: Spacing,
    description: Option<fdt::Control>,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    number: u64,
    at: Instant,
}

impl Sender {
    /// A sender whose first slot begins when that of `layers` does.
    pub fn new(layers: Layers) -> Self {
        let next = (0..layers.levels()).map(|level| Next { number: 0, at: layers.nth(level, 0) }).collect();
        let sequences = vec![0; layers.channels().into()];
        let mut sender =
            Self { layers, next, level: 0, sequences, spacing: Spacing::default(), description: None };
        sender.choose();
        sender
    }

    /// Tells receivers so of its layers: [`crate::described::Description::to_fdt`]. Default: nothing.
    #[must_use]
    pub fn with_description(mut self, description: Option<fdt::Control>) -> Self {
        self.description = description;
        self
    }

    /// The layers, to ask what they will send.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// When the schedule has the next packet leave.
    fn due(&self) -> Instant {
        self.next[usize::from(self.level)].at
    }

    fn slot(&self) -> u64 {
        self.layers.slot_at(self.due())
    }

    fn channel(&self) -> ChannelId {
        self.layers.channel_in(self.level, self.slot())
    }

    fn choose(&mut self) {
        let earliest = (0..).zip(&self.next).min_by_key(|(_, next)| next.at);
        self.level = earliest.map_or(0, |(level, _)| level);
    }

    /// Goes on with a level's packet of this number.
    fn advance(&mut self, level: u16, number: u64) {
        self.next[usize::from(level)] = Next { number, at: self.layers.nth(level, number) };
    }

    /// Gives up what should have left long ago.
    fn give_up(&mut self, now: Instant) {
        let before = Spacing::given_up_before(now);
        if self.due() >= before {
            return;
        }
        for level in 0..self.layers.levels() {
            if self.next[usize::from(level)].at < before {
                self.advance(level, self.layers.before(level, before));
            }
        }
        self.choose();
    }

    fn cci(&self) -> Cci {
        let (slot, ChannelId(channel)) = (self.slot(), self.channel());
        let cci = FlidSlCci {
            increase_trigger: self.layers.is_trigger(self.level, slot),
            slot: u8::try_from(slot % INDICES).expect("below 2^7"),
            group: u8::try_from(channel).expect("channels are checked to be at most 129"),
            sequence: self.sequences[usize::from(channel)],
        };
        cci.try_into().expect("the slot has seven bits")
    }
}

impl SenderControl for Sender {
    fn channels(&self) -> u16 {
        self.layers.channels()
    }

    fn levels(&self) -> u16 {
        self.layers.levels()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(&self.layers)
    }

    fn description(&self) -> Option<fdt::Control> {
        self.description.clone()
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.spacing.due(self.due()))
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        (self.spacing.due(self.due()) <= now).then(|| Departure {
            channel: self.channel(),
            level: self.level,
            at: self.due(),
            cci: self.cci(),
            ecn: Ecn::NotCapable,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        self.spacing.sent(now, self.due(), self.layers.rate_max());
        let ChannelId(channel) = self.channel();
        let sequence = &mut self.sequences[usize::from(channel)];
        *sequence = sequence.wrapping_add(1);
        let level = self.level;
        self.advance(level, self.next[usize::from(level)].number + 1);
        self.choose();
        self.give_up(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.give_up(now);
    }
}
