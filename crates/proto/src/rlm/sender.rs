//! The sending end: layers at constant rates.

use headwater_wire::Cci;
use headwater_wire::cci::FlidSlCci;

use super::{ANNOUNCEMENT, Config};
use crate::control::{Departure, SenderControl};
use crate::layering::turns::Turns;
use crate::layering::{Layering, StaticLayers};
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
use crate::rate::Rate;
use crate::time::Instant;

/// Sends on all layers as they are due. Congestion control information is FLID-SL's, without slots; an announcement has its trigger set, and
/// the layer in place of the slot.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    turns: Turns<StaticLayers>,
    sequences: Vec<u16>,
    /// The layer that somebody joins. One is enough: who hears of the highest hears enough.
    announced: Option<u8>,
}

impl Sender {
    /// Begins at `now`.
    pub fn new(config: Config, now: Instant) -> Self {
        let turns = Turns::new(StaticLayers::new(&config.rates, config.packet_bytes, now));
        Self { turns, sequences: vec![0; config.rates.len()], announced: None, config }
    }

    /// The rates of its layers.
    pub fn rates(&self) -> &[Rate] {
        &self.config.rates
    }
}

/// Congestion control information of a packet, or of an announcement.
fn cci(layer: u16, sequence: u16, announced: Option<u8>) -> Cci {
    let (increase_trigger, slot) = (announced.is_some(), announced.unwrap_or(0) & 0x7F);
    let group = u8::try_from(layer).unwrap_or(u8::MAX);
    let flid = FlidSlCci { increase_trigger, slot, group, sequence };
    Cci::try_from(flid).unwrap_or(Cci::ZERO)
}

impl SenderControl for Sender {
    fn channels(&self) -> u16 {
        self.config.layers()
    }

    fn levels(&self) -> u16 {
        self.config.layers()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(self.turns.schedule())
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.turns.due())
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let level = self.turns.level();
        (self.turns.due() <= now).then(|| Departure {
            channel: ChannelId(level),
            level,
            at: self.turns.at(),
            cci: cci(level, self.sequences[usize::from(level)], None),
            ecn: Ecn::NotCapable,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        let sequence = &mut self.sequences[usize::from(self.turns.level())];
        *sequence = sequence.wrapping_add(1);
        self.turns.departed(now);
    }

    fn feedback(&mut self, _now: Instant, datagram: &Datagram<'_>) {
        if let [a, b, c, layer] = *datagram.payload
            && [a, b, c] == ANNOUNCEMENT
            && u16::from(layer) <= self.config.layers()
        {
            self.announced = Some(self.announced.map_or(layer, |other| other.max(layer)));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let cci = cci(0, 0, Some(self.announced.take()?));
        let bytes = cci.as_bytes();
        buffer[..bytes.len()].copy_from_slice(bytes);
        let destination = Destination::Channel(ChannelId::BASE);
        Some(Transmit { destination, bytes: bytes.len(), ecn: Ecn::NotCapable })
    }

    fn timeout(&mut self, now: Instant) {
        self.turns.give_up(now);
    }
}
