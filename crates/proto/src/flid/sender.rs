//! The sender: all levels at their constant rates, packet by packet.

use headwater_wire::Cci;
use headwater_wire::cci::FlidSlCci;
use headwater_wire::fdt;
use headwater_wire::rtt::Message;

use super::INDICES;
use super::layers::Layers;
use crate::auth::lead;
use crate::control::{DemandRates, DemandStatus, Departure, Overload, SenderControl};
use crate::layering::Layering;
use crate::layering::turns::{Schedule, Turns};
use crate::machine::{ChannelId, Datagram, Ecn};
use crate::time::{Duration, Instant};

/// Sends on [`Layers`] by their schedule, at most at 1.25 times their total rate. A driver that cannot send
/// all levels sends the lowest levels.
///
/// A packet carries the slot, channel and trigger of its place in the schedule, even if the packet leaves
/// some packets later. Sequence numbers count the packets sent on a channel, so a sender that falls behind
/// leaves no holes that look like loss. Time per packet: O(levels).
#[derive(Clone, Debug)]
pub struct FlidSender {
    turns: Turns<Layers>,
    /// Next sequence number of each channel.
    sequences: Vec<u16>,
    /// Lead of the schedule.
    lead: Duration,
    description: Option<fdt::ControlAttributes>,
}

impl FlidSender {
    /// Returns a sender whose first slot begins at the start of `layers`.
    pub fn new(layers: Layers) -> Self {
        let sequences = vec![0; layers.channels().into()];
        let lead = lead(layers.rate_max(), layers.channels());
        Self { turns: Turns::new(layers), sequences, lead, description: None }
    }

    /// Sets the description of the layers for receivers: [`crate::described::Description::to_fdt`]. Default:
    /// none.
    #[must_use]
    pub fn with_description(mut self, description: Option<fdt::ControlAttributes>) -> Self {
        self.description = description;
        self
    }

    /// Returns the layers, with the schedule of future packets.
    pub fn layers(&self) -> &Layers {
        self.turns.schedule()
    }

    fn slot(&self) -> u64 {
        self.layers().slot_at(self.turns.at())
    }

    fn channel(&self) -> ChannelId {
        self.layers().channel_in(self.turns.level(), self.slot())
    }

    fn cci(&self) -> Cci {
        let (slot, ChannelId(channel)) = (self.slot(), self.channel());
        let cci = FlidSlCci {
            // No receiver may rise above the sent levels.
            increase_trigger: self.turns.level() < self.turns.ceiling().level()
                && self.layers().is_trigger(self.turns.level(), slot),
            slot: u8::try_from(slot % INDICES).expect("below 2^7"),
            group: u8::try_from(channel).expect("channels are checked to be at most 129"),
            sequence: self.sequences[usize::from(channel)],
        };
        cci.try_into().expect("the slot has seven bits")
    }
}

impl SenderControl for FlidSender {
    fn channels(&self) -> u16 {
        self.layers().channels()
    }

    fn levels(&self) -> u16 {
        self.layers().level_count()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(self.layers())
    }

    fn description(&self) -> Option<fdt::ControlAttributes> {
        self.description.clone()
    }

    fn lead(&self) -> Duration {
        self.turns.ceiling().lead(self.lead)
    }

    fn overload(&self) -> Option<Overload> {
        self.turns.overload()
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.turns.due())
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        (self.turns.due() <= now).then(|| Departure {
            channel: self.channel(),
            level: self.turns.level(),
            at: self.turns.at(),
            cci: self.cci(),
            ecn: Ecn::NotCapable,
            levels: self.turns.ceiling().announced(self.turns.number()),
            tells_levels: self.turns.level() == 0,
            lateness: None,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        let ChannelId(channel) = self.channel();
        let sequence = &mut self.sequences[usize::from(channel)];
        *sequence = sequence.wrapping_add(1);
        self.turns.departed(now);
    }

    fn follow_demand(&mut self, rates: DemandRates) {
        self.turns.follow_demand(rates);
    }

    fn demand(&self) -> Option<DemandStatus> {
        self.turns.ceiling().status()
    }

    fn slack(&self) -> Duration {
        self.turns.ceiling().slack()
    }

    fn on_full_link(&mut self, packets_per_second: f64) {
        self.turns.on_full_link(packets_per_second);
    }

    fn feedback(&mut self, now: Instant, datagram: &Datagram<'_>) {
        if datagram.channel.is_none()
            && let Ok(Message::Report(report)) = Message::parse(datagram.payload)
        {
            self.turns.report(now, report);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.turns.give_up(now);
    }
}
